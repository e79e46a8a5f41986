"""Where TPC-H's rows come from: `tpchgen-cli`, run once per scale, its Parquet files kept in a folder."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from decimal import Decimal
from pathlib import Path

from cumulus.errors import InputError, MissingError, UsageError
from cumulus.workloads.tpch.schema import TABLES


def generate(scale: float, cache: Path) -> Path:
    """Return the folder with the tables at `scale`, generating those that are not there.

    Parameters
    ----------
    scale
        The scale factor, positive; 1 is 6 million lineitems (150 MB of Parquet), any fraction will do.
    cache
        Folder in which each scale has its own.

    Returns
    -------
    Path
        ``cache/sf<scale>``, with one Parquet file for each of `TABLES`.

    Raises
    ------
    MissingError
        tpchgen-cli is not installed.
    InputError
        It failed; its words are in the message.
    """
    if not scale > 0:
        raise UsageError(f"the scale is {scale}", hint="Give a positive scale factor, 0.01 say.")
    name = f"{Decimal(str(scale)).normalize():f}"
    target = cache / f"sf{name}"
    missing = [table for table in TABLES if not (target / f"{table}.parquet").exists()]
    if not missing:
        return target
    target.mkdir(parents=True, exist_ok=True)
    # Generated aside and renamed, so an interrupted run leaves no half of a table behind.
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{target.name}.") as aside:
        command = [_generator(), "parquet", "-s", name, "--quiet", "-T", ",".join(missing), "-o", f"{aside}/tables"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise InputError(
                f"tpchgen-cli failed with {run.returncode}: {run.stderr.strip()}", hint=f"It ran {' '.join(command)}"
            )
        for table in missing:
            Path(aside, "tables", f"{table}.parquet").rename(target / f"{table}.parquet")
    return target


def _generator() -> str:
    beside = Path(sysconfig.get_path("scripts"), "tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise MissingError("TPC-H data needs tpchgen-cli", hint="pip install 'cumulus-ivm[workloads]'")
    return found
