"""Every value of every type from files of each format, in machine code: embedded, and by the processes of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.types import arrow_type
from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.sources import sources_from
from support.equal_outputs import difference
from support.extremes import EXTREMES
from support.oracle import same_bag
from support.scalar_types import parsed

CLUSTER = "from cumulus.cli.main import main; main()"
WITHIN_FILES = {
    name: [value for value in values if name != "HUGEINT" or abs(value) < 10**38]  # Arrow has 38 digits
    for name, values in EXTREMES.items()
}
NAMES = {name: f"t{at}" for at, name in enumerate(WITHIN_FILES)}
SCRIPT = "".join(
    f"CREATE TABLE {table} (k INTEGER NOT NULL, v {name});"
    f"CREATE VIEW {table}_groups AS SELECT v, COUNT(*) AS n FROM {table} GROUP BY v;"
    f"CREATE VIEW {table}_ends AS SELECT k, MIN(v) AS lo, MAX(v) AS hi, COUNT(v) AS n FROM {table} GROUP BY k;"
    for name, table in NAMES.items()
)


def rows_of(name: str) -> list[tuple[int, Any]]:
    values = WITHIN_FILES[name]
    return [*((1 + at % 2, value) for at, value in enumerate(values)), (1, None), (3, None), (4, values[0])]


def write(folder: Path, kind: str) -> None:
    for name, table in NAMES.items():
        rows = rows_of(name)
        columns = {"k": pa.array([k for k, _ in rows], pa.int32())}
        columns["v"] = pa.array([v for _, v in rows], arrow_type(parsed(name)))
        place = folder / table
        place.mkdir(parents=True)
        if kind == "parquet":
            pq.write_table(pa.table(columns), place / "1.parquet")
        elif kind == "csv":
            texts = {"k": columns["k"], "v": pa.array([None if v is None else text(v) for _, v in rows])}
            pc.write_csv(pa.table(texts), place / "1.csv", pc.WriteOptions(quoting_style="needed"))
        else:
            lines = [
                json.dumps({"k": k, "v": v if v is None or isinstance(v, (bool, int)) else text(v)}) for k, v in rows
            ]
            (place / "1.json").write_text("\n".join(lines) + "\n")


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def expected(name: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    rows = rows_of(name)
    counts = Counter("nan" if value != value else value for _, value in rows)
    groups = [(float("nan") if value == "nan" and name != "VARCHAR" else value, n) for value, n in counts.items()]
    ends = []
    for k in sorted({k for k, _ in rows}):
        mine = [value for at, value in rows if at == k and value is not None]
        order = sorted(mine, key=lambda value: (value != value, 0 if value != value else value))
        ends.append((k, order[0] if order else None, order[-1] if order else None, len(mine)))
    return groups, ends


def check(out: Path) -> None:
    manifest = newest_manifest(out)
    assert manifest is not None
    assert (manifest.counts["quarantined"], manifest.counts["errors"], manifest.errors) == (0, 0, {})
    folder = OutputFolder(out)
    for name, table in NAMES.items():
        for view, rows in zip((f"{table}_groups", f"{table}_ends"), expected(name), strict=True):
            found = [tuple(row.values()) for row in folder.view(view).arrow().to_pylist()]
            assert same_bag(found, rows), (name, view)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_legal_value_of_a_file_is_kept(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "in", kind)
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    sources = sources_from([str(tmp_path / "in")], program)
    out = tmp_path / "out"
    with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "native")) as run:
        assert len([*run.steps()]) == 1
    check(out)


def test_a_cluster_keeps_what_the_embedded_host_keeps(tmp_path: Path) -> None:
    write(tmp_path / "in", "parquet")
    script = tmp_path / "views.sql"
    script.write_text(SCRIPT)
    for host in ("embedded", "cluster"):
        run = [sys.executable, "-c", CLUSTER, "run", script, "--from", tmp_path / "in", "--out", tmp_path / host]
        subprocess.run([*run, "--host", host, "--engine", "native"], check=True, timeout=300)
    assert difference(tmp_path / "embedded", tmp_path / "cluster") == ""
    check(tmp_path / "cluster")
