"""The folders of a cluster: what a run over folders finds there, and what it begins."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from cumulus.cluster.messages import switch_name
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.slots import SlotTable
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, central_options
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.planning.epoch_endings import DEFAULT_ENDINGS, epoch_endings
from cumulus.cluster.planning.mode_options import options_of
from cumulus.cluster.planning.order_of_events import require_order
from cumulus.cluster.planning.table_assignment import splits_asked_for
from cumulus.cluster.processes.cluster_settings import ClusterSettings, read_settings
from cumulus.durable.folders import check_output, lock_file, make_private
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.committed.program_text import write_program
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.layouts import circle_text, match_sources_to_tables, require_columns, undefined_maps
from cumulus.epochs.output.identity import Checkpoint
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import check_apart
from cumulus.errors import LockedError, MismatchError, StoreError, UsageError
from cumulus.m3.program import Program
from cumulus.machine import Name
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import given_functions, runnable

HOST = "cluster"
_ORPHANS_S = 30.0
"""How long the processes of a run that was killed may take to take notice, which they do between two steps."""


class Home:
    """The output folder of a cluster and the state of its machines, held by one process.

    Parameters
    ----------
    program
        Compiled without RELY and without enforced keys.
    settings
        Others of `ClusterSettings`; without `dispatch`, `arity` and `gc` a home goes on with its own.

    Raises
    ------
    MismatchError
        If what is there is of another program, host, or number of machines.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[FolderSource],
        out: Path,
        checkpoint: Path | None,
        *,
        mode: Mode,
        nodes: int,
        switches: int,
        functions: tuple[str, ...] = (),
        cuts: Sequence[str] = (),
        options: Sequence[str] = (),
        splits: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        check_output(out, "--out")
        runnable(program.functions, given_functions(functions_in(functions)))  # told before folders are made
        program, sources = match_sources_to_tables(require_columns(program), sources)
        shape: dict[str, Any] = {"cuts": tuple(cuts), "splits": tuple(splits)}
        _check_choices(mode, options, settings)
        splits_asked_for(program, splits, switches, mode)
        if undefined_maps(program) or circle_text(program):  # what no cluster can do is told before folders are made
            require_order(plan_cluster(program, nodes, switches, mode, **shape))
        place = (checkpoint or out / "checkpoint").absolute()
        check_output(place, "--checkpoint")
        check_apart(sources, out, place)
        settings |= (central := _central_of(place, mode, settings))
        _make_private(place)
        self._checkpoint = Checkpoint(place, HOST)
        try:
            _wait_for_orphans(place, out)
            before = read_settings(place)
            begun = {"nodes": nodes, "switches": switches, "mode": mode, **shape}
            plan = cache(partial(_plan_of_home, program, before, begun, tuple(options), central))
            # A program that has changed is told here: the homes of the one before would not fit it.
            identity = self._checkpoint.bind(program, lambda: buckets_of_plan(plan()))
            self.plan = plan()
            homes = tuple((*at, column) for at, column in self.plan.layout.homes.items())
            settings |= {**_kept_by(before, dict(settings.get("read_at", ())), out), **shape}
            self.settings = ClusterSettings(
                str(out.absolute()),
                str(place),
                identity.checkpoint,
                identity.program,
                nodes,
                switches,
                mode.value,
                homes,
                sources,
                functions=functions,
                options=tuple(options),
                **settings,
            )
            self.settings.write(before)
            resuming = any((place / "publisher").glob("log/*.log"))
            with_lock = Sink(out.absolute(), self.settings.checkpoint, self.settings.program, resuming=resuming)
            write_program(out.absolute(), program)
            newest = with_lock.newest()
            with_lock.close()  # the publisher's process takes it
            self.epoch = newest.epoch if newest else 0
            """The last committed one."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the folders free."""
        self._checkpoint.close()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plan_of_home(
    program: Program,
    before: ClusterSettings | None,
    begun: Mapping[str, Any],
    options: tuple[str, ...],
    central: Mapping[str, Any],
) -> ClusterPlan:
    """Return the plan of a home that has settings, or begins with what is given."""
    if before is not None:
        return plan_of(program, replace(before, options=options, **central))
    return plan_cluster(program, options=options, central=central_options(**central), **begun)


def _central_of(place: Path, mode: Mode, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return how blocks reach nodes and when deltas are folded: as given, else as the home has begun.

    Raises
    ------
    UsageError
        If there is no such choice, or the mode does not take it.
    """
    before = read_settings(place)
    wanted = given.get("dispatch", ""), given.get("arity"), given.get("gc", "")
    found = central_options(*wanted, DEFAULT_CENTRAL if before is None else before.central)
    if before is None or before.mode == mode:  # another mode is refused by what the home has begun with
        found.require_mode(mode)
    return found.plain()


def _kept_by(before: ClusterSettings | None, given: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Return the settings that only a resize changes, and where files are read."""
    layout = {} if before is None else {"layout": before.layout, "slots": before.slots}
    return {**layout, "read_at": _read_at(before, given, out)}


def _check_choices(mode: Mode, options: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise UsageError if there is nothing that is called as what is chosen."""
    options_of(mode, options)
    epoch_endings(**{name: settings[name] for name in DEFAULT_ENDINGS.plain() if name in settings})


def _read_at(before: ClusterSettings | None, given: Mapping[str, str], out: Path) -> tuple[tuple[str, str], ...]:
    """Return where files are read that are not at the host of the home: as given, else as the home has begun.

    Raises
    ------
    MismatchError
        If files of a table have been read elsewhere.
    """
    was = {} if before is None else dict(before.read_at)
    newest = newest_manifest(out)
    taken = {} if newest is None else newest.offsets
    for table, host in given.items():
        there = was.get(table, "")
        if host != there and taken.get(table, {}).get("count"):
            raise MismatchError(
                f"{out}: files of {table} were read at {there or 'the host of the home'}, and --read-at says "
                f"{host or 'the host of the home'}",
                hint="Leave it out: a home goes on where it was. Or start with new folders.",
            )
    return tuple(sorted((table, host) for table, host in {**was, **given}.items() if host))


def _make_private(place: Path) -> None:
    """Make the folder of the state: what clients have sent is in it, and the secret that lets them in."""
    try:
        make_private(place)
    except OSError as problem:
        raise StoreError(
            f"{place}: the checkpoint cannot be written: {problem.strerror}",
            hint="Give the right to write there, or choose another --out or --checkpoint.",
        ) from None


def plan_of(program: Program, settings: ClusterSettings) -> ClusterPlan:
    """Return the plan with which a cluster has begun."""
    homes = {(trigger, statement): column for trigger, statement, column in settings.homes}
    mode = Mode(settings.mode)
    return plan_cluster(
        program,
        settings.nodes,
        settings.switches,
        mode,
        homes=homes,
        cuts=settings.cuts,
        splits=settings.splits,
        options=settings.options,
        slots=SlotTable.of_runs(settings.slots) if settings.slots else None,
        central=settings.central,
    )


def _wait_for_orphans(place: Path, out: Path) -> None:
    """Wait until those have ended whose run was killed: it had the lock of the home, so nobody else has these.

    Raises
    ------
    LockedError
        If they do not end.
    """
    until = time.monotonic() + _ORPHANS_S
    logs = sorted((*place.glob("*/log/lock"), *place.glob("layout*/*/log/lock")))
    for path in filter(Path.exists, (*logs, out / ".lock") if logs else ()):
        while (lock := lock_file(path)) is None:
            if time.monotonic() > until:
                raise LockedError(
                    f"{path}: a process of a run that was killed has not ended in {_ORPHANS_S:g} s",
                    hint="Look for it (`fuser` tells who has the file), and end it.",
                )
            time.sleep(0.05)
        lock.close()


def buckets_of_plan(plan: ClusterPlan) -> BucketPlan:
    """Return the buckets that take rows in as one host would: those of the gate."""
    return BucketPlan() if plan.gate is None else plan.gate.buckets


def reader_hosts(settings: ClusterSettings, plan: ClusterPlan) -> dict[Name, str]:
    """Return the switches that read files, each with the host of these, as host:port; "" for the host of the home.

    Raises
    ------
    UsageError
        If one is to read on two hosts.
    """
    at = dict(settings.read_at)
    found: dict[Name, tuple[str, str]] = {}
    for source in settings.sources:
        table, host = source.relation, at.get(source.relation, "")
        switches = plan.tables.switches_of(table)
        if host and len(switches) > 1:
            raise UsageError(
                f"--read-at {host}={table}: all switches share {table}, and would read its files there",
                hint="Leave it out, or --split; the files are those of the host of the home then.",
            )
        for switch in map(switch_name, switches):
            other, there = found.setdefault(switch, (table, host))
            if there == host:
                continue
            away, why = (table, other) if host else (other, table)
            raise UsageError(
                f"--read-at {at[away]}={away}: {switch} reads {why}, too, at {at.get(why) or 'the host of the home'}",
                hint=f"Say the same of {why}; or give more --switches: tables that refer to each other stay together.",
            )
    return {switch: host for switch, (_, host) in found.items()}
