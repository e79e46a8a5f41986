"""A cluster over folders in a virtual world: random programs and files, all faults, and the embedded host as the judge.

The machines are those that run in processes of their own, and so are their tasks: files are read, views written,
epochs committed, in a folder that is gone afterwards. Their logs are the world's. When a machine ends, all are started
anew, as `cumulus.cluster.processes.run` does it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.cluster.messages import node_name, switch_name
from cumulus.cluster.mode import Mode
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.placement.table_shares import TableShare
from cumulus.cluster.planning.central_options import CentralOptions
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import fed_by, machine_names
from cumulus.cluster.standby.standby import Standby
from cumulus.cluster.switch import Switch
from cumulus.engine.engines import make_engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.committed.manifest import committed_epochs, newest_epoch, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from cumulus.machine import Machine, Name
from cumulus.scalars.function_modules import functions_in
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus_lab.experiments.cluster_breaks import (
    BREAKS,
    BROKEN_BY,
    BROKEN_BY_ONE,
    BROKEN_IN,
    BROKEN_IN_GRIDS,
    BROKEN_ON_HOSTS,
    BROKEN_WITH,
    DEALT_TWICE,
    Breaking,
    as_it_is,
)
from cumulus_lab.experiments.cluster_clients import SendingClient, check_tokens, write_parts
from cumulus_lab.experiments.cluster_counts import ClusterHistory, CountedMachine, machine_in
from cumulus_lab.experiments.cluster_growth import GrownHome, Growth, chosen_growth
from cumulus_lab.experiments.cluster_hosts import VirtualHosts
from cumulus_lab.experiments.cluster_ledger import Ledger
from cumulus_lab.experiments.cluster_modes import (
    chosen_central,
    chosen_endings,
    chosen_mode,
    chosen_options,
    chosen_placement,
    chosen_splits,
    planned,
)
from cumulus_lab.experiments.cluster_programs import EXTREMES, PROGRAMS, REFUSED, functions_of, program_named
from cumulus_lab.experiments.cluster_queries import ReadingClient, ReadingSender, SentRows
from cumulus_lab.experiments.cluster_rows import read_lines, write_random_files
from cumulus_lab.experiments.cluster_starter import Starter
from cumulus_lab.experiments.cluster_states import check_nodes
from cumulus_lab.experiments.epoch_breaks import BROKEN_ENDINGS
from cumulus_lab.experiments.equal_outputs import difference, difference_in_parts
from cumulus_lab.experiments.virtual_cluster import WIRE, VirtualCluster
from cumulus_lab.simulation import (
    BackPressure,
    Choices,
    ChoiceStream,
    Conditions,
    Reports,
    Scenario,
    VirtualLog,
    World,
    as_it_should_be,
    faults_named,
)

NODES = (1, 2, 3, 4, 2, 3, 2, 3, 2, 3, 5, 6, 7, 8)
SWITCHES = (1, 2, 3, 4, 2, 2, 3)
CLIENTS = (0, 0, 0, 1, 2)
"""How many there may be, as often as they are here."""
ORDERS = ("clock", "switch")
ENGINES = ("interpreter", "native")
"""What machines compute with, each in half of the cases; the judge is interpreted."""
MOST_READS = 12
"""Maps that are read through a switch, where there is only one."""
EVERY_MS = 100
"""How often it is looked for rows of clients, and for files."""
EXTREME_PROGRAMS = 1 / 12
"""The share of programs whose columns are of the types that have the most special values."""
MOST_PARTS = 10_000
"""More than the calls of clients: their judge has an epoch for each, so no row may wait for a number of epochs."""
STANDBYS = 1 / 4
"""The share of clusters on several hosts, with standbys."""
CRASHES = 1 / 60
"""How often a machine crashes, per step: a case has a few hundred."""
REFUSALS = 1 / 50
"""The share of programs that no cluster takes."""
IN_MEMORY = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)
"""Where folders are: what a crash does to a disk is simulated, and a real one would only be slow."""


class Case:
    """A cluster and its judge, over the same random files, and with rows of clients or without.

    Parameters
    ----------
    choices
        Decide the program, its files, the shape of the cluster, and what clients send.
    breaking
        Makes a machine of which a rule is broken of one as it should be.
    nodes, switches
        How many; 0 lets choices say.
    mode, has_hosts
        None lets choices say; with hosts there are standbys.
    wanted, central
        The options of the mode, and how blocks reach nodes; None lets choices say.
    endings
        How epochs end, as far as choices do not say.
    is_cut, is_grown
        Whether maps are cut if they can be, and whether it had another shape before; else choices say.
    is_dealt_twice
        Whether a rule of growing is broken (`cluster_growth`).
    """

    def __init__(
        self,
        choices: Choices,
        breaking: Breaking,
        nodes: int = 0,
        switches: int = 0,
        mode: Mode | None = None,
        has_hosts: bool | None = None,
        wanted: tuple[str, ...] | None = None,
        central: CentralOptions | None = None,
        endings: Mapping[str, str] | None = None,
        *,
        is_cut: bool = False,
        is_grown: bool = False,
        is_dealt_twice: bool = False,
    ) -> None:
        stream = choices.stream("cluster")
        self._folder = tempfile.TemporaryDirectory(prefix="cumulus-seed-", dir=IN_MEMORY)
        root = Path(self._folder.name)
        self._name = stream.one(PROGRAMS)
        extremes = choices.stream("extremes")  # apart, as what is older stays so as it was
        if extremes.chance(EXTREME_PROGRAMS):
            self._name = extremes.one(list(EXTREMES))
        chosen = chosen_mode(choices, stream)
        mode = mode or chosen
        shape = nodes or stream.one(NODES), switches or stream.one(SWITCHES)
        options = chosen_options(choices, mode) if wanted is None else wanted
        cuts, slots = chosen_placement(choices, program_named(self._name), shape[0], mode, is_cut=is_cut)
        central = central or chosen_central(choices, mode)
        splits = chosen_splits(choices, program_named(self._name), shape[1], mode)
        self._plan = planned(self._name, *shape, mode, options, cuts, slots, central, splits)
        self._clients = stream.one(CLIENTS)
        self._last = 2 + stream.below(3) if self._clients else 0
        self._root, self._out = root, root / "out"
        rows = choices.stream("files"), choices.stream("extreme values")
        write_random_files(self._plan.program, *rows, root / "in", most_epochs=4, most_rows=5)
        program = self._plan.program
        _, self._sources = match_sources_to_tables(program, sources_from([str(root / "in")], program))
        self._unread = stream.one([0, 0, 4_000, 400])
        drawn = {"options": options, "cuts": cuts, "slots": slots, "splits": splits, **central.plain()}
        drawn |= {**chosen_endings(choices).plain(), **(endings or {})}
        settings = self._settings = self._chosen_settings(stream, extremes, drawn)
        self._starter: Starter | None = None
        self._incarnations: list[int] = []
        self._breaking = breaking
        self._reports, self._history = Reports(), ClusterHistory()
        self._reports(f"{settings.engine} engine")
        self._reports(f"commits by {settings.commit}")
        self._reports(f"{settings.transitions} transitions")
        self._report_grid()
        self._ledger = Ledger(frozenset(dict(program.kept)) | {each.name for each in program.relations if each.static})
        self._disks: dict[Name, VirtualLog] = {}
        growth = None
        if not has_hosts:
            growth = chosen_growth(choices, self._name, mode, self._plan, has_cuts=bool(cuts), is_grown=is_grown)
        if growth is not None:
            self._grow(GrownHome(settings, self._plan, growth, is_dealt_twice=is_dealt_twice), growth, choices)
            has_hosts, settings = False, self._settings
        self._gated = self._gated_nodes() if choices.stream("resets").chance(2 / 3) else None
        self._hosts = self._hosts_of(choices.stream("hosts"), has_hosts)
        self._cluster = VirtualCluster(
            settings, self._plan, EVERY_MS if self._clients else None, self._last, self._reports, self._hosts
        )
        self._senders = self._clients_of(choices)
        self._sent = SentRows(self._plan)
        # Rows that a cluster of another shape has sent are none that a reader knows of.
        self._guests = {**self._senders} if growth else self._guests_of(choices.stream("queries"))

    def _grow(self, home: GrownHome, growth: Growth, choices: Choices) -> None:
        """Let the home have another shape for its first epochs."""
        before = ClusterHistory()

        def watched(name: Name, machine: Machine, plan: ClusterPlan) -> Machine:
            return CountedMachine(name, machine, self._reports, before, len(self._incarnations), self._ledger, plan)

        home.grow(choices, self._incarnations, watched, self._reports)
        self._settings, self._plan = home.settings, home.plan
        self._disks |= home.disks
        last = newest_epoch(self._out) or 0
        self._history.follow(before, last, self._plan.tables.switches)
        if self._last:
            self._last += last

    def _report_grid(self) -> None:
        layout = self._plan.layout
        if any(home.place.loops for home in layout.places.values()):
            self._reports("rows computed part by part")
        if any(each.copied and each != layout.everywhere for sets in layout.sets.values() for each in sets):
            self._reports("copies for parts of a grid")

    def _chosen_settings(
        self, stream: ChoiceStream, extremes: ChoiceStream, chosen: Mapping[str, Any]
    ) -> ClusterSettings:
        return ClusterSettings(
            str(self._out),
            str(self._root / "home"),
            "simulated",
            self._name,
            self._plan.nodes,
            self._plan.tables.switches,
            self._plan.mode.value,
            (),
            self._sources,
            order=stream.one(ORDERS),
            block_rows=stream.one([10_000, 1, 2]),
            snapshot_bytes=stream.one([1 << 25, 0, 2_000]),
            open_bytes=stream.one([1 << 26, 3_000]),
            late_epochs=MOST_PARTS if self._clients else LATE_EPOCHS,
            keep=MOST_PARTS,
            engine=extremes.one(ENGINES),
            functions=functions_of(self._name),
            **chosen,
        )

    def _gated_nodes(self) -> frozenset[Name]:
        return frozenset(map(node_name, () if self._plan.gate is None else self._plan.gate.nodes))

    def _hosts_of(self, stream: ChoiceStream, has_hosts: bool | None) -> VirtualHosts | None:
        """Return the hosts of its machines, if there are to be some."""
        if not (has_hosts or (has_hosts is None and stream.chance(STANDBYS))):
            return None
        names, home = machine_names(self._settings), Path(self._settings.home)
        return VirtualHosts(stream, names, home, self._disks, self._reports)

    def _clients_of(self, choices: Choices) -> dict[Name, SendingClient]:
        """Return what sends rows."""
        return {
            f"client{at}": SendingClient(
                self._relations(),
                choices.stream(f"client {at}"),
                choices.stream(f"extreme values of client {at}"),
                self._last,
                self._reports,
                {each.name: self._shares(each) for each in self._plan.program.relations},
            )
            for at in range(self._clients)
        }

    def _guests_of(self, stream: ChoiceStream) -> dict[Name, SendingClient | ReadingSender | ReadingClient]:
        """Return the clients: of the only switch one of them reads, too, if there is something to read."""
        found: dict[Name, SendingClient | ReadingSender | ReadingClient] = {**self._senders}
        if self._plan.tables.switches == 1 and self._plan.division.spread.maps:
            reads = stream.below(MOST_READS + 1)
            reader = ReadingClient(self._plan, stream, self._sent, reads, self._reports)
            first = next(iter(self._senders), "reader")
            found[first] = ReadingSender(self._senders[first], reader) if self._senders else reader
        return found

    def _relations(self) -> dict[Name, list[Relation]]:
        """Return the tables to which clients may send, by switch."""
        found: dict[Name, list[Relation]] = {}
        for relation in self._plan.program.relations:
            if not relation.static:
                for number in self._plan.tables.switches_of(relation.name):
                    found.setdefault(switch_name(number), []).append(relation)
        return found

    def _shares(self, relation: Relation) -> dict[Name, TableShare]:
        """Return the shares of switches in a table, none if it is not split."""
        tables = self._plan.tables
        shares = {number: tables.share_of(relation.name, number) for number in tables.switches_of(relation.name)}
        return {switch_name(number): share for number, share in shares.items() if share is not None}

    def scenario(self) -> Scenario:
        """Return what is run."""
        names = self._cluster.names
        standbys = [] if self._hosts is None else self._hosts.standbys  # first, so that they let go of copies in time
        return Scenario(
            dict.fromkeys([SUPERVISOR, *standbys, *names, *self._guests], self._made),
            WIRE,
            perform=self._cluster.perform,
            logs=frozenset(names),
            supervisor=SUPERVISOR,
            clients=frozenset(self._guests),
            may_crash=frozenset([SUPERVISOR, *standbys, *names]),
            at_rest={"same as embedded": self._judge, "nodes at rest": self._check_nodes},
            reports=self._reports,
            pressure=BackPressure(self._unread, {name: fed_by(self._settings, name) for name in names}),
            disks=self._disks,
        )

    def _made(self, name: Name, life: int) -> Machine:
        if name in self._guests:
            return self._guests[name]
        if name == SUPERVISOR:
            waits = partial(any_waits, list(self._guests.values()))
            committed = partial(newest_epoch, self._out)
            members = list(self._cluster.names)
            if self._hosts is not None:
                self._hosts.begin()
                members += self._hosts.standbys
            self._starter = Starter(members, self._incarnations, waits, committed, self._gated, self._hosts)
            return self._starter
        made = self._cluster.made(name)
        if isinstance(made, Standby):
            return made
        machine = CountedMachine(
            name, made, self._reports, self._history, len(self._incarnations), self._ledger, self._plan
        )
        inner = machine_in(made)
        if isinstance(inner, Switch) and inner.intake is not None:
            self._sent.watch(inner, newest_epoch(self._out) or 0)
        return self._breaking(name, machine, self._plan.layout)

    def _judge(self, world: World) -> None:
        """All is read, and each epoch is as the embedded host leaves it."""
        assert self._starter is not None
        assert self._starter.is_done, "the cluster rests before all is read"
        sources, parts = self._sources, {}
        program = self._plan.judged
        if self._clients:
            senders = self._senders
            assert not any_waits(list(senders.values())), "a client waits for an answer"
            check_tokens(self._history, senders)
            parts = write_parts(program, self._root / "taken", sources, self._history, senders, self._last)
            sources = sources_from([str(self._root / "taken")], program)
        judged = self._root / "judged"
        settings: dict[str, Any] = {
            "make_engine": partial(make_engine, "interpreter"),
            "functions": functions_in(functions_of(self._name)),
            "late_epochs": self._settings.late_epochs,
            "keep": self._settings.keep,
        }
        with EmbeddedRun(program, sources, judged, **settings) as judge:
            for epoch in judge.steps():
                self._reports("row quarantined", times=epoch.counts.get("quarantined", 0))
                self._reports("view error", times=sum(epoch.view_errors.values()))
        self._check_ledger()
        found = difference_in_parts(judged, parts, self._out) if parts else difference(judged, self._out)
        assert not found, found
        epochs = committed_epochs(self._out)
        self._reports("epoch", times=len(epochs))
        failing = sum(bool(read_manifest(self._out, epoch).errors) for epoch in epochs)
        self._reports("epoch with a failing view", times=failing)

    def _check_ledger(self) -> None:
        """No row that was acknowledged is missing in any epoch."""
        paths = {source.relation: Path(source.path) for source in self._sources}
        acknowledged: Counter[int] = Counter()
        truncating: set[int] = set()
        for epoch, files in self._history.turns.items():
            for path in (paths[table] / name for table, names in files.items() for name in names):
                lines = read_lines(path)
                acknowledged[epoch] += len(lines)
                truncating |= {epoch for line in lines if line["op"] == "truncate"}
        for (switch, client, number), taken in self._history.taken.items():
            acknowledged[taken.epoch] += len(self._senders[client].lines[switch, number][1])
        self._ledger.check(self._out, acknowledged, frozenset(truncating))

    def _check_nodes(self, world: World) -> None:
        """What nodes have is what they should have when nothing is on its way."""
        machines = [world.lives[name].machine for name in self._cluster.names if name in world.lives]
        if len(machines) < len(self._cluster.names):
            return  # one has ended when all was read, and nobody has started it again
        nodes = [machine_in(as_it_should_be(each)) for each in machines]
        check_nodes([each for each in nodes if isinstance(each, ClusterNode)], self._plan)


def any_waits(clients: Sequence[SendingClient | ReadingSender | ReadingClient]) -> bool:
    """Whether a client waits for an answer."""
    return any(each.waits for each in clients)


def cluster_case(
    choices: Choices,
    broken: str = "",
    nodes: int = 0,
    switches: int = 0,
    mode: Mode | None = None,
    has_hosts: bool | None = None,
    options: tuple[str, ...] | None = None,
    central: CentralOptions | None = None,
    endings: Mapping[str, str] | None = None,
    *,
    is_grown: bool = False,
) -> Scenario:
    """Return a random cluster with random files; see `Case`."""
    stream = choices.stream("program")
    if stream.chance(REFUSALS):
        return refusal(stream.one(list(REFUSED)))
    if broken:
        mode = mode or BROKEN_IN.get(broken, Mode.EVENTUAL)
        central = central or BROKEN_BY.get(broken)
        has_hosts = has_hosts or broken in BROKEN_ON_HOSTS
        switches = switches or int(broken in BROKEN_BY_ONE)
        options = options or BROKEN_WITH.get(broken)
        endings = endings or BROKEN_ENDINGS.get(broken)
    breaking = BREAKS.get(broken, as_it_is)
    shaped: dict[str, bool] = {"is_cut": broken in BROKEN_IN_GRIDS, "is_dealt_twice": broken == DEALT_TWICE}
    shaped["is_grown"] = is_grown or broken == DEALT_TWICE
    return Case(choices, breaking, nodes, switches, mode, has_hosts, options, central, endings, **shaped).scenario()


def refusal(name: str) -> Scenario:
    """Return a scenario in which nothing happens but that a program is refused."""
    reports = Reports()

    def check(world: World) -> None:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            out = Path(folder) / "out"
            try:
                Home(program_named(name), (), out, None, mode=Mode.EVENTUAL, nodes=2, switches=1)
            except LayoutError as refused:
                told = refused
            else:
                raise AssertionError(f"the program {name!r} is not refused")
            assert told.hint, told
            assert not out.exists(), f"{out} was made for a program that is refused"
        reports("program refused")

    return Scenario({}, WIRE, at_rest={"refused": check}, reports=reports)


def cluster_conditions(faults: Sequence[str]) -> Conditions:
    """Return the conditions of a case: faults by name, crashes often enough for its few steps."""
    rates = faults_named(faults)
    return Conditions(faults={**rates, **({"crash": CRASHES} if "crash" in rates else {})}, most_steps=20_000)
