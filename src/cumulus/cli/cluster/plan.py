"""`cumulus cluster plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.programs import program_in
from cumulus.cli.shared_options import ArityChoice, DispatchChoice, GcChoice
from cumulus.cli.table_counts import statistics_given
from cumulus.cluster.mode import CUT_HELP, MODE_HELP, RULES, SPLIT_HELP, Mode
from cumulus.cluster.planning.epoch_endings import COMMIT_HELP, TRANSITIONS_HELP, CommitBy, EpochEndings, Transitions
from cumulus.cluster.planning.mode_options import OPTION_HELP
from cumulus.cluster.versions import MOST_SWITCHES
from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.cluster.planning.cluster_plan import ClusterPlan


_NO_ROWS = "Leave out --from: what machines tell each other of an epoch is counted without rows."


def _tell_options(asked: bool) -> None:
    """Print what modes may do otherwise, and end."""
    if asked:
        from cumulus.cluster.planning.mode_options import OPTIONS

        for name, rule in OPTIONS.items():
            print(rule.written(name))
            print(f"  {rule.does}; {rule.source}")
            beside = [f"; with {rule.needs}"] if rule.needs else [f"; not with {each}" for each in rule.excludes]
            print(f"  of {', '.join(rule.modes)}{''.join(beside)}")
        raise typer.Exit


def plan(
    file: Path = typer.Argument(..., help="A SQL script, or an M3 program (*.m3).", show_default=False),
    nodes: int = typer.Option(..., "--nodes", min=1, help="How many nodes keep maps.", show_default=False),
    switches: int = typer.Option(1, "--switches", min=1, max=MOST_SWITCHES, help="How many switches take rows."),
    mode: Mode = typer.Option(Mode.EVENTUAL, "--mode", help=MODE_HELP),
    program: bool = typer.Option(False, "--program", help="Print the program of a node, as M3; with --json, add it."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    messages: bool = typer.Option(False, "--messages", help="Count what machines would send each other."),
    source: list[str] = typer.Option([], "--from", help="Of --messages: rows, in DIR or NAME=PATH, as of run."),
    block: int = typer.Option(10_000, "--block", min=1, help="Of --messages: rows of a block, at most."),
    commit: CommitBy = typer.Option(CommitBy.PUBLISHER, "--commit", help=f"Of --messages. {COMMIT_HELP}"),
    transitions: Transitions = typer.Option(Transitions.ALIGNED, help=f"Of --messages. {TRANSITIONS_HELP}"),
    home: list[str] = typer.Option([], "--home", help="TABLE.COLUMN: where statements are computed; repeatable."),
    cut: list[str] = typer.Option([], "--cut", help=CUT_HELP),
    split: list[str] = typer.Option([], "--split", help=SPLIT_HELP),
    option: list[str] = typer.Option([], "--option", help=OPTION_HELP),
    dispatch: DispatchChoice = "",
    arity: ArityChoice = None,
    gc: GcChoice = "",
    options: bool = typer.Option(
        False, "--options", help="List what modes may do otherwise.", is_eager=True, callback=_tell_options
    ),
    rows: list[str] = typer.Option([], "--rows", help="TABLE=N: rows of a table, to weigh by; repeatable."),
    distinct: list[str] = typer.Option([], "--distinct", help="TABLE.COLUMN=N: its different values; repeatable."),
    functions: FunctionPlaces = None,
) -> None:
    """Say what a cluster does with a program: what is spread or gated, where it lies, and what nodes send each other.

    Example: cumulus cluster plan examples/shop.sql --nodes 2
    """
    from cumulus.cluster.placement.statement_placement import cost_of_homes, homes_asked_for
    from cumulus.cluster.planning.central_options import central_options
    from cumulus.cluster.planning.cluster_plan import plan_cluster
    from cumulus.cluster.planning.order_of_events import require_order
    from cumulus.cluster.planning.plan_report import plan_data, plan_text
    from cumulus.epochs.layouts import require_columns

    # Nothing promises the order of tables, and a reference is checked where its tables are, not where maps are.
    whole = require_columns(program_in(file, rely=False, enforced=False, functions=functions_in(functions)))
    statistics, homes = statistics_given(whole, rows, distinct), homes_asked_for(whole, home)
    central = central_options(dispatch, arity, gc)
    shape: dict[str, Any] = {"cuts": cut, "splits": split, "options": option, "central": central}
    planned = plan_cluster(whole, nodes, switches, mode, statistics, homes, **shape)
    found = require_order(planned)
    if messages:
        _print_messages(found, source, block, EpochEndings(commit, transitions), as_json=as_json)
        return
    spread, text = found.division.spread, str(found.nodes_program.program)
    if program and not as_json:
        if not spread.maps:
            raise UsageError("nothing is spread, so nodes run no program of their own", hint="Leave out --program.")
        print(text, end="")
        return
    has_cost = spread.maps and RULES[mode].has_replicas and not cut
    cost = cost_of_homes(spread, found.layout.homes, statistics) if has_cost else None
    if as_json:
        data = plan_data(found, cost)
        print(json.dumps({**data, "program": text} if program else data, indent=2, ensure_ascii=False))
    else:
        print(plan_text(found, cost))


def _print_messages(found: ClusterPlan, source: list[str], block: int, endings: EpochEndings, *, as_json: bool) -> None:
    """Print how many messages of each kind there would be: for each epoch, and for all rows if there are some."""
    from cumulus.cluster.planning.message_counts import count_messages, counted_at_most, messages_of_epoch
    from cumulus.epochs.sources import sources_from

    per_epoch = messages_of_epoch(found, endings)
    head = f"{found.mode.value}, {found.nodes} nodes"
    told: dict[str, Any] = {}
    if source:
        if not found.division.spread.maps:
            raise UsageError("nothing is spread, so rows make no node send another one anything", hint=_NO_ROWS)
        counted, epochs = count_messages(found, sources_from(source, found.program), block)
        told = {"rows": counted.rows, "blocks": counted.blocks, "epochs": epochs, "of_blocks": counted.counts}
        head = f"{head}: {counted.rows:,} rows in {counted.blocks:,} blocks, {epochs} epochs"
    if as_json:
        print(json.dumps({**told, "of_an_epoch": per_epoch}, indent=2))
        return
    print(head)
    for kind, count in sorted(told.get("of_blocks", {}).items()):
        most = "at most " if kind in counted_at_most(found) else ""
        print(f"  {kind:<14} {most}{count:>10,}   {count / max(told['blocks'], 1):.2f} a block")
    print("for each epoch")
    for kind, count in sorted(per_epoch.items()):
        print(f"  {kind:<14} {count:>10,}")
