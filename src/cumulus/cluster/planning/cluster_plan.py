"""The plan of a cluster: all that follows from a program, numbers of machines and what is known of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.segments import Reach, ReplicaSet, axis_of, flow_of
from cumulus.cluster.placement.statement_placement import choose_homes, estimated_rows
from cumulus.cluster.planning.gate_plan import GatePlan, plan_gate
from cumulus.cluster.planning.table_assignment import Checks, TableAssignment, assign_tables, checks_of
from cumulus.cluster.program import Homes, NodeProgram, node_program
from cumulus.cluster.spread import Division, divide
from cumulus.epochs.layouts import undefined_maps
from cumulus.epochs.output.parts import maps_of_cubes
from cumulus.errors import UsageError
from cumulus.explain.sizes import Statistics
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
    sets: Mapping[ReplicaSet, bool]


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
    """

    program: Program
    mode: Mode
    division: Division
    layout: ClusterLayout
    nodes_program: NodeProgram
    gate: GatePlan | None
    tables: TableAssignment

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.layout.nodes

    @cached_property
    def checks(self) -> Checks:
        """What the switches check."""
        return checks_of(self.program, self.tables)

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
        found: dict[tuple[str, str | None, str], dict[ReplicaSet, bool]] = {}
        for relation, home, name, local in self._added():
            sets = found.setdefault((relation, home, name), dict.fromkeys(self.layout.sets[name], True))
            for each in sets:
                sets[each] = sets[each] and each in local
        order = [relation.name for relation in self.layout.program.relations]
        placed = sorted(found.items(), key=lambda item: order.index(item[0][0]))
        return tuple(Crossing(*place, sets) for place, sets in placed)

    def _added(self) -> Iterator[tuple[str, str | None, str, set[ReplicaSet]]]:
        """Yield for each statement its relation and home, its map, and which replica sets of that are where it is."""
        program = self.layout.program
        for (index, place), home in self.layout.homes.items():
            trigger = program.triggers[index]
            flow = flow_of(program, trigger, trigger.statements[place])
            name = flow.writes.map
            axis = None if home is None else axis_of(program, flow.relation, flow.writes, home)
            local = {
                each
                for each in self.layout.sets[name]
                if self.nodes == 1
                or (each.reach is Reach.KEY and each.axis == axis)
                or (each.reach is Reach.FIRST and home is None)
            }
            yield flow.relation, home, name, local


def plan_cluster(
    program: Program,
    nodes: int,
    switches: int = 1,
    mode: Mode = Mode.EVENTUAL,
    statistics: Statistics | None = None,
    hints: Mapping[str, str] | None = None,
    homes: Homes | None = None,
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

    Raises
    ------
    UsageError
        If a home is asked for where nothing is computed.
    """
    known = statistics or Statistics()
    division = divide(program) if mode is Mode.EVENTUAL else gate_all(program)
    if not division.spread.maps and not division.gated.maps:  # nobody asks for anything, but rows are still checked
        division = gate_all(program, "There are no views.")
    spread = division.spread
    for table in hints or {}:
        if not any(trigger.relation == table for trigger in spread.triggers):
            raise UsageError(
                f"a home for {table}, but no statement of it is spread",
                hint=f"Leave out --home {table}.…; what is gated has a layout of its own.",
            )
    homes = choose_homes(spread, known, hints) if homes is None else homes
    rows = estimated_rows(program, known)
    return ClusterPlan(
        program,
        mode,
        division,
        ClusterLayout(spread, homes, nodes),
        node_program(spread, homes),
        None if spread.maps and not division.gated.maps else plan_gate(division.gated, nodes, rows),
        assign_tables(program, switches, rows),
    )


def gate_all(program: Program, why: str = "All is gated, as asked for.") -> Division:
    """Return the division in which nothing is spread."""
    return Division(
        replace(program, maps=(), views=(), triggers=(), kept=(), functions=(), cubes=()),
        program,
        (),
        {definition.name: why for definition in program.maps},
        {view.name: why for view in program.views},
    )
