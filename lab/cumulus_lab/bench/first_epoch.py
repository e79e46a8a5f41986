"""How long the first epoch of the Spark host takes from the start of its process, beside a query that does nothing.

Each of them runs in a process of its own, in turn, and says when it had reached what.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cumulus.machine_facts import load_average

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cumulus.epochs.progress import Epoch

MARKS = ("session", "query", "done")
"""Java has a session; the query is started; its first epoch is committed."""
PARTS = ("source", "pack", "revive", "engine", "state", "sink", "commit")
PATIENCE_S = 600.0


def measure(sql: str, folder: Path, pairs: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Start the product over a folder, and the query that does nothing, in turn.

    Returns
    -------
    tuple
        A row per process, in milliseconds since it was begun, and the medians with their ratio.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        script = Path(scratch) / "views.sql"
        script.write_text(sql)
        for pair in range(pairs):
            for what in ("product", "floor"):
                load, out = load_average()[0], Path(scratch) / f"{what}-{pair}"
                began = time.time()
                arguments = [what, str(script), str(folder), str(out)]
                command = [sys.executable, "-m", "cumulus_lab.bench.first_epoch", *arguments]
                ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
                told = json.loads(ended.stdout.splitlines()[-1])
                marks = {f"{name}_ms": round(1000 * (told[name] - began)) for name in MARKS}
                parts = {f"our_{part}_ms": told.get("parts", {}).get(part) for part in PARTS}
                rows.append({"what": what, "pair": pair + 1, "load": load, **marks, **parts})
    medians = {
        what: {name: round(median(row[f"{name}_ms"] for row in rows if row["what"] == what)) for name in MARKS}
        for what in ("product", "floor")
    }
    return rows, {**medians, "ratio": round(medians["product"]["done"] / medians["floor"]["done"], 2)}


def _product(script: str, folder: str, out: str) -> dict[str, Any]:
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.spark.session import local_session

    program = compile_sql(Path(script).read_text(), rely=False)
    session = local_session()
    marks: dict[str, Any] = {"session": time.time()}
    from cumulus.spark.pipeline import maintain

    def take(epoch: Epoch) -> None:
        marks["done"] = time.time()
        marks["parts"] = {part: round(1000 * seconds) for part, seconds in epoch.parts.items()}

    run = maintain(session, program, folder, out, epochs=1, on_epoch=take, wait=False)
    marks["query"] = time.time()
    run.wait()
    return marks


def _floor(out: str) -> dict[str, float]:
    from cumulus.spark.session import local_session

    session = local_session()
    marks = {"session": time.time()}
    from cumulus_lab.bench.spark_floor import idle_query

    is_done = threading.Event()

    def commit(counts: DataFrame, batch: int) -> None:
        counts.collect()
        marks["done"] = time.time()
        is_done.set()

    query = idle_query(session, Path(out), 2, commit)
    marks["query"] = time.time()
    is_done.wait(PATIENCE_S)
    query.stop()
    return marks


if __name__ == "__main__":
    print(json.dumps(_product(*sys.argv[2:]) if sys.argv[1] == "product" else _floor(sys.argv[4])))
