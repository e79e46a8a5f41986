"""What `cumulus explain` says of a layout is what a run says, and what its checkpoint has."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cumulus.workloads import flights, shop
from cumulus.workloads.tpch import BENCHMARK, QUERIES
from cumulus_lab.workloads.tpch.refresh import columns_of
from support.command_line import cumulus
from support.tiers import sampled

GOLDEN = Path(__file__).parent / "golden" / "layouts.txt"
ROWS = {
    "lineitem": 6_000_000, "orders": 1_500_000, "partsupp": 800_000, "part": 200_000, "customer": 150_000,
    "supplier": 10_000, "nation": 25, "region": 5,
}  # fmt: skip
"""Of TPC-H at scale factor 1."""


def tpch(*queries: str) -> str:
    return BENCHMARK.script(queries, columns_of(queries), keys="foreign")


SCRIPTS = {
    **{query: tpch(query) for query in QUERIES},
    "flights": flights.sql(),
    "shop": shop.sql(),
    **{f"q3 {query}": tpch("q3", query) for query in QUERIES if query != "q3"},
    "all": tpch(*QUERIES),
}


def written(folder: Path, name: str) -> tuple[Path, list[str]]:
    """Write a script; return its file, and the options that tell rows."""
    file = folder / f"{name.replace(' ', '_')}.sql"
    file.write_text(SCRIPTS[name])
    options = [f"--rows={table}={count}" for table, count in ROWS.items() if f"TABLE {table} " in SCRIPTS[name]]
    return file, [*options, "--buckets", "4"]


def explained(file: Path, options: Sequence[str]) -> str:
    told = cumulus("explain", file, *options)
    assert told.returncode == 0, told.stderr
    return next(line for line in told.stdout.splitlines() if line.startswith("layout: "))


@pytest.mark.parametrize("name", sampled(SCRIPTS, of=12))
def test_explain_says_what_the_run_does(name: str, tmp_path: Path) -> None:
    file, options = written(tmp_path, name)
    layout = explained(file, options)
    told = dict(line.split(" | ", 1) for line in GOLDEN.read_text().splitlines()) if GOLDEN.exists() else {}
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        told[name] = layout
        GOLDEN.write_text("".join(f"{each} | {told[each]}\n" for each in SCRIPTS if each in told))
    assert layout == told[name]
    for table in SCRIPTS[name].split("CREATE TABLE ")[1:]:
        (tmp_path / "in" / table.split()[0]).mkdir(parents=True)
    run = cumulus("run", file, "--from", tmp_path / "in", "--out", tmp_path / "out", "--host", "embedded", *options)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == layout
    card = json.loads((tmp_path / "out" / "checkpoint" / "cumulus.json").read_text())
    assert f"layout: {card['plan']['why']}" == layout
