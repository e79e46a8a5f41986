"""What a driver and its workers must have in common: the package, its release, and the files that they name.

Spark's workers may be on other machines. What such a machine lacks is told in the first epoch, before its manifest.
"""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.durable.store import FileStore, Store, is_address
from cumulus.errors import CumulusError, InputError, MismatchError, MissingError, StoreError, UsageError
from cumulus.machine_facts import host_name
from cumulus.spark.errors import carried_error, carry_errors_through_spark
from cumulus.spark.session import log_place
from cumulus.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LATE_S = 5.0
"""How long a network's file system may take to show the driver what a worker has written."""
SHARED = (
    "Give a folder that the driver and all workers see at the same path, such as a mounted file system of the network, "
    "or an address such as s3://bucket/folder"
)


# --- the release ------------------------------------------------------------------------------------------------------


def pack_task(task: Any, fields: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return what `__reduce__` of a task returns: a worker with another release refuses it by name.

    Parameters
    ----------
    task, fields
        A task, and the arguments that make it anew.
    """
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps((type(task), tuple(fields)))  # type: ignore[no-untyped-call]
    return unpack_task, (VERSION, data)


def unpack_task(release: str, data: bytes) -> Any:
    """Return the task that a driver of a release has packed.

    Raises
    ------
    MismatchError
        If this is another release. It is carried through Spark.
    """
    if release != VERSION:
        with carry_errors_through_spark():
            raise _other_release(f"cumulus-ivm {VERSION}", release)
    kind, fields = pickle.loads(data)
    return kind(*fields)


def _other_release(found: str, release: str = VERSION) -> MismatchError:
    return MismatchError(
        f"the workers on {host_name()} have {found}, the driver has {release}",
        hint=f"Install cumulus-ivm[spark]=={release} where the workers' Python is (docs/spark.md, Workers).",
    )


# --- files ------------------------------------------------------------------------------------------------------------


def check_input_seen(path: str, size: int) -> None:
    """Check in a worker that it sees the file that the driver has listed.

    Parameters
    ----------
    path, size
        The file, and its bytes where it was listed; below 0 if they are not known.

    Raises
    ------
    InputError
        If it is not there, or another one is.
    """
    if is_address(path):  # all machines see the same
        return
    try:
        found = os.stat(path).st_size
    except OSError as problem:
        raise InputError(
            f"{path}: the worker on {host_name()} cannot see this file, which the driver has listed: "
            f"{problem.strerror}",
            hint=f"{SHARED}, and leave files there until their epoch is committed.",
        ) from None
    if 0 <= size != found:
        raise InputError(
            f"{path}: {found:,} bytes for the worker on {host_name()}, {size:,} where the driver has listed it",
            hint=f"{SHARED}; files must not change once they are there.",
        )


def check_output_seen(out: Store, reports: Iterable[Mapping[str, Any]]) -> None:
    """Check that the driver sees the files that bucket processes have written, as far as their reports name a host.

    Parameters
    ----------
    reports
        Those of the buckets; the first ones of each process have `host`, and `sizes`: path in the output → bytes.

    Raises
    ------
    StoreError
        If a file is not there, or has another size.
    """
    until = time.monotonic() + _LATE_S
    for report in reports:
        for path, size in report.get("sizes", {}).items():
            while out.size(path) != size:
                if isinstance(out, FileStore):
                    _look_again(out.path / path)
                if time.monotonic() > until:
                    raise StoreError(
                        f"{out}: the workers on {report['host']} write where this machine cannot read; "
                        "nothing was committed",
                        hint=f"{SHARED}. The first file that is missing here: {path}.",
                    )
                time.sleep(0.1)


def _look_again(file: Path) -> None:
    """Have a client of a network's file system ask what is in a folder."""
    with suppress(OSError):
        os.listdir(file.parent)


def check_checkpoint_known(spark: SparkSession, address: str) -> None:
    """Check that Spark has a Hadoop file system for the address of a checkpoint.

    Raises
    ------
    UsageError
        If it has none.
    """
    scheme = address.partition("://")[0]
    try:  # whatever is there: Spark looks for the file system first
        spark.read.text(address).schema  # noqa: B018
    except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
        if not _NO_FILE_SYSTEM.search(str(problem)):
            return
        package = {"s3a": "hadoop-aws", "gs": "gcs-connector", "abfss": "hadoop-azure"}.get(scheme)
        way = (
            f"add its package: --conf spark.jars.packages=…:{package}:…" if package else "use s3a://, gs:// or abfss://"
        )
        raise UsageError(
            f"--checkpoint {address}: this Spark has no Hadoop file system for {scheme}://",
            hint=f"Give a folder that the driver and all workers share; or {way}.",
        ) from None


def check_state_seen(folder: Path, partitions: int, operators: int = 1) -> None:
    """Check that the driver sees what workers have stored of Spark's state in its checkpoint.

    Parameters
    ----------
    folder
        Spark's checkpoint.
    partitions, operators
        With buckets, of each stateful operator; and how many operators there are.

    Raises
    ------
    StoreError
        If there are files of fewer partitions than have buckets.
    """
    until = time.monotonic() + _LATE_S
    while any(_stored_partitions(folder / "state" / str(number)) < partitions for number in range(operators)):
        if time.monotonic() > until:
            raise StoreError(
                f"{folder}: this machine does not see what the workers have stored of the checkpoint; nothing was "
                "committed",
                hint=f"{SHARED}: --checkpoint.",
            )
        time.sleep(0.1)


def _stored_partitions(state: Path) -> int:
    return sum(any(file.is_file() for file in each.rglob("*")) for each in state.glob("[0-9]*"))


# --- what Spark says of workers ---------------------------------------------------------------------------------------

_NO_FILE_SYSTEM = re.compile("No FileSystem for scheme|UNSUPPORTED_FILESYSTEM|ClassNotFound")
_LACKS = re.compile(r"No module named '(?P<module>[\w.]+)'")
_NOT_IN_MODULE = re.compile(r"Can't get attribute '(?P<name>\w+)' on <module 'cumulus")
_NO_PROGRAM = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_PYTHONS = re.compile(r"PYTHON_VERSION_MISMATCH\].*?(?P<worker>\d+\.\d+)\D+?(?P<driver>\d+\.\d+)", re.DOTALL)
_NEEDED = ("cumulus", "pandas", "pyarrow", "numpy", "pyspark", "llvmlite")


def failed_to_connect(text: str) -> bool:
    """Whether Spark gave a Python process up that took longer to start than it waits: ten seconds."""
    return "Python worker failed to connect back" in text


def query_error(*problems: BaseException) -> BaseException:
    """Return the error that ended a query, in our words where they say more than the last of `problems`."""
    for problem in problems:
        if isinstance(problem, CumulusError):
            return problem
        found = carried_error(problem) or worker_failure(str(problem))
        if found is not None:
            return found
    first = str(problems[-1]).strip().splitlines()
    return StoreError(
        f"the Spark query ended: {first[0] if first else type(problems[-1]).__name__}",
        hint=f"Spark's own words are {log_place()}. Run again: it resumes after the last committed epoch.",
    )


def worker_failure(text: str) -> CumulusError | None:
    """Return what the words of Spark say about the Python of its workers, None if it is something else."""
    install = f"Install cumulus-ivm[spark]=={VERSION} where the workers' Python is (docs/spark.md, Workers)."
    if found := _NO_PROGRAM.search(text):
        return MissingError(
            f"Spark cannot run {found['program']} on a worker", hint="Set PYSPARK_PYTHON to a Python that is there."
        )
    if found := _PYTHONS.search(text):
        return MismatchError(
            f"the workers run Python {found['worker']}, the driver Python {found['driver']}",
            hint="Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the same version.",
        )
    if (found := _LACKS.search(text)) and found["module"].split(".")[0] in _NEEDED:
        package = found["module"].split(".")[0]
        if found["module"].startswith("cumulus."):
            return MismatchError(f"the workers have another cumulus-ivm than {VERSION}, the driver's", hint=install)
        name = "cumulus-ivm" if package == "cumulus" else package
        return MissingError(f"the Python of Spark's workers has no {name}", hint=install)
    if _NOT_IN_MODULE.search(text):
        return MismatchError(f"the workers have another cumulus-ivm than {VERSION}, the driver's", hint=install)
    return None
