"""Random scripts by every way that a state comes to be: filled, saved and loaded, views created while it lives."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb

from cumulus import Warehouse
from cumulus.errors import UnsupportedError
from cumulus.warehouse.loading.initial_load import WAYS
from fuzz.case import Case, case_of
from fuzz.compare import COMPILE_SECONDS, TooSlowError, limited
from fuzz.generator import script_of
from support.oracle import Oracle, same_bag

ENGINES = ("native", "native", "interpreter")


def compare(seed: int, folder: Path, *, keyed: bool = False) -> list[str] | None:
    """Compare all views of a script with DuckDB after each step; return the steps, None if nothing of it compiles."""
    draw = random.Random(seed)
    case = case_of(script_of(seed, keyed=keyed))
    oracle = Oracle(case.schema)
    try:
        names = _compiled(case, oracle)
        return _compare(draw, case, names, oracle, folder) if names else None
    finally:
        oracle.database.close()


def _compiled(case: Case, oracle: Oracle) -> list[str]:
    """Return the names of the views that both take."""
    names = []
    for name, select in case.views:
        try:
            oracle.database.execute(f"CREATE VIEW {name} AS {select}")
            oracle.rows(f"FROM {name}")
            with limited(COMPILE_SECONDS):
                Warehouse(case.sql([*names, name]), engine="interpreter", keep="all")
        except (duckdb.Error, UnsupportedError, TooSlowError):
            oracle.database.execute(f"DROP VIEW IF EXISTS {name}")  # so that it refuses those that read it
        else:
            names.append(name)
    return names


def _compare(draw: random.Random, case: Case, names: list[str], oracle: Oracle, folder: Path) -> list[str]:
    there, later = names[: (first := draw.randint(1, len(names)))], names[first:]
    warehouse = Warehouse(case.sql(there), engine=draw.choice(ENGINES), keep="all")
    # References hold between transactions.
    parts = case.plain if case.refers else [(event,) for transaction in case.plain for event in transaction]
    cuts = sorted(draw.sample(range(len(parts) + 1), min(4, len(parts))))
    steps = [f"engine {warehouse.stats().engine}"]

    def check(step: str) -> None:
        steps.append(step)
        told = list(warehouse.errors())
        assert not told, f"{told[:3]} after {steps}\n{case.text('')}"
        for view in there:
            ours, theirs = warehouse.view(view).rows(), oracle.rows(f"FROM {view}")
            what = f"{view} after {steps}\nours   {ours[:9]}\ntheirs {theirs[:9]}\n{case.text('')}"
            assert same_bag(ours, theirs), what

    at = 0
    for cut in [*cuts, len(parts)]:
        events = [event for part in parts[at:cut] for event in part]
        for event in events:
            oracle.apply(*event)
        if at == 0:
            tables = [table.split()[2] for table in case.tables]
            filled = warehouse.fill({name: oracle.rows(f"FROM {name}") for name in tables}, way=draw.choice(WAYS))
            check(f"fill: {filled}")
        else:
            warehouse.apply(events, per="call")
            check(f"apply {at} to {cut}")
        at = cut
        match draw.choice(("save", "view", "nothing")):
            case "save":
                form, engine = draw.choice(("auto", "portable")), draw.choice(ENGINES)
                warehouse.save(folder / "saved", form)
                warehouse = Warehouse.load(folder / "saved", engine=engine)
                check(f"save {form}, load {engine}")
            case "view" if later:
                there.append(later.pop(0))
                warehouse.execute(f"CREATE VIEW {there[-1]} AS {dict(case.views)[there[-1]]}")
                check(f"create {there[-1]}")
    return steps
