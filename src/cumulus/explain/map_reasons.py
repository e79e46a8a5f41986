"""Why a program has each of its maps: what is shown of it, which changes read it, and whose rows it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cumulus.algebra.scope import maps_of, relations_of
from cumulus.m3.program import MapDef, Program


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
