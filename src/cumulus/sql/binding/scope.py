"""What names mean in one SELECT, and the bag of rows that its FROM and WHERE make.

A bag is a sum of branches; a branch is a product of atoms under conditions. An inner join is one branch; an outer join
adds one in which the columns of the missing side are NULL, UNION ALL one for each side. Every column of FROM is a
variable of the calculus, or a scalar over such variables; a branch says what a variable is where no atom of its own
binds it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cumulus.algebra.scope import substitute, variables_of
from cumulus.algebra.terms import Atom, Scalar, Term, Var
from cumulus.calculus.derived_relations import DerivedRelation, Registry
from cumulus.catalog.names import folded
from cumulus.catalog.schema import Relation as Table
from cumulus.errors import UnsupportedError
from cumulus.scalars.typing import Typed, typed
from cumulus.sql.ast import ColumnRef, CreateView, NamedQuery, Query, Subquery
from cumulus.sql.source import SqlText

Queries: TypeAlias = "Mapping[str, tuple[NamedQuery, Queries]]"
"""Queries of WITH by name, each with those that it may read."""


@dataclass(slots=True)
class ViewContext:
    """What all SELECTs of a view share.

    Parameters
    ----------
    variables
        Types of all variables; no two SELECTs of a view use a name for different things.
    derived
        The derived relations of the whole script.
    bind_query
        Makes a query in FROM rows of a scope, which is new.
    bind_subquery
        Makes a sub-query in an expression a scalar of a scope, and adds its look-ups to a list. Besides there are the
        scalars that IN, ANY and ALL compare with, several for a row, and whether NULL may be told as FALSE.
    """

    source: SqlText
    tables: Mapping[str, Table]
    views: Mapping[str, CreateView]
    derived: Registry
    bind_query: Callable[[Scope, Query], QueryRows]
    bind_subquery: Callable[[Scope, list[SubqueryLookup], Subquery, tuple[Scalar, ...], bool], Scalar]
    variables: dict[str, Typed] = field(default_factory=dict)
    opened: tuple[str, ...] = ()

    def refuse(self, what: str, at: int, hint: str) -> UnsupportedError:
        """Return the error of a construct that does not compile."""
        return self.source.unsupported(f"{what} does not compile", at, feature=what, hint=hint)


@dataclass(slots=True)
class ScopeTable:
    """One table of a FROM clause.

    Parameters
    ----------
    columns
        Column name → what it is.
    hidden
        Columns merged into another table's by USING or NATURAL: only `alias.column` means them.
    leading
        Columns that others are merged into: a name without a table means them, whatever else is called so.
    merged
        Columns of which a name without a table means something else: the one of the two sides that is there.
    """

    alias: str
    columns: dict[str, Scalar]
    hidden: set[str] = field(default_factory=set)
    leading: set[str] = field(default_factory=set)
    merged: dict[str, Scalar] = field(default_factory=dict)

    def shows(self, name: str) -> bool:
        """Whether a name without a table may mean a column of this one."""
        return name in self.columns and name not in self.hidden

    def bare(self, name: str) -> Scalar:
        """Return what a name without a table means."""
        return self.merged.get(name, self.columns[name])


def tables_showing(tables: Sequence[ScopeTable], name: str) -> list[ScopeTable]:
    """Return the tables of which a name without a table may mean a column."""
    found = [table for table in tables if table.shows(name)]
    return [table for table in found if name in table.leading] or found


@dataclass(frozen=True, slots=True)
class SubqueryLookup:
    """A derived relation read at given keys and inputs: a sub-query in an expression.

    Parameters
    ----------
    args
        Scalars for its keys, then its inputs.
    outs
        Variables for its columns.
    """

    derived: DerivedRelation
    args: tuple[Scalar, ...]
    outs: tuple[str, ...]


@dataclass(slots=True)
class Branch:
    """A product of atoms under conditions.

    Parameters
    ----------
    where
        Conditions over variables.
    values
        Variable → what it is here, where no atom of the branch binds it.
    copies
        Variables whose numbers say how often a row stands.
    guards
        Conditions that are terms already.
    known
        What is known of variables here and not elsewhere.
    """

    atoms: list[Atom] = field(default_factory=list)
    where: list[Scalar] = field(default_factory=list)
    values: dict[str, Scalar] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)
    guards: list[Term] = field(default_factory=list)
    known: dict[str, Typed] = field(default_factory=dict)

    def joined(self, other: Branch) -> Branch:
        """Return the product of two branches, which shares no list with either."""
        return Branch(
            self.atoms + other.atoms,
            self.where + other.where,
            self.values | other.values,
            self.copies + other.copies,
            self.guards + other.guards,
            self.known | other.known,
        )


@dataclass(slots=True)
class Scope:
    """What names mean in one SELECT.

    Parameters
    ----------
    parent
        The SELECT around this one; what its names mean here is a parameter.
    parameters
        What a parameter is outside → its variable here.
    lookups
        The sub-queries of expressions, in order: each may use the columns of those before it.
    queries
        Names of WITH.
    grouped
        What a scalar over rows is over the keys of grouping sets, once rows are grouped: a key may be NULL then.
    named
        How often a name has meant a column of these tables.
    """

    context: ViewContext
    parent: Scope | None = None
    tables: list[ScopeTable] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=lambda: [Branch()])
    parameters: dict[Scalar, str] = field(default_factory=dict)
    lookups: list[SubqueryLookup] = field(default_factory=list)
    queries: Queries = field(default_factory=dict)
    aliases: Callable[[str], Scalar | None] | None = None
    grouped: Callable[[Scalar], Scalar] | None = None
    named: int = 0

    @property
    def source(self) -> SqlText:
        """The text."""
        return self.context.source

    @property
    def variables(self) -> dict[str, Typed]:
        """Types of all variables."""
        return self.context.variables

    def new_variable(self, name: str, alias: str, typed: Typed) -> str:
        """Return a variable called after a column, and after its table too if that name is taken."""
        # `#` is for aggregates and derived relations.
        name, alias = folded(name), folded(alias)  # variables have no spelling: SQL made of them has no case
        candidate = f"c{name}" if name.startswith("#") else name
        if candidate in self.variables:
            candidate = f"{alias}_{name}"
        number = 2
        while candidate in self.variables:
            candidate = f"{alias}_{name}_{number}"
            number += 1
        self.variables[candidate] = typed
        return candidate

    def typed(self, scalar: Scalar) -> Typed:
        """Return what is known of a scalar."""
        return typed(scalar if self.grouped is None else self.grouped(scalar), self.variables)

    def inner(self) -> Scope:
        """Return the scope of a sub-query in an expression of this one."""
        return Scope(self.context, parent=self, queries=self.queries)

    def sibling(self) -> Scope:
        """Return a new scope with the same parent: that of a query whose groups become the rows of this one."""
        return Scope(self.context, parent=self.parent, parameters=self.parameters, queries=self.queries)

    def sibling_in_from(self) -> Scope:
        """Return the scope of a query in FROM: same parent, same look-ups; its rows become the rows of this one."""
        return replace(self.sibling(), lookups=self.lookups)

    def parameter(self, outside: Scalar, name: str = "p") -> Scalar:
        """Return the variable that stands for a scalar of the scope around this one."""
        if not variables_of(outside):
            return outside
        if outside not in self.parameters:
            assert self.parent is not None
            hint = outside.name if isinstance(outside, Var) else name
            self.parameters[outside] = self.new_variable(hint.lstrip("#") or "p", "of", self.parent.typed(outside))
        return Var(self.parameters[outside])

    def resolve(self, reference: ColumnRef) -> Scalar:
        """Return what a column reference means; BindError if nothing, or several things."""
        found = self._find_column(reference)
        if found is not None:
            return found
        scope = self.parent
        if scope is not None and scope.can_resolve(reference):
            return self.parameter(scope.resolve(reference), reference.name)
        if reference.table:
            names = [table.columns for table in self.tables if table.alias == reference.table]
            if names:
                told = f"{reference.table} has no column {reference.name}"
                raise self.source.bind_error(told, reference.at, hint=f"Its columns are {', '.join(names[0])}.")
            hint = f"There {'are' if len(self.tables) > 1 else 'is'} {', '.join(t.alias for t in self.tables)}."
            raise self.source.bind_error(f"no table {reference.table} in FROM", reference.at, hint=hint)
        known = dict.fromkeys(column for table in self.tables for column in table.columns)
        hint = _suggest(reference.name, known)
        if self.source.text[reference.at : reference.at + 1] == '"':
            hint += " Double quotes are for names; a string has single quotes."
        raise self.source.bind_error(f"no column {reference.name}", reference.at, hint=hint)

    def can_resolve(self, reference: ColumnRef) -> bool:
        """Whether a reference means something here or further out."""
        return self._find_column(reference) is not None or (
            self.parent is not None and self.parent.can_resolve(reference)
        )

    def _find_column(self, reference: ColumnRef) -> Scalar | None:
        if reference.table:
            for table in self.tables:
                if table.alias == reference.table:
                    self.named += reference.name in table.columns
                    return table.columns.get(reference.name)
            return None
        tables = tables_showing(self.tables, reference.name)
        if len(tables) > 1:
            raise self.source.bind_error(
                f"column {reference.name} is ambiguous",
                reference.at,
                hint=f"Write {' or '.join(f'{t.alias}.{reference.name}' for t in tables)}.",
            )
        if tables:
            self.named += 1
            return tables[0].bare(reference.name)
        return None if self.aliases is None else self.aliases(reference.name)

    def spelling(self, reference: ColumnRef) -> str:
        """Return the name of a column as it was written where it comes from, if that is here."""
        wanted = [table for table in self.tables if not reference.table or table.alias == reference.table]
        names = (name for table in wanted for name in table.columns if name == reference.name)
        return next(names, reference.name)

    def replace_everywhere(self, values: Mapping[str, Scalar]) -> None:
        """Put scalars in the place of variables in what names mean."""
        for table in self.tables:
            for columns in (table.columns, table.merged):
                for name, scalar in columns.items():
                    columns[name] = substitute(scalar, values)


@dataclass(slots=True)
class QueryRows:
    """A query as rows of a scope: its columns by name, over the scope's variables."""

    scope: Scope
    columns: list[tuple[str, Scalar]]


def _suggest(name: str, known: Iterable[str]) -> str:
    shown = {folded(each): each for each in known}
    close = difflib.get_close_matches(folded(name), list(shown), n=3)
    if close:
        return f"Did you mean {' or '.join(shown[each] for each in close)}?"
    return f"The columns here are {', '.join(known)}." if known else "There is no FROM clause."
