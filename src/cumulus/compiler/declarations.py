"""The statements of a script, one after the other: the tables and views that it leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cumulus.catalog.names import Name, find_name
from cumulus.catalog.schema import Relation as Table
from cumulus.errors import BindError, SqlError
from cumulus.sql.ast import CreateTable, CreateView, DropView, Script, Statement, tables_read
from cumulus.sql.source import SqlText


@dataclass(slots=True)
class Declarations:
    """What a script has declared so far.

    Parameters
    ----------
    tables, views
        By name, in the order in which they are compiled: a view stands behind those that it reads.
    errors
        Of the statements that cannot be taken.
    broken
        Names that are missing, or mean something else, because of these errors: whatever reads one says nothing new.
    """

    source: SqlText
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, CreateView] = field(default_factory=dict)
    errors: list[SqlError] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def add(self, statement: Statement) -> None:
        """Do what a statement says.

        Raises
        ------
        BindError
            If it cannot be done; nothing is changed.
        """
        match statement:
            case CreateTable():
                self._add_table(statement)
            case CreateView():
                self._add_view(statement)
            case DropView():
                self._drop(statement)

    def _add_table(self, statement: CreateTable) -> None:
        name, place = Name(statement.relation.name), self.source.place(statement.at)
        if name in self.views and not statement.unless_there:
            raise BindError(f"{name} is a {self.views[name].kind}", hint="Give the table another name.", **place)
        if name in self.tables and not statement.replace and not statement.unless_there:
            raise BindError(
                f"{name} is there already",
                hint="Give the table another name, or write CREATE TABLE IF NOT EXISTS or CREATE OR REPLACE TABLE.",
                **place,
            )
        if statement.unless_there and (name in self.tables or name in self.views):
            return
        self.tables[name] = statement.relation

    def _add_view(self, statement: CreateView) -> None:
        name, place = statement.name, self.source.place(statement.at)
        if statement.unless_there and (name in self.tables or name in self.views):
            return
        if name in self.tables:
            raise BindError(f"{name} is a table", hint=f"Give the {statement.kind} another name.", **place)
        if name in self.views and not statement.replace:
            raise BindError(
                f"{name} is there already",
                hint="Write CREATE OR REPLACE {0}, or CREATE {0} IF NOT EXISTS.".format(statement.kind.upper()),
                **place,
            )
        followers, read = self.dependents(name) if name in self.views else [], tables_read(statement.query)
        for each in (name, *followers):
            if each in read and name in self.views:
                through = "" if each == name else f" through {each}"
                raise BindError(
                    f"{statement.kind} {name} reads itself{through}",
                    hint=f"Give the new {statement.kind} another name.",
                    **self.source.place(read[each]),
                )
        moved = {follower: self.views.pop(follower) for follower in followers}
        self.views.pop(name, None)
        self.views |= {name: statement, **moved}

    def _drop(self, statement: DropView) -> None:
        name, place = statement.name, self.source.place(statement.at)
        if name in self.tables:
            raise BindError(f"{name} is a table", hint="Only views and cubes are dropped.", **place)
        what = statement.kind
        if name not in self.views:
            if statement.if_exists or name in self.broken:
                return
            there = ", ".join(view for view, each in self.views.items() if each.kind == what) or "none"
            hint = f"{what.title()}s: {there}. DROP {what.upper()} IF EXISTS takes any."
            raise BindError(f"no {what} {name} to drop", hint=hint, **place)
        if self.views[name].kind != what:
            other = self.views[name].kind
            raise BindError(f"{name} is a {other}", hint=f"Write DROP {other.upper()} {name}.", **place)
        followers = self.dependents(name)
        if followers and not statement.cascade:
            told, verb = ("view", "reads") if len(followers) == 1 else ("views", "read")
            first = f"Drop {'it' if len(followers) == 1 else 'them'} first"
            raise BindError(
                f"{told} {', '.join(followers)} {verb} {name}",
                hint=f"{first}, or all at once: DROP {what.upper()} {name} CASCADE.",
                **place,
            )
        for each in (name, *followers):
            del self.views[each]

    def dependents(self, name: str) -> list[str]:
        """Return the views that read a table or view, also through other views, in the order of the views."""
        found = {name}
        for view in self.views.values():
            if not found.isdisjoint(tables_read(view.query)):
                found.add(view.name)
        return [view for view in self.views if view in found and view != name]


def declarations(script: Script) -> Declarations:
    """Return the tables and the views that a script leaves behind, with their keys resolved, and what is wrong."""
    found = Declarations(script.source, errors=list(script.errors), broken=set(script.broken))
    places: dict[str, dict[str, Any]] = {}
    for statement in script.statements:
        try:
            found.add(statement)
        except SqlError as problem:
            found.errors.append(problem)
        if isinstance(statement, CreateTable):
            places.setdefault(Name(statement.relation.name), script.source.place(statement.at))
    for name, table in found.tables.items():
        try:
            found.tables[name] = _resolve_keys(table, found.tables, found.broken, places[name])
        except SqlError as problem:
            found.errors.append(problem)
    return found


def _resolve_keys(table: Table, tables: Mapping[str, Table], broken: Iterable[str], place: dict[str, Any]) -> Table:
    """Fill in what a FOREIGN KEY leaves unsaid, and check that its parent is there."""
    references = []
    for reference in table.foreign_keys:
        if Name(reference.parent) in broken:
            continue
        parent = tables.get(Name(reference.parent))
        if parent is None:
            raise BindError(
                f"{table.name} refers to {reference.parent}, which is not there", hint="Declare the parent.", **place
            )
        columns = reference.parent_columns or parent.key
        columns = tuple(find_name(column, parent.column_names) or column for column in columns)
        if set(columns) != set(parent.key) or len(columns) != len(reference.columns):
            raise BindError(
                f"{table.name} must refer to the primary key of {parent.name}",
                hint=f"Its primary key is ({', '.join(parent.key)})." if parent.key else "It has no primary key.",
                **place,
            )
        references.append(replace(reference, parent=parent.name, parent_columns=columns))
    return replace(table, foreign_keys=tuple(references))


def redefined_views(before: Declarations, after: Declarations) -> set[str]:
    """Return the views whose rows another query makes now, or that read such a view.

    Examples
    --------
    >>> from cumulus.sql.syntax.parse import parse_script
    >>> table, v, w = "CREATE TABLE r (a INT);", "VIEW v AS SELECT a FROM r;", "CREATE VIEW w AS SELECT a FROM v;"
    >>> scripts = f"{table} CREATE {v} {w}", f"{table} CREATE {v} {w} CREATE OR REPLACE {v.replace('a', 'a + 1 AS a')}"
    >>> one, other = (declarations(parse_script(script)) for script in scripts)
    >>> sorted(redefined_views(one, one)), sorted(redefined_views(one, other))
    ([], ['v', 'w'])
    """
    found: set[str] = set()
    for name, view in after.views.items():  # a view stands behind those that it reads
        old = before.views.get(name)
        # A cube's rows are those of its query, whatever levels it keeps.
        is_other = old is not None and (old.text, old.columns) != (view.text, view.columns)
        if is_other or not found.isdisjoint(tables_read(view.query)):
            found.add(name)
    return found
