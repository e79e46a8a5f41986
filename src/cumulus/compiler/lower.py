"""Columns and rules to an M3 program: names for maps, statements in order, views with their finishing step.

Keys that are never NULL, as far as a definition says so of its variables, are marked: machine code keeps such a key in
fewer words, and need not look whether it is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import chain

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Atom,
    Batch,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Number,
    Product,
    Range,
    Sum,
    Term,
    Var,
    rebuild,
    sum_of,
)
from cumulus.algebra.terms import Batch as BatchAtom
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.polynomial import Monomial
from cumulus.catalog.schema import Column as NamedColumn
from cumulus.catalog.schema import Relation
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import BIGINT, NULL
from cumulus.compiler.initial_rows import initial_entries, starts_empty
from cumulus.compiler.maps.columns import ColumnGroup, MaintainedNumber, MapRule, nice_names, variable_types
from cumulus.compiler.sqltext import definition_sql
from cumulus.compiler.statements.definitions import spell_out
from cumulus.m3.access import stages
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger, ViewDef
from cumulus.scalars.typing import Typed, is_nullable


def lower(
    tables: Mapping[str, Table],
    groups: list[ColumnGroup],
    rules: list[MapRule],
    views: tuple[ViewDef, ...],
    kept: Mapping[str, ColumnGroup],
    derived: Registry,
) -> Program:
    """Return the program that groups of columns and their rules make.

    Parameters
    ----------
    views
        Their expressions are over the final names of keys and columns already.
    kept
        Table → the group that keeps its rows.
    """
    at = {column: (group.name, column.hint) for group in groups for column in group.columns}
    placed = cache(partial(_placed, at))  # what is evaluated again is one term for all changes
    depths = _depths(rules)
    every = {**tables, **{each.name: each.table() for each in derived}}
    maps = tuple(_map_definition(group, every, derived) for group in groups)
    triggers = []
    for table in tables.values():
        for on, sign in ((On.INSERT, +1), (On.DELETE, -1), (On.BATCH, 0)):
            mine = [rule for rule in rules if rule.change.relation == table.name and rule.change.sign == sign]
            if mine:
                statements = [
                    Statement(*at[rule.target], rule.keys, rule.op, placed(rule.coefficient, rule.factors, rule.reads))
                    for rule in sorted(mine, key=lambda rule: -depths[rule.target])
                ]
                ordered = stages(statements)
                assert ordered is not None, f"maps wait for each other in a circle at {on.name} of {table.name}"
                last = (statement for statement in statements if statement.op == ":=")
                triggers.append(Trigger(on, table.name, mine[0].change.variables, (*chain(*ordered), *last)))
    axes = _axes(triggers, views)
    maps = tuple(replace(each, ordered=_only_axis(each, axes.get(each.name, set()))) for each in maps)
    return Program(
        relations=tuple(tables.values()),
        maps=maps,
        views=views,
        triggers=tuple(triggers),
        kept=tuple((name, group.name) for name, group in kept.items()),
    )


def _axes(triggers: Iterable[Trigger], views: Iterable[ViewDef]) -> dict[str, set[int]]:
    """Return for each map the places of the keys along which ranges and ends are read."""
    found: dict[str, set[int]] = {}
    terms = list(dict.fromkeys(statement.term for trigger in triggers for statement in trigger.statements))
    for node in (node for term in [*terms, *(e for view in views for e in view.expressions)] for node in nodes(term)):
        match node:
            case MapRead(name, _, keys):
                found.setdefault(name, set()).update(at for at, key in enumerate(keys) if isinstance(key, Range))
            case MapExtremum(_, name, ends):
                found.setdefault(name, set()).add(ends.index(None))
            case Extremum(_, variable, MapRead(name, _, keys)):
                found.setdefault(name, set()).update(at for at, key in enumerate(keys) if key is Var(variable))
            case _:
                pass
    return found


def _only_axis(each: MapDef, axes: set[int]) -> str:
    """Return the key in whose order a map is read, "" if there is none or more than one."""
    return each.keys[next(iter(axes))].name if len(axes) == 1 else ""


def name_columns(group: ColumnGroup) -> None:
    """Give the columns of a group names that differ from each other and from its keys.

    Examples
    --------
    >>> group = ColumnGroup(1, "")
    >>> for body in ((Atom("r", ("a", "n")),), (Atom("r", ("a", "n")), Var("n"))):
    ...     group.columns.append(MaintainedNumber(("n",), [Monomial(1, body)], BIGINT, "", group))
    >>> name_columns(group)
    >>> [column.hint for column in group.columns]
    ['n2', 's']
    """
    taken = set(group.columns[0].keys)
    for column in group.columns:
        wanted = column.hint or ("n" if column.is_count else "v" if len(group.columns) == 1 else "s")
        name, number_ = wanted, 2
        while name in taken:
            name, number_ = f"{wanted}{number_}", number_ + 1
        taken.add(name)
        column.hint = name


def _bodies(group: ColumnGroup) -> list[list[Monomial]]:
    """Return the definitions of a group's columns, over the key names of the first."""
    bodies = []
    for column in group.columns:
        names = _key_renaming(column, group.columns[0])
        bodies.append([Monomial(m.coefficient, tuple(rename(f, names) for f in m.factors)) for m in column.body])
    return bodies


def _map_definition(group: ColumnGroup, tables: Mapping[str, Table], derived: Registry) -> MapDef:
    first = group.columns[0]
    types = variable_types([f for m in first.body for f in m.factors], tables)
    bodies = _bodies(group)
    parts = [spell_out(first.keys, body, derived) for body in bodies]
    values = tuple(NamedColumn(column.hint, BIGINT if column.is_count else column.type) for column in group.columns)
    pairs = zip(bodies, parts, strict=True)
    definitions = tuple(_with_nice_names(first.keys, sum_of(part)) for part in parts)
    started = [(_not_empty(body, part, derived), value.type) for (body, part), value in zip(pairs, values, strict=True)]
    initial = () if first.order == 0 else initial_entries(first.keys, started)
    there = never_null(definitions, tables)
    return MapDef(
        name=group.name,
        keys=tuple(
            NamedColumn(name, types[name].type, name in there and all(key[at] is not None for key, _ in initial))
            for at, name in enumerate(first.keys)
        ),
        values=values,
        count=next((each.hint for each in group.row_counts if len(group.columns) > 1 or group.of_view), ""),
        definitions=definitions,
        sql=definition_sql([column.hint for column in group.columns], first.keys, bodies, tables, derived),
        initial=initial,
    )


def _not_empty(body: list[Monomial], parts: list[Term], derived: Registry) -> list[Term]:
    """Return the parts of a definition that may be something over empty tables."""
    pairs = zip(body, parts, strict=True)
    return [part for m, part in pairs if not any(starts_empty(factor, derived) for factor in m.factors)]


def _with_nice_names(keys: tuple[str, ...], term: Term) -> Term:
    return rename(term, nice_names([*keys, *sorted(variables_of(term))], ()))


def _key_renaming(column: MaintainedNumber, first: MaintainedNumber) -> dict[str, str]:
    """Return a renaming that gives a column the key names of another, keeping its other variables apart."""
    names = dict(zip(column.keys, first.keys, strict=True))
    inner = {n for m in column.body for f in m.factors for n in variables_of(f)} - set(column.keys)
    for name in sorted(inner & set(first.keys)):
        fresh, count = f"{name}_2", 2
        while fresh in inner or fresh in first.keys:
            count += 1
            fresh = f"{name}_{count}"
        names[name] = fresh
    return {old: new for old, new in names.items() if old != new}


def _depths(rules: list[MapRule]) -> dict[MaintainedNumber, int]:
    """Return how far each column is from the base tables: who reads deeper is written first, so that all read old."""
    reads: dict[MaintainedNumber, dict[MaintainedNumber, None]] = {}
    for rule in rules:
        reads.setdefault(rule.target, {}).update((source, None) for _, source in rule.reads)
    depth: dict[MaintainedNumber, int] = {}

    def of(column: MaintainedNumber) -> int:
        if column not in depth:
            depth[column] = 0
            depth[column] = 1 + max((of(source) for source in reads.get(column, ())), default=-1)
        return depth[column]

    for target in reads:
        of(target)
    return depth


def _placed(
    at: Mapping[MaintainedNumber, tuple[str, str]],
    coefficient: Number,
    factors: tuple[Term, ...],
    reads: tuple[tuple[str, MaintainedNumber], ...],
) -> Term:
    """Return the term of a rule, over maps by their names."""
    sources = dict(reads)

    def placed(term: Term) -> Term:
        match term:
            case MapRead(token, _, keys, state) if token in sources:
                name, column = at[sources[token]]
                return MapRead(name, "" if state == "CHANGED" else column, keys, state)
            case BatchAtom(name, variables):
                return Atom(name, variables)
            case _:
                changed: Term = rebuild(term, placed)
                return changed

    return Monomial(coefficient, tuple(map(placed, factors))).term()


_THERE, _UNKNOWN = Typed(NULL, False), Typed(NULL, True)


class _Known(dict[str, Typed]):
    """Variables that are not NULL; any other one may be."""

    def __missing__(self, name: str) -> Typed:
        return _UNKNOWN


def never_null(definitions: Iterable[Term], tables: Mapping[str, Relation]) -> frozenset[str]:
    """Return the variables that are not NULL wherever one of some terms, at least one, is not 0.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT
    >>> table = Relation("r", (Column("a", BIGINT, True), Column("b", BIGINT)))
    >>> sorted(never_null([Atom("r", ("x", "y"))], {"r": table}))
    ['x']
    """
    found = [_never_null(each, frozenset(), tables) for each in definitions]
    return frozenset.intersection(*found)


def _never_null(term: Term, known: frozenset[str], tables: Mapping[str, Relation]) -> frozenset[str]:
    """Return the variables that are not NULL where the term is not 0, if some that are bound before it are not."""
    match term:
        case Atom(name, variables) | Batch(name, variables):
            columns = zip(variables, tables[name].columns, strict=True)
            return frozenset(variable for variable, column in columns if column.not_null)
        case Product(parts):
            found = frozenset[str]()
            asked = frozenset(name for part in parts for name in _not_zero(part))
            for part in parts:
                found |= _never_null(part, known | found, tables)
                if isinstance(part, Lift) and part.variable in asked:  # a nested sum that is not 0
                    found |= _never_null(part.term, known | found, tables)
            return found
        case Sum(parts):
            return frozenset.intersection(*(_never_null(part, known, tables) for part in parts))
        case AggSum(group, inner):
            return _never_null(inner, known, tables).intersection(group)
        case Exists(inner):
            return _never_null(inner, known, tables)
        case Lift(variable, inner) if not is_nullable(inner, _Known(dict.fromkeys(known, _THERE))):
            return frozenset((variable,))
        case Compare("<>", Var(name), Const(None, _)):
            return frozenset((name,))
        case _:
            return frozenset()


def _not_zero(factor: Term) -> Iterable[str]:
    """Return the variable that is a number other than 0 where a factor is not 0, if there is one."""
    match factor:
        case Var(name) | Compare(">" | "<>", Var(name), Const(0, _)):
            return (name,)
        case _:
            return ()
