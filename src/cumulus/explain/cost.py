"""Cost classes: how the work of an event grows, read off the M3 program alone.

What counts is what a statement asks of the maps that it reads, wherever in its term: a look-up with every key known, an
end or a range on an ordered axis, a loop over a slice, a scan of all entries. A class names what the program asks for;
how fast a host answers is its own affair (today's interpreter answers ends and ranges by visiting the slice).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import total_ordering

from cumulus.algebra.scope import maps_of, outputs, variables_of
from cumulus.algebra.terms import (
    Compare,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    children,
)
from cumulus.explain.functional_dependencies import is_determined
from cumulus.m3.dataflow import reachable
from cumulus.m3.dataflow import reads as map_graph
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger, ViewDef


@total_ordering
class CostClass(Enum):
    """How the work of one event grows, from the best class to the worst.

    Examples
    --------
    >>> max(CostClass.SLICE, CostClass.CONSTANT).value
    'O(slice)'
    """

    CONSTANT = "O(1)"
    """Look-ups, with every key known."""
    LOGARITHMIC = "O(log n)"
    """Ends, and ranges of an ordered axis."""
    SLICE = "O(slice)"
    """A loop over the entries of a map that agree on some of its keys."""
    SCAN = "O(n)"
    """A loop over all entries of a map."""
    REEVALUATION = "re-evaluation"
    """The map is computed anew (`:=`)."""

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, CostClass):
            return NotImplemented
        return _RANKS[self] < _RANKS[other]

    def __str__(self) -> str:
        return self.value


Names = frozenset[str]
_RANKS = {each: rank for rank, each in enumerate(CostClass)}


@dataclass(frozen=True, slots=True)
class CostedRead:
    """One read of a map in a statement.

    Parameters
    ----------
    bound, free
        Names of the map's keys that are known when it is read, and of those that are not.
    condition
        The condition that is all that ties a scanned map to the event, as text; "" if there is none.
    nested
        The nested term that makes this a loop, as text: the one that holds the read, or on whose value it depends which
        entries count. "" for a plain join.
    is_inside
        The read stands inside a nested term: what it loops over is added up there.
    """

    map: str
    cost: CostClass
    bound: tuple[str, ...]
    free: tuple[str, ...]
    condition: str = ""
    nested: str = ""
    is_inside: bool = False

    def __str__(self) -> str:
        match self.cost:
            case CostClass.CONSTANT:
                return f"one entry of {self.map}"
            case CostClass.LOGARITHMIC:
                return f"a range or an end of {self.map} over {', '.join(self.free)}"
            case _ if not self.bound:
                return f"all of {self.map}"
            case _:
                return f"the slice of {self.map} with that {', '.join(self.bound)}, over {', '.join(self.free)}"


@dataclass(frozen=True, slots=True)
class StatementCost:
    """A statement of a trigger, its class, and its reads in the order of its term."""

    trigger: Trigger
    statement: Statement
    cost: CostClass
    reads: tuple[CostedRead, ...]

    @property
    def lookups(self) -> int:
        """How many reads are look-ups."""
        return sum(read.cost is CostClass.CONSTANT for read in self.reads)

    @property
    def loops(self) -> tuple[CostedRead, ...]:
        """The reads that are not look-ups."""
        return tuple(read for read in self.reads if read.cost is not CostClass.CONSTANT)


class Costs:
    """The costs of a program's statements, each worked out once.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +R(a) { q[b] += m[a, b] * s[a] }")
    >>> found = Costs(program).statement(program.triggers[0], program.triggers[0].statements[0])
    >>> found.cost.value, [str(read) for read in found.reads]
    ('O(slice)', ['the slice of m with that k1, over k2', 'one entry of s'])
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.maps = {each.name: each for each in program.maps}
        self._tables = {relation.name: relation for relation in program.relations}
        self._graph = map_graph(program)
        self._found: dict[tuple[int, int], StatementCost] = {}
        self._single: dict[tuple[str, tuple[str, ...]], bool] = {}

    def statement(self, trigger: Trigger, statement: Statement) -> StatementCost:
        """Return what a statement costs when its trigger fires once: for one row, also of a batch."""
        at = (id(trigger), id(statement))
        if at not in self._found:
            reads = tuple(_Walk(self, trigger, statement).reads())
            cost = max((read.cost for read in reads), default=CostClass.CONSTANT)
            if statement.op == ":=":
                cost = CostClass.REEVALUATION
            self._found[at] = StatementCost(trigger, statement, cost, reads)
        return self._found[at]

    def needed(self, view: ViewDef) -> frozenset[str]:
        """Return the maps that a view depends on: those that it shows, and all that these are kept with."""
        return frozenset(reachable(self._graph, view.reads))

    def of_view(self, view: ViewDef) -> tuple[StatementCost, ...]:
        """Return the costs of all statements that a view depends on, in the order of the program."""
        needed = self.needed(view)
        return tuple(
            self.statement(trigger, statement)
            for trigger, statement in self.program.statements()
            if statement.map in needed
        )

    def is_single(self, read: MapDef, bound: tuple[str, ...]) -> bool:
        """Whether primary keys make a slice one entry."""
        at = (read.name, bound)
        if at not in self._single:
            self._single[at] = is_determined(read, bound, self._tables)
        return self._single[at]


def cost_classes(program: Program) -> dict[str, dict[str, CostClass]]:
    """Return for every view and relation the class of an event: the worst among insertions, deletions and batches.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> cost_classes(parse("VIEW v(n) FROM q SELECT v; ON +R(a) { q[] += m[a] } ON +S(a) { m[b] += w[b] * a }"))
    {'v': {'R': <CostClass.CONSTANT: 'O(1)'>, 'S': <CostClass.SCAN: 'O(n)'>}}
    """
    costs = Costs(program)
    result: dict[str, dict[str, CostClass]] = {}
    for view in program.views:
        worst: dict[str, CostClass] = {}
        for found in costs.of_view(view):
            name = found.trigger.relation
            worst[name] = max(found.cost, worst.get(name, found.cost))
        result[view.name] = {each.name: worst[each.name] for each in program.relations if each.name in worst}
    return result


class _Walk:
    """Finds the reads of one statement, from left to right, knowing what is bound where."""

    def __init__(self, costs: Costs, trigger: Trigger, statement: Statement) -> None:
        self._costs = costs
        self._term = statement.term
        self._known = frozenset(trigger.variables) if statement.op == "+=" and trigger.on is not On.BATCH else Names()
        self._conditions = [node for node in nodes(statement.term) if isinstance(node, Compare)]
        self._lifts = [node for node in nodes(statement.term) if isinstance(node, Lift)]
        self._from_maps = self._values_of_maps()

    def _values_of_maps(self) -> frozenset[str]:
        """Return the variables that stand for numbers that were read from maps."""
        found: set[str] = set()
        before = -1
        while before != len(found):
            before = len(found)
            found |= {lift.variable for lift in self._lifts if maps_of(lift.term) or found & variables_of(lift.term)}
        return frozenset(found)

    def reads(self) -> Iterator[CostedRead]:
        """Yield the reads."""
        yield from self._reads(self._term, self._known, "")

    def _reads(self, term: Term | Range, known: Names, inside: str) -> Iterator[CostedRead]:
        match term:
            case MapRead(_, _, keys):
                yield self._entry(term, known, inside)
                for key in keys:
                    yield from self._reads(key, known, inside)
            case MapExtremum(_, name, keys):
                yield self._end(name, keys)
                for scalar in children(term):
                    yield from self._reads(scalar, known, inside)
            case Extremum(_, variable, inner):
                for read in self._reads(inner, known, inside or str(term)):
                    is_axis = _is_axis(inner, read, variable, known)
                    yield replace(read, cost=CostClass.LOGARITHMIC) if is_axis else read
            case Product(parts):
                for part in parts:
                    yield from self._reads(part, known, inside)
                    known |= frozenset(outputs(part))
            case Lift(_, inner) | Exists(inner):
                yield from self._reads(inner, known, inside or (str(term) if maps_of(inner) else ""))
            case _:
                for child in children(term):
                    yield from self._reads(child, known, inside)

    def _entry(self, read: MapRead, known: Names, inside: str) -> CostedRead:
        definition = self._costs.maps.get(read.map)
        names = _key_names(definition, len(read.keys))
        if read.state == "CHANGED":  # as many as the statements that keep the map write, which are counted there
            return CostedRead(read.map, CostClass.CONSTANT, tuple(names), ())
        free: list[str] = []
        loops: list[str] = []
        ranged: list[str] = []
        for name, key in zip(names, read.keys, strict=True):
            if isinstance(key, Range):
                ranged.append(name)
                free.append(name)
            elif isinstance(key, Var) and key.name not in known:
                if key.name not in loops:  # m[x, x]: the second is the same value
                    loops.append(key.name)
                free.append(name)
        bound = tuple(name for name in names if name not in free)
        if not free or (definition and not ranged and self._costs.is_single(definition, bound)):
            return CostedRead(read.map, CostClass.CONSTANT, bound, tuple(free))
        ordered = definition.ordered if definition else ""
        if not loops and len(ranged) == 1 and ordered in ("", ranged[0]):
            return CostedRead(read.map, CostClass.LOGARITHMIC, bound, tuple(free))
        cost = CostClass.SLICE if bound else CostClass.SCAN
        condition, nested = self._ties_of_scan(read, frozenset(loops), known, inside) if not bound else ("", inside)
        return CostedRead(read.map, cost, bound, tuple(free), condition, nested, bool(inside))

    def _end(self, name: str, keys: tuple[Term | None, ...]) -> CostedRead:
        names = _key_names(self._costs.maps.get(name), len(keys))
        bound = tuple(each for each, key in zip(names, keys, strict=True) if key is not None)
        free = tuple(each for each, key in zip(names, keys, strict=True) if key is None)
        return CostedRead(name, CostClass.LOGARITHMIC, bound, free)

    def _ties_of_scan(self, read: MapRead, loops: Names, known: Names, inside: str) -> tuple[str, str]:
        """Return the condition that ties a loop to the event, and the nested term that is behind the loop."""
        mine = [each for each in self._conditions if loops & variables_of(each)]
        nested = [each for each in mine if self._is_nested(each)]
        plain = [each for each in mine if not self._is_nested(each) and variables_of(each) - loops]
        told = str(plain[0]) if plain else ""
        if inside:
            return told, inside
        if nested:
            return told, str(nested[0])
        if plain:
            return told, ""
        others = [each for each in self._conditions if self._is_nested(each)]
        lifts = [lift for lift in self._lifts if maps_of(lift.term) and variables_of(read) >= {lift.variable}]
        domains = [node for node in nodes(self._term) if isinstance(node, Exists) and maps_of(node)]
        behind: list[Term] = [*others, *domains, *lifts]
        if not behind and known.isdisjoint(variables_of(read)):
            behind = [lift for lift in self._lifts if maps_of(lift.term)]
        return "", str(behind[0]) if behind else ""

    def _is_nested(self, condition: Compare) -> bool:
        return bool(maps_of(condition) or variables_of(condition) & self._from_maps)


def _key_names(definition: MapDef | None, width: int) -> list[str]:
    return [key.name for key in definition.keys] if definition else [f"k{place + 1}" for place in range(width)]


def _is_axis(inner: Term, read: CostedRead, variable: str, known: Names) -> bool:
    """Whether an end searches one slice of a map over its own variable, changed entries beside it or not."""
    parts = inner.parts if isinstance(inner, Sum) else (inner,)
    keys = [key for part in parts if isinstance(part, MapRead) and part.map == read.map for key in part.keys]
    own = [key.name for key in keys if isinstance(key, Var) and key.name not in known]
    return read.cost in (CostClass.SLICE, CostClass.SCAN) and own == [variable] and len(read.free) == 1
