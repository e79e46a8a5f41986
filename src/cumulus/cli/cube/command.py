"""`cumulus cube`: the group of its subcommands."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cumulus.cli.cube.opening import CubeName, Data, Source, open_source
from cumulus.cli.cube.options import SelectionOptions
from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.row_output import RowOutput

if TYPE_CHECKING:
    from cumulus import Cube
    from cumulus.olap import Selection

By = Annotated[str, typer.Option("--by", help="Levels, such as date.y,region.", show_default=False)]
Measures = Annotated[str, typer.Option("--measures", help="Which measures; all if not given.", show_default=False)]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="LEVEL=VALUE,… or LEVEL=LOW..HIGH or LEVEL~PATTERN; repeatable.", show_default=False),
]
Pivot = Annotated[str, typer.Option("--pivot", help="Levels whose members become columns.", show_default=False)]
Totals = Annotated[str, typer.Option("--totals", help="Dimensions that have totals, or all.", show_default=False)]
Having = Annotated[list[str] | None, typer.Option("--having", help="MEASURE>NUMBER; repeatable.", show_default=False)]
Order = Annotated[str, typer.Option("--order", help="Columns; a minus before one is descending.", show_default=False)]
TopOption = Annotated[str, typer.Option("--top", help="COUNT:MEASURE or COUNT:MEASURE:LEVEL,…", show_default=False)]
Others = Annotated[bool, typer.Option("--others", help="With --top: the rest as a row of its own.")]
Limit = Annotated[int | None, typer.Option("--limit", min=0, help="How many rows.", show_default=False)]
At = Annotated[int | None, typer.Option("--at", min=1, help="An earlier epoch of a run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]

cube = typer.Typer(
    name="cube",
    help="Cubes: their levels and measures, what they say, and which levels to keep.",
    no_args_is_help=True,
)


@cube.callback()
def _group() -> None:
    """Cubes: their levels and measures, what they say, and which levels to keep."""


@cube.command("list")
def list_cubes(source: Source, functions: FunctionPlaces = None, as_json: AsJson = False) -> None:
    """List the cubes of SOURCE, and the views that can be asked as cubes.

    Example: cumulus cube list views.sql
    """
    from cumulus import Cube
    from cumulus.errors import UsageError

    found = open_source(source, (), functions_in(functions))
    for name in found.names():
        try:
            made = Cube(found, name)
        except UsageError:  # a view that is none
            continue
        if as_json:
            shown = {"name": name, "dimensions": {each.name: each.levels for each in made.dimensions}}
            print(json.dumps({**shown, "measures": [each.name for each in made.measures]}, ensure_ascii=False))
        else:
            print(str(made).removeprefix("Cube(").removesuffix(")"))


@cube.command("show")
def show(
    source: Source, name: CubeName, data: Data = None, functions: FunctionPlaces = None, as_json: AsJson = False
) -> None:  # fmt: skip
    """Show the dimensions, measures and kept levels of a cube.

    Example: cumulus cube show views.sql sales
    """
    from cumulus import Cube

    made = Cube(open_source(source, data, functions_in(functions)), name)
    if as_json:
        told = {
            "name": made.name,
            "dimensions": [asdict(each) for each in made.dimensions],
            "measures": [asdict(each) for each in made.measures],
            "kept": [asdict(each) for each in made.kept],
        }
        print(json.dumps(told, ensure_ascii=False))
        return
    print("\n".join(described(made)))


def described(made: Cube) -> list[str]:
    """Return lines on dimensions, measures and kept levels."""
    lines = [f"cube {made.name}"]
    lines += [f"  dimension {each.name} ({', '.join(each.levels)})" for each in made.dimensions]
    lines += [f"  measure {each.name} {each.type}: {each.kind}" for each in made.measures]
    for each in made.kept:
        size = "" if each.entries is None else f", {each.entries:,} entries"
        why = "" if each.asked_for else ", there for another view"
        lines.append(f"  level ({', '.join(each.levels)}): map {each.map}{size}{why}")
    return lines


@cube.command("query")
def query(
    source: Source,
    name: CubeName,
    by: By = "",
    measures: Measures = "",
    where: Where = None,
    pivot: Pivot = "",
    totals: Totals = "",
    having: Having = None,
    order: Order = "",
    top: TopOption = "",
    others: Others = False,
    limit: Limit = None,
    at: At = None,
    data: Data = None,
    functions: FunctionPlaces = None,
    as_json: AsJson = False,
) -> None:
    """Ask a cube for measures by some of its levels.

    Example: cumulus cube query out/ sales --by date.y,region --where region=ASIA,EUROPE --totals all
    """
    options = SelectionOptions(by, measures, where or (), pivot, totals, having or (), order, top, others, limit, at)
    table = _selection(source, name, data, functions, options).arrow()
    RowOutput(as_json).write(table)


@cube.command("explain")
def explain(
    source: Source,
    name: CubeName,
    by: By = "",
    measures: Measures = "",
    where: Where = None,
    pivot: Pivot = "",
    totals: Totals = "",
    top: TopOption = "",
    others: Others = False,
    at: At = None,
    data: Data = None,
    functions: FunctionPlaces = None,
    as_json: AsJson = False,
) -> None:
    """Tell which map answers a selection, how many entries are read, why no other map does, and how long it takes.

    Example: cumulus cube explain out/ sales --by date.y
    """
    from time import perf_counter

    options = SelectionOptions(by, measures, where or (), pivot, totals, (), "", top, others, None, at)
    selection = _selection(source, name, data, functions, options)
    begun = perf_counter()
    told = selection.read().explanation
    took_ms = (perf_counter() - begun) * 1000
    if as_json:
        print(json.dumps({**asdict(told), "ms": took_ms, "selection": json.loads(selection.to_json())}, default=str))
    else:
        print(f"{told}\n{took_ms:.1f} ms")


@cube.command("advise")
def advise_command(
    source: Source,
    name: CubeName,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Selections that were asked, as JSON lines; all alike if not given."),
    ] = None,
    most: Annotated[int | None, typer.Option("--most", min=0, help="How many levels.", show_default=False)] = None,
    level_us: Annotated[
        float, typer.Option("--level-us", min=0, help="What a small level costs an event, in µs.")
    ] = 0.12,
    budget_us: Annotated[
        float | None, typer.Option("--budget-us", min=0, help="What all may cost an event, in µs.", show_default=False)
    ] = None,
    data: Data = None,
    functions: FunctionPlaces = None,
    as_json: AsJson = False,
) -> None:
    """Say which levels of a cube to keep, from how many entries selections read with and without them.

    Example: cumulus cube advise out/ sales --log selections.jsonl --most 4
    """
    from cumulus import Cube
    from cumulus.errors import InputError

    made = Cube(open_source(source, data, functions_in(functions)), name)
    lines = None
    if log is not None:
        try:
            lines = log.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"cannot read {log}: {problem}", hint="Give a file of JSON lines.") from None
    advice = made.advise(lines, most=most, level_us=level_us, budget_us=budget_us)
    print(json.dumps({**asdict(advice), "keep": advice.keep}, ensure_ascii=False) if as_json else advice)


def _selection(
    source: str, name: str, data: list[str] | None, functions: list[str] | None, options: SelectionOptions
) -> Selection:
    from cumulus import Cube

    return options.selection(Cube(open_source(source, data, functions_in(functions)), name))
