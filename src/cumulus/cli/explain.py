"""`cumulus explain`: what views cost, and what a change of views changes."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.programs import program_in
from cumulus.cli.table_counts import statistics_given
from cumulus.errors import LowerOrderWarning, UnsupportedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from cumulus.epochs.plan_choice import PlanChoice
    from cumulus.explain.explanation import Explanation
    from cumulus.m3.program import Program
    from cumulus.scalars.user import UserFunction


def explain_command(
    file: Path = typer.Argument(..., help="A SQL script, or an M3 program (*.m3).", show_default=False),
    second: str = typer.Argument("", metavar="[VIEW|FILE]", help="The view; with --diff, the script to compare with."),
    view: str = typer.Option("", "--view", help="The view; all views if left out."),
    diff: bool = typer.Option(False, "--diff", help="Compare two scripts: what the second adds, drops and keeps."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    rely: bool = typer.Option(True, help="Use FOREIGN KEY … RELY."),
    rows: list[str] = typer.Option([], "--rows", help="TABLE=N: rows of a table, to bound memory; repeatable."),
    distinct: list[str] = typer.Option([], "--distinct", help="TABLE.COLUMN=N: its different values; repeatable."),
    source: list[str] = typer.Option([], "--from", help="Count rows and values in DIR, or NAME=PATH, as of run."),
    buckets: int = typer.Option(0, min=0, max=1024, help="Buckets of the layout; 0 for one per core of this machine."),
    layout: str = typer.Option("auto", help="auto, one-bucket, one-round or judged, as of run."),
    functions: FunctionPlaces = None,
) -> None:
    """Say what keeping each view costs: an event, memory, a subscription; why each map is there; and a run's layout.

    Example: cumulus explain examples/shop.sql --view revenue --rows orders=1000000
    """
    given = functions_in(functions)
    if diff:
        if not second or view:
            raise UsageError("--diff compares two scripts", hint="cumulus explain --diff old.sql new.sql")
        _compare(
            program_in(file, rely=rely, functions=given), program_in(Path(second), rely=rely, functions=given), as_json
        )
        return
    if second and view and second != view:
        raise UsageError(f"two views are named: {second} and {view}", hint="Name one, or none for all.")
    from cumulus.engine.engines import python_functions
    from cumulus.explain.view_costs import explain_views

    program = program_in(file, rely=rely, functions=given)
    statistics = statistics_given(program, rows, distinct, source)
    name = second or view
    often = _without_enforced(file, program, rely, given)
    found = explain_views(program, [name] if name else None, statistics, python_functions(program, given), often)
    chosen = _choice_of_run(file, layout, buckets, (rows, distinct, source), given)
    if as_json:
        told = {"views": [one.as_dict() for one in found], "layout": str(chosen), "plan": chosen.plan.plain()}
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    from cumulus.cli.terminal.consoles import plain_console

    console = plain_console()
    for one in found:
        if console.is_terminal:
            _show(console, one)
        else:
            print(one, end="\n\n")
    print(f"layout: {chosen}")


def _choice_of_run(
    file: Path,
    layout: str,
    buckets: int,
    known: tuple[Sequence[str], Sequence[str], Sequence[str]],
    functions: Sequence[UserFunction],
) -> PlanChoice:
    """Return the layout that `cumulus run` would choose.

    Parameters
    ----------
    known
        `--rows`, `--distinct` and `--from`.
    """
    from cumulus.cli.programs import program_of_run
    from cumulus.cli.table_counts import counts_of_sources
    from cumulus.epochs.layouts import match_sources_to_tables, require_rounds
    from cumulus.epochs.plan_choice import choice_of_plan
    from cumulus.epochs.sources import sources_from

    wanted = buckets or os.cpu_count() or 1
    count = partial(counts_of_sources, layout=layout, buckets=wanted, known=known)
    program, counts = program_of_run(partial(program_in, file, functions=functions), layout, wanted, count)
    if known[2]:
        program, _ = match_sources_to_tables(require_rounds(program), sources_from(list(known[2]), program))
    return choice_of_plan(program, layout, wanted, counts)


def _without_enforced(file: Path, program: Program, rely: bool, functions: Sequence[UserFunction]) -> Program | None:
    """Return the program with statements for all changes; None if it is the same, or too large."""
    if file.suffix == ".m3" or not any(key.enforced for each in program.relations for key in each.foreign_keys):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowerOrderWarning)
        try:
            return program_in(file, rely=rely, enforced=False, functions=functions)
        except UnsupportedError:
            return None


def _compare(old: Program, new: Program, as_json: bool) -> None:
    from cumulus.compiler.difference import compare

    found = compare(old, new)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
    else:
        print(found)


def _show(console: Console, found: Explanation) -> None:
    """Print an explanation as tables: the content of its text."""
    from rich.table import Table

    from cumulus.explain.explanation import (
        KINDS,
        cost_rows,
        cube_lines,
        shown_events,
        size_text,
        statement_text,
        title_of,
    )

    console.print(title_of(found), style="bold")
    plain = partial(Table, title_justify="left", show_edge=False, header_style="bold")
    costs = plain("event", *KINDS.values())
    for row in cost_rows(found):
        costs.add_row(*row)
    console.print(costs)
    if found.cube is not None:
        for line in cube_lines(found, found.cube):
            console.print(line)
    maps = plain(
        *("map", "definition", "why", "entries at most", "memory", "shared with", "read by"),
        title="maps",
        show_lines=True,
    )
    for use in found.maps:
        size = use.size
        entries = size.formula if size.entries is None else f"{size.entries:,}\n= {size.formula}"
        memory = "" if size.bytes is None else size_text(size.bytes)
        definition = use.definition.sql or "no definition"
        why = "\n".join(use.why)
        maps.add_row(str(use), definition, why, entries, memory, ", ".join(use.views), ", ".join(use.readers))
    console.print(maps)
    for reason in found.reasons:
        console.print(f"not cheaper: {reason}")
    if found.python:
        console.print(f"calls Python: {', '.join(found.python)}")
    statements = plain("on", "statement", "cost", "loops over", title="statements")
    for event in shown_events(found.events):
        for place, cost in enumerate(event.statements):
            loops = ", ".join(str(read) for read in cost.loops)
            shown = statement_text(cost)
            statements.add_row("" if place else str(event), shown, str(cost.cost), loops)
    console.print(statements)
    for each in found.subscribed:
        console.print(f"subscribing: an event of {each.relation} touches {each.rows}")
    console.print()
