"""Which views depend on which value columns of maps, and why a program has each of its maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from cumulus.algebra.scope import maps_of, relations_of
from cumulus.algebra.terms import MapExtremum, MapRead, Term, Var
from cumulus.m3.dataflow import reachable
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef, Program, ViewDef

Place: TypeAlias = tuple[str, str]
"""A map and one of its value columns."""


def views_of_columns(program: Program) -> dict[Place, tuple[str, ...]]:
    """Return for each value column of a map the views that are made from it, directly or not.

    A map that several views share may have a column that only one of them needs; it is listed for that one.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> found = views_of_columns(parse('''
    ...     MAP m[a INT](n BIGINT, s BIGINT) COUNT n;  MAP half[a INT](h BIGINT);
    ...     VIEW counts(a INT, n BIGINT) FROM m SELECT a, n;  VIEW sums(a INT, s BIGINT) FROM m SELECT a, s;
    ...     ON +r(a, x) { m[a].n += 1; m[a].s += half[a] }  ON +t(a, x) { half[a] += intdiv(x, 2) }
    ... '''))
    >>> found["m", "n"], found["m", "s"], found["half", "h"]
    (('counts', 'sums'), ('sums',), ('sums',))
    """
    maps = {each.name: each for each in program.maps}
    sources: dict[Place, set[Place]] = {}
    for _, statement in program.statements():
        target = _place(maps, statement.map, statement.column)
        sources.setdefault(target, set()).update(_read(maps, statement.term))
    found: dict[Place, dict[str, None]] = {
        (each.name, value.name): {} for each in maps.values() for value in each.values
    }
    for view in program.views:
        for place in reachable(sources, _shown(maps, view)):
            found.setdefault(place, {})[view.name] = None
    return {place: tuple(views) for place, views in found.items()}


def _place(maps: dict[str, MapDef], name: str, column: str) -> Place:
    definition = maps[name]
    return name, definition.values[definition.column_index(column)].name


def _all(definition: MapDef) -> Iterator[Place]:
    yield from ((definition.name, value.name) for value in definition.values)


def _read(maps: dict[str, MapDef], term: Term) -> Iterator[Place]:
    """Yield the columns that a term reads; an end of a slice depends on which entries there are."""
    for node in nodes(term):
        if isinstance(node, MapRead) and node.state != "CHANGED":
            yield _place(maps, node.map, node.column)
        elif isinstance(node, (MapRead, MapExtremum)):
            yield from _all(maps[node.map])


def _shown(maps: dict[str, MapDef], view: ViewDef) -> Iterator[Place]:
    """Yield the columns that a view reads when it is finished."""
    names: dict[str, Place] = {}
    for name in reversed(view.maps):
        definition = maps[name]
        for _, column in _all(definition):
            names[f"{name}.{column}"] = (name, column)
            if name == view.maps[0]:
                names[column] = (name, column)
        if definition.count:  # which entries there are
            yield name, definition.count
        else:
            yield from _all(definition)
    for scalar in view.expressions:
        yield from _read(maps, scalar)
        variables = (node.name for node in nodes(scalar) if isinstance(node, Var))
        yield from (names[name] for name in variables if name in names)


class MapReasons:
    """The reasons of all maps of a program.

    Parameters
    ----------
    needed
        View → the maps that it depends on.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> program = compile_sql('''
    ...     CREATE TABLE r (k INT PRIMARY KEY, a INT NOT NULL); CREATE TABLE s (k INT NOT NULL, b INT NOT NULL);
    ...     CREATE VIEW v AS SELECT a, SUM(b) AS s FROM r JOIN s USING (k) GROUP BY a;
    ... ''')
    >>> reasons = MapReasons(program, {"v": frozenset(each.name for each in program.maps)})
    >>> for each in program.maps:
    ...     print(each.name, *reasons.of(each), sep=": ")
    v: the rows of v
    r_rows: keeps the rows of r, whose key is checked: changes of s need the rows of r that join with them (v)
    m1: changes of r need the rows of s that join with them (v)
    """

    def __init__(self, program: Program, needed: Mapping[str, frozenset[str]]) -> None:
        self._program = program
        self._needed = needed
        self._kept = {name: program.relation(table) for table, name in program.kept}
        self._events: dict[str, dict[str, None]] = {}
        for trigger, statement in program.statements():
            for name in maps_of(statement.term):
                self._events.setdefault(name, {})[trigger.relation] = None

    def of(self, definition: MapDef) -> tuple[str, ...]:
        """Return why a map is there, a clause for each reason."""
        name = definition.name
        found = []
        shown = [view.name for view in self._program.views if name in view.reads]
        if shown:
            found.append(f"the rows of {_listed(shown)}")
        kept = self._kept.get(name)
        if kept is not None:
            found.append(f"keeps the rows of {kept.name}{', whose key is checked' if kept.key else ''}")
            parents = dict.fromkeys(key.parent for key in kept.foreign_keys if key.enforced)
            if parents:
                found.append(f"rows that refer to {_listed(parents)} are found by it")
        changing = self._events.get(name)
        views = [view for view, maps in self._needed.items() if name in maps]
        if changing and views:
            tables = frozenset[str]().union(*map(relations_of, definition.definitions))
            listed = [each.name for each in self._program.relations if each.name in tables]
            what = f"the rows of {_listed(listed)} that join with them" if listed else "it"
            found.append(f"changes of {_listed(changing)} need {what} ({', '.join(views)})")
        return tuple(found)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
