"""What of a program the nodes of a cluster compute each for itself, and what one engine computes after each epoch.

A statement is *spread* if what it adds follows any change of what it reads by the product rule: it is `+=`, polynomial
in maps, and cannot fail. A map is spread if every statement that writes it is, and a view if all maps that it reads
are. All else is *gated*: it waits for the end of the epoch, and is computed by an ordinary engine of its own
(`Division.gated`). A map may be needed on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cumulus.algebra.printing import print_scalar
from cumulus.algebra.scope import maps_of, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
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
)
from cumulus.catalog.types import BIGDECIMAL
from cumulus.cluster.node_programs.monomials import monomials
from cumulus.epochs.layouts import undefined_maps
from cumulus.m3.dataflow import reachable, reads
from cumulus.m3.infer import nodes
from cumulus.m3.program import On, Program, Statement, Trigger, ViewDef
from cumulus.scalars.typing import Typed, can_fail, can_overflow, is_users, typed

MOST_MONOMIALS, MOST_READS = 64, 6
"""Of a spread statement, and of one map in a monomial: a delta of that map has 2⁶ - 1 corrections then."""


@dataclass(frozen=True, slots=True)
class GatedStatement:
    """A statement that is not spread, with the reason as a sentence."""

    trigger: Trigger
    statement: Statement
    reason: str


@dataclass(frozen=True, slots=True)
class Division:
    """A program in two.

    Parameters
    ----------
    spread
        The spread views and all maps that they need, without batch triggers; no rows are kept.
    gated
        The other views and all maps that they need, with the kept tables; statements are as they were. It has no maps
        if there are no such views.
    statements, maps, views
        What is not spread, and why: statements by themselves, maps and views by name.
    """

    spread: Program
    gated: Program
    statements: tuple[GatedStatement, ...]
    maps: Mapping[str, str]
    views: Mapping[str, str]


def divide(program: Program, *, circles: bool = False) -> Division:
    """Return which part of a program is spread, and which is gated.

    In a program without views all maps count, but for those that only keep rows.

    Parameters
    ----------
    circles
        Whether maps may be spread that feed each other in a circle. Those with a definition are gated all the same:
        there the net change of an epoch is enough.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> found = divide(parse("ON +r(a) { q[] += m[a]; m[a] += 1; most[] += {MAX m[*] > a} }"))
    >>> [each.name for each in found.spread.maps], dict(found.maps)
    (['q', 'm'], {'most': 'A statement of ON +r puts m into a condition.'})
    """
    maps = _gated_maps(program, undefined_maps(program) if circles else ())
    views = {view.name: why for view in program.views if (why := _why_gated(program, view, maps))}
    for cube in program.cubes:  # one read of it is of one state, whichever level answers
        names = (cube.name, *(level.view for level in cube.levels))
        if whys := [views[name] for name in names if name in views]:
            of_cube = f"It is of cube {cube.name}. {whys[0]}"
            views |= {name: of_cube for name in names if name not in views}
    spread, gated = _roots(program, maps, views)
    return Division(_spread_part(program, spread), _gated_part(program, gated), _statements(program, maps), maps, views)


def _roots(
    program: Program, maps: Mapping[str, str], views: Mapping[str, str]
) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """Return what is wanted, spread and gated: views, or else maps, each with the maps that it is read from."""
    if program.views:
        wanted, unspread = {view.name: view.reads for view in program.views}, views
    else:
        only_kept = {name for _, name in program.kept} - frozenset().union(*reads(program).values())
        wanted, unspread = {each.name: (each.name,) for each in program.maps if each.name not in only_kept}, maps
    return (
        {name: read for name, read in wanted.items() if name not in unspread},
        {name: read for name, read in wanted.items() if name in unspread},
    )


def _spread_part(program: Program, wanted: Mapping[str, tuple[str, ...]]) -> Program:
    single = [trigger for trigger in program.triggers if trigger.on is not On.BATCH]
    needed = reachable(reads(replace(program, triggers=tuple(single))), chain.from_iterable(wanted.values()))
    part = _restricted(replace(program, triggers=tuple(single)), needed, wanted)
    return replace(part, kept=(), functions=())


def _gated_part(program: Program, wanted: Mapping[str, tuple[str, ...]]) -> Program:
    if not wanted:
        return Program(program.relations)
    roots = chain(chain.from_iterable(wanted.values()), (name for _, name in program.kept))
    return _restricted(program, reachable(reads(program), roots), wanted)


def _restricted(program: Program, maps: set[str], views: Mapping[str, tuple[str, ...]]) -> Program:
    """Return a program with some of its maps and views."""
    triggers = (
        replace(trigger, statements=tuple(each for each in trigger.statements if each.map in maps))
        for trigger in program.triggers
    )
    return replace(
        program,
        maps=tuple(each for each in program.maps if each.name in maps),
        views=tuple(each for each in program.views if each.name in views),
        triggers=tuple(trigger for trigger in triggers if trigger.statements),
        cubes=tuple(each for each in program.cubes if each.name in views),
    )


# -------------------------------------------------------------------- why not


def _why_gated(program: Program, view: ViewDef, maps: Mapping[str, str]) -> str:
    """Return why a view is gated, or ""."""
    for name in view.reads:
        if name in maps:
            return f"It reads {name}. {maps[name]}"
    functions = {signature.name for signature in program.functions}
    for node in chain.from_iterable(map(nodes, view.expressions)):
        if isinstance(node, Apply) and node.function in functions:
            return f"It calls {node.function}, a function of the user's."
    return ""


def _gated_maps(program: Program, free: Collection[str]) -> dict[str, str]:
    """Return the maps that are not spread, and why; those that are free may be made from themselves."""
    graph = reads(program)
    found: dict[str, str] = {}
    for definition in program.maps:
        if any(value.type == BIGDECIMAL for value in definition.values):
            found[definition.name] = "It keeps sums of DOUBLE exactly, as numbers of any length."
        elif definition.name not in free and definition.name in reachable(graph, graph[definition.name]):
            found[definition.name] = "It is made from itself, by way of other maps or not."
    for trigger, statement in _own_statements(program):
        why = _broken_rule(program, trigger, statement)
        if why:
            found.setdefault(statement.map, f"A statement of ON {trigger.on.event(trigger.relation)} {why}.")
    spreading = [*found]
    for source in spreading:  # grows while it is gone through
        for name in graph:
            if source in graph[name] and name not in found:
                found[name] = f"It is made from {source}, which is gated."
                spreading.append(name)
    return found


def _statements(program: Program, maps: Mapping[str, str]) -> tuple[GatedStatement, ...]:
    found = []
    for trigger, statement in _own_statements(program):
        why = _broken_rule(program, trigger, statement)
        source = next((name for name in sorted(maps_of(statement.term)) if name in maps), "")
        if why or source:
            reason = f"It {why}." if why else f"It reads {source}, which is gated."
            found.append(GatedStatement(trigger, statement, reason))
    return tuple(found)


def _own_statements(program: Program) -> Iterator[tuple[Trigger, Statement]]:
    """Yield all statements but those that do for a batch what others do row by row."""
    return ((trigger, each) for trigger, each in program.statements() if not program.is_batch_form(trigger))


def _broken_rule(program: Program, trigger: Trigger, statement: Statement) -> str:
    """Return what a statement does that no spread statement does, or ""."""
    if statement.op == ":=":
        return "replaces the whole map when a transaction commits"
    if trigger.on is On.BATCH:
        return "takes the net change of a batch"
    for relation in program.relations:
        for key in relation.foreign_keys:
            if key.enforced:
                return f"leaves out what the reference from {relation.name} to {key.parent} makes 0, as it is ENFORCED"
    broken = _TermRules(program, trigger, statement).broken(statement.term)
    if broken:
        return broken
    parts = monomials(statement.term, trigger.variables, {*variables_of(statement.term), *trigger.variables})
    if len(parts) > MOST_MONOMIALS:
        return f"adds {len(parts)} products of maps, and more than {MOST_MONOMIALS} are not corrected one by one"
    for part in parts:
        for name, times in Counter(each.map for each in part if isinstance(each, MapRead)).items():
            if times > MOST_READS:
                return f"reads {name} {times} times in one product, and more than {MOST_READS} are not corrected"
    return ""


class _TermRules:
    """Finds what keeps the term of a statement from being spread."""

    def __init__(self, program: Program, trigger: Trigger, statement: Statement) -> None:
        self._events = frozenset(trigger.variables)
        self._types = dict(_types(program, trigger, statement.term))

    def broken(self, term: Term) -> str:
        """Return what a term in value context does that no spread one does, or ""."""
        match term:
            case Const() | Var():
                return ""
            case Sum(parts) | Product(parts):
                return next(filter(None, map(self.broken, parts)), "")
            case AggSum(_, inner):
                return self.broken(inner)
            case MapRead():
                return self._read(term)
            case Atom(name, _) | Batch(name, _):
                return f"reads the relation {name}"
            case Lift(variable, inner) if maps_of(inner):
                return f"binds {variable} to what {_named(inner)} gives"
            case Exists(inner) if maps_of(inner):
                return f"asks whether anything is in {_named(inner)}"
            case Lift(_, inner) | Exists(inner):
                return self.broken(inner)
            case Apply() | Cast() | Compare() | MapExtremum() | Extremum():
                return self._scalar(term)

    def _read(self, read: MapRead) -> str:
        if read.state != "OLD":
            return f"reads {read.map} as {read.state}, after the event"
        for key in read.keys:
            if isinstance(key, Range):
                return f"reads a range of {read.map}"
            if not isinstance(key, Var):
                if not variables_of(key) <= self._events:
                    return f"looks into {read.map} at {print_scalar(key)}, which the event alone does not tell"
                if broken := self._scalar(key):
                    return broken
        return ""

    def _scalar(self, scalar: Term) -> str:
        if maps_of(scalar):
            what = "a condition" if isinstance(scalar, Compare) else "a scalar"
            return f"puts {_named(scalar)} into {what}"
        if isinstance(scalar, Compare):
            return self._scalar(scalar.left) or self._scalar(scalar.right)
        for node in nodes(scalar):
            match node:
                case Apply(function, _) if is_users(node):
                    return f"calls {function}, a function of the user's"
                case Cast(arg, _) if not variables_of(arg) <= self._types.keys():
                    return f"casts {print_scalar(arg)}, whose type nobody has declared"
                case _:
                    pass
        if can_fail(scalar, self._types):
            return f"computes {print_scalar(scalar)}, which has no value for some rows"
        if can_overflow(scalar, self._types):
            return f"computes {print_scalar(scalar)}, which has no value for extreme ones"
        return ""


def _types(program: Program, trigger: Trigger, term: Term) -> Mapping[str, Typed]:
    """Return what is known of the variables of a statement: each has the type of where it is bound first."""
    found: dict[str, Typed] = {}
    columns = dict(zip(trigger.variables, program.relation(trigger.relation).columns, strict=True))
    maps = {definition.name: definition for definition in program.maps}
    for node in nodes(term):
        if isinstance(node, MapRead):
            for key, column in zip(node.keys, maps[node.map].keys, strict=True):
                if isinstance(key, Var):
                    columns.setdefault(key.name, column)
    for name, column in columns.items():
        if column.type is not None:
            found[name] = Typed(column.type, not column.not_null)
    for node in nodes(term):
        match node:
            case Lift(variable, (Const() | Var() | Apply() | Cast()) as scalar) if variables_of(
                scalar
            ) <= found.keys() and not any(isinstance(each, Apply) and is_users(each) for each in nodes(scalar)):
                found.setdefault(variable, typed(scalar, found))
            case _:
                pass
    return found


def _named(term: Term) -> str:
    """Return the names of the maps in a term, as a text."""
    return " and ".join(sorted(maps_of(term)))
