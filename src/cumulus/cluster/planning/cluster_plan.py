"""The plan of a cluster: all that follows from a program, numbers of machines and what is known of the tables.

The gated part of a program is computed in buckets, one on each node, or in one. The gate is what the other hosts of
epochs run. Several buckets must check what one checks, and must never wait for each other's votes on a deletion: the
epoch has an end of its own already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.node_programs.elided_program import elided_program
from cumulus.cluster.node_programs.four_logs_program import four_logs_program
from cumulus.cluster.node_programs.program import Homes, NodeProgram, node_program
from cumulus.cluster.node_programs.target_program import target_program
from cumulus.cluster.placement.correspondence import corresponding, place_of_any_row
from cumulus.cluster.placement.cuts import grid_asked_for
from cumulus.cluster.placement.home_costs import estimated_rows
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.regions import Regions
from cumulus.cluster.placement.slots import SlotTable
from cumulus.cluster.placement.statement_placement import choose_homes
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions
from cumulus.cluster.planning.epoch_routes import EpochRoutes, epoch_routes
from cumulus.cluster.planning.mode_options import ModeOptions, options_of
from cumulus.cluster.planning.table_assignment import (
    Checks,
    TableAssignment,
    assign_tables,
    checks_of,
    judged_program,
    splits_asked_for,
)
from cumulus.cluster.spread import Division, divide
from cumulus.epochs.layouts import circle_text, polled_tables, unchecked_keys, undefined_maps
from cumulus.epochs.output.parts import maps_of_cubes
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import LayoutError, UsageError
from cumulus.explain.layout.choice import choose_layout
from cumulus.explain.layout.co_partitioning import Partitioned, partition_text
from cumulus.explain.sizes import Statistics
from cumulus.m3.dataflow import cycles, depths
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the statements of a relation at one home add to a map, and where it goes.

    Parameters
    ----------
    sets
        The replica sets of the map, and for each whether it lies on the node where it is computed.
    """

    relation: str
    home: str | None
    map: str
    sets: Mapping[Regions, bool]


@dataclass(frozen=True)
class ClusterPlan:
    """How a program runs on a cluster.

    Parameters
    ----------
    program
        All of it.
    division
        What is spread and what is gated.
    layout
        Of the spread part, with its homes.
    nodes_program
        What every node runs.
    gate
        Where the gated part is; None if nothing is gated.
    tables
        Which switch takes which.
    options
        What the mode does otherwise.
    central
        What target aggregation in the order of one switch does otherwise.
    """

    program: Program
    mode: Mode
    division: Division
    layout: ClusterLayout
    nodes_program: NodeProgram
    gate: GatePlan | None
    tables: TableAssignment
    options: ModeOptions = field(default_factory=ModeOptions)
    central: CentralOptions = DEFAULT_CENTRAL

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.layout.nodes

    def with_slots(self, slots: SlotTable) -> ClusterPlan:
        """Return the plan of a cluster without cuts whose keys lie by other slots; nodes run the same program."""
        own, has_replicas = self.layout, RULES[self.mode].has_replicas
        layout = ClusterLayout(own.program, own.homes, own.nodes, has_replicas=has_replicas, slots=slots)
        return replace(self, layout=layout)

    @cached_property
    def depths(self) -> int:
        """How many depths the graph of the spread maps has; 1 where maps feed each other in a circle."""
        return 1 if self.is_cyclic else 1 + max(self.depth_of.values(), default=-1)

    @cached_property
    def depth_of(self) -> Mapping[str, int]:
        """Spread map → its depth; 0 for all where maps feed each other in a circle."""
        spread = self.division.spread
        return dict.fromkeys((each.name for each in spread.maps), 0) if self.is_cyclic else depths(spread)

    def patience_with(self, maps: Iterable[str]) -> int:
        """Return for how many ticks what reads some maps waits for what has earlier versions.

        Deltas of deeper maps take longer: they wait for others themselves.
        """
        ticks = self.options.ticks(self.options.patience_ms)
        return ticks * max((1 + self.depth_of[name] for name in maps), default=0)

    @cached_property
    def is_cyclic(self) -> bool:
        """Whether spread maps feed each other in a circle."""
        return bool(cycles(self.division.spread))

    @property
    def has_query_marks(self) -> bool:
        """Whether nodes can tell each other how far they are within an epoch (`cumulus.cluster.clients.held_queries`).

        They cannot where maps feed each other in a circle, nor where a node hears of blocks from other nodes.
        """
        return not (self.is_cyclic or self.central.has_tree or self.options.elide_put)

    @cached_property
    def epoch_routes(self) -> EpochRoutes:
        """Who tells whom how far an epoch is."""
        return epoch_routes(self)

    @cached_property
    def checks(self) -> Checks:
        """What the switches check."""
        return checks_of(self.program, self.tables)

    @cached_property
    def judged(self) -> Program:
        """The program without the references that nobody checks, as its tables are split."""
        return judged_program(self.program, self.tables.splits)

    @cached_property
    def gated(self) -> Program:
        """What a gate runs: the gated part, without the same references."""
        return judged_program(self.division.gated, self.tables.splits)

    @cached_property
    def maps_by_order(self) -> tuple[str, ...]:
        """The spread maps that have no definition: they follow the order of events."""
        return tuple(undefined_maps(replace(self.division.spread, kept=self.program.kept)))

    @cached_property
    def spread_parts(self) -> tuple[str, ...]:
        """The maps of cubes whose entries are written by the nodes that own them; gates write the others."""
        gated = maps_of_cubes(self.division.gated)
        return tuple(name for name in maps_of_cubes(self.division.spread) if name not in gated)

    @cached_property
    def homes(self) -> Mapping[tuple[str, str | None], tuple[str, ...]]:
        """Relation and home column → the maps to which its statements there add."""
        found: dict[tuple[str, str | None], dict[str, None]] = {}
        for each in self.crossings:
            found.setdefault((each.relation, each.home), {})[each.map] = None
        return {place: tuple(maps) for place, maps in found.items()}

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """What is added where, in the order of relations and homes."""
        found: dict[tuple[str, str | None, str], dict[Regions, bool]] = {}
        for each in self.layout.additions():
            home, name = place_of_any_row(each.home.place), each.flow.writes.map
            sets = found.setdefault((each.flow.relation, each.home.label, name), {})
            for regions, target in each.targets:
                pairs = corresponding(home, place_of_any_row(target))
                sets[regions] = sets.get(regions, True) and all(sender == receiver for sender, receiver in pairs)
        order = [relation.name for relation in self.layout.program.relations]
        placed = sorted(found.items(), key=lambda item: order.index(item[0][0]))
        return tuple(Crossing(*place, sets) for place, sets in placed)


def plan_cluster(
    program: Program,
    nodes: int,
    switches: int = 1,
    mode: Mode = Mode.EVENTUAL,
    statistics: Statistics | None = None,
    hints: Mapping[str, str] | None = None,
    homes: Homes | None = None,
    cuts: Sequence[str] = (),
    options: Sequence[str] = (),
    slots: SlotTable | None = None,
    central: CentralOptions = DEFAULT_CENTRAL,
    splits: Sequence[str] = (),
) -> ClusterPlan:
    """Return the plan of a program for a cluster.

    Parameters
    ----------
    program
        Compiled without RELY and without enforced keys.
    hints
        Relation → the home of its statements (`cumulus.cluster.placement.statement_placement.homes_asked_for`).
    homes
        Of all statements of the spread part, where a cluster has begun with them; nothing is chosen then.
    cuts
        How maps are cut into regions (`cumulus.cluster.placement.cuts`); by the hash of one key, if not given.
    options
        What the mode does otherwise (`cumulus.cluster.planning.mode_options`).
    slots
        The node of each slot of keys; None: by their hash modulo the number of nodes.
    central
        How blocks reach nodes, and when deltas are folded, in target aggregation by one switch.
    splits
        Tables that all switches share (`cumulus.cluster.planning.table_assignment`), as the user has written it.

    Raises
    ------
    UsageError
        If a home is asked for where nothing is computed, the mode needs one switch, or does not take an option or
        choice, or a table cannot be split so.
    LayoutError
        If maps feed each other in a circle, and the mode does not take that, or they are gated.
    """
    rules, chosen = RULES[mode], options_of(mode, options)
    central.require_mode(mode)
    if rules.needs_one_switch and switches > 1:
        raise UsageError(
            f"--mode {mode} has one switch, which gives all rows their order, and {switches} are asked for",
            hint="Take --switches 1, or --mode eventual, which takes any number.",
        )
    split = splits_asked_for(program, splits, switches, mode)
    known = statistics or Statistics()
    takes_circles = rules.takes_circles and not chosen.elide_push and not chosen.per_depth
    division = divide(program, circles=takes_circles) if rules.is_spread else gate_all(program)
    if not division.spread.maps and not division.gated.maps:  # nobody asks for anything, but rows are still checked
        division = gate_all(program, "There are no views.")
    _refuse_circles(division, " --option ".join((f"--mode {mode}", *options)), takes_circles=takes_circles)
    spread = division.spread
    _require_spread(spread, mode, hints or {}, cuts)
    homes = choose_homes(spread, known, hints) if homes is None else homes
    layout = ClusterLayout(
        spread,
        homes,
        nodes,
        has_replicas=rules.has_replicas,
        grid=grid_asked_for(spread, cuts, nodes),
        slots=slots,
    )
    _require_homes(layout, hints or {})
    if rules.has_replicas:
        made = node_program(spread, {at: home.label for at, home in layout.places.items()}, corrects=rules.corrects)
    else:
        correcting = four_logs_program
        if chosen.elide_push:
            correcting = partial(elided_program, looks_ahead=chosen.look_ahead)
        made = correcting(spread) if rules.corrects else target_program(spread)
    rows = estimated_rows(program, known)
    gate = None
    if division.gated.maps or not spread.maps:
        gate = plan_gate(judged_program(division.gated, split), nodes, rows)
    return ClusterPlan(
        program,
        mode,
        division,
        layout,
        made,
        gate,
        assign_tables(program, switches, rows, split),
        chosen,
        central,
    )


def _require_spread(spread: Program, mode: Mode, hints: Mapping[str, str], cuts: Sequence[str]) -> None:
    """Require that there is something spread of which homes and cuts are asked for; UsageError if there is not."""
    for table in hints:
        if not any(trigger.relation == table for trigger in spread.triggers):
            raise UsageError(
                f"a home for {table}, but no statement of it is spread",
                hint=f"Leave out --home {table}.…; what is gated has a layout of its own.",
            )
    if cuts and not RULES[mode].is_spread:
        raise UsageError(
            f"--cut says where nodes keep maps, and in --mode {mode} they keep none",
            hint="Leave it out, or take another mode: --mode eventual.",
        )


def _require_homes(layout: ClusterLayout, hints: Mapping[str, str]) -> None:
    """Require that statements are computed by the columns that are asked for; UsageError if cuts say otherwise."""
    for each in layout.additions():
        column = hints.get(each.flow.relation)
        by = [name for name, _ in each.home.place.columns]
        if column is not None and column not in by:
            table = each.flow.relation
            raise UsageError(
                f"--home {table}.{column}: by the cuts rows of {table} are computed by {each.home.label}",
                hint=f"Leave out --home {table}.{column}, or cut {table}.{column}.",
            )


def _refuse_circles(division: Division, asked: str, *, takes_circles: bool) -> None:
    """Refuse maps that feed each other in a circle where they would be gone through by depth; LayoutError then."""
    circle = circle_text(division.gated)
    if circle:
        told = f"the maps feed each other in a circle, which {asked} cannot do in rounds: {circle}."
        warehouse = "`cumulus.Warehouse`, which goes event by event."
        if takes_circles:
            why = division.maps[circle.partition(" ")[0]]
            raise LayoutError(f"{told} {why}", hint=f"Give the program to {warehouse}")
        raise LayoutError(told, hint=f"Take --mode {Mode.EVENTUAL}, or {warehouse}")


def gate_all(program: Program, why: str = "All is gated, as asked for.") -> Division:
    """Return the division in which nothing is spread."""
    return Division(
        replace(program, maps=(), views=(), triggers=(), kept=(), functions=(), cubes=()),
        program,
        (),
        {definition.name: why for definition in program.maps},
        {view.name: why for view in program.views},
    )


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The buckets of the gate.

    Parameters
    ----------
    nodes
        Of each bucket the node that it is on.
    reasons
        Table that every bucket has whole → why it is not partitioned.
    """

    buckets: BucketPlan
    nodes: tuple[int, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


def plan_gate(gated: Program, nodes: int, rows: Mapping[str, int]) -> GatePlan:
    """Return where a gated program is computed.

    Parameters
    ----------
    rows
        Of the tables, that no large one is put on every node
        (`cumulus.cluster.placement.home_costs.estimated_rows`).
    """
    # Node 0 has the maps without keys, and the others have equal shares.
    last = nodes - 1
    if nodes == 1:
        return GatePlan(BucketPlan(why="one bucket, as there is one node"), (last,))

    def objection(partitioned: Partitioned) -> str:
        lost, voted = unchecked_keys(gated, partitioned), polled_tables(gated, partitioned)
        if lost:
            return f"nobody would check {lost[0]}"
        return f"buckets would vote on deletions from {voted[0]}" if voted else ""

    found = choose_layout(gated, Statistics(rows), objection=objection, buckets=nodes)
    if found.one_bucket:
        why = f"one bucket on node {last}, since no table can be partitioned"
        return GatePlan(BucketPlan(why=why), (last,), found.reasons)
    split = partition_text(found.partitioned)
    everywhere = f"; in all of them {', '.join(found.reasons)}" if found.reasons else ""
    why = f"{nodes} buckets, one on each node: {split}{everywhere}"
    return GatePlan(BucketPlan(nodes, found.partitioned, why), tuple(range(nodes)), found.reasons)
