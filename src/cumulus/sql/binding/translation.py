"""A CREATE VIEW as calculus terms and a finishing step: what the compiler is given for a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.algebra.terms import Scalar
from cumulus.calculus.derived_relations import ExtremumRelation, Registry, SumRelation
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import INTEGER, Kind, SqlType
from cumulus.m3.program import OrderItem
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import CreateView
from cumulus.sql.binding.from_clause import unique_names
from cumulus.sql.binding.queries import query_bag, query_groups
from cumulus.sql.binding.scope import Scope, SubqueryLookup, ViewContext
from cumulus.sql.binding.subqueries import bind_subquery
from cumulus.sql.source import SqlText


@dataclass(frozen=True, slots=True)
class BoundView:
    """A view, ready to compile.

    Parameters
    ----------
    group
        The group's variables, in order, bound by every sum.
    sums
        What is added up; the count of rows comes first. No name of them is a variable's.
    ends
        What is searched for the least or greatest value.
    select, having, repeat, order_by
        Scalars over the group's variables and the names of sums, ends and the columns of `lookups`.
    lookups
        Sub-queries that are read per group when the view is read.
    variables
        Types of all variables.
    """

    name: str
    columns: tuple[Column, ...]
    group: tuple[str, ...]
    sums: tuple[SumRelation, ...]
    ends: tuple[ExtremumRelation, ...]
    select: tuple[Scalar, ...]
    having: Scalar | None
    repeat: Scalar | None
    order_by: tuple[OrderItem, ...]
    limit: int | None
    offset: int
    lookups: tuple[SubqueryLookup, ...]
    variables: Mapping[str, Typed]
    sql: str
    strict: bool = False
    at: int = -1

    @property
    def count(self) -> str:
        """The name of the count of rows."""
        return self.sums[0].name


def bind_view(
    view: CreateView,
    tables: Mapping[str, Table],
    source: SqlText,
    views: Mapping[str, CreateView],
    derived: Registry,
) -> BoundView:
    """Return a CREATE VIEW as terms.

    Parameters
    ----------
    view
        The statement.
    tables
        Table by name.
    source
        The script, for places in errors.
    views
        The views that it may read, by name.
    derived
        Registry that new derived relations are added to.

    Raises
    ------
    BindError, UnsupportedError
        With the place in the script.
    """
    context = ViewContext(source, tables, views, derived, query_bag, bind_subquery, opened=(view.name,))
    grouped = query_groups(Scope(context), view.query)
    names = [name for name, _ in grouped.columns]
    if view.columns and len(view.columns) != len(names):
        raise source.bind_error(f"{view.name} names {len(view.columns)} columns, its SELECT has {len(names)}", view.at)
    shown = unique_names(view.columns, names, view.name, source, view.at)
    return BoundView(
        name=str(view.name),
        columns=tuple(
            Column(str(name), _shown_type(grouped.scope.typed(scalar).type))
            for name, (_, scalar) in zip(shown, grouped.columns, strict=True)
        ),
        group=grouped.keys,
        sums=tuple(grouped.sums),
        ends=tuple(grouped.ends),
        select=tuple(scalar for _, scalar in grouped.columns),
        having=grouped.having,
        repeat=grouped.repeat,
        order_by=grouped.order_by,
        limit=grouped.limit,
        offset=grouped.offset,
        lookups=tuple(grouped.after),
        variables=context.variables,
        sql=view.text,
        strict=view.strict,
        at=view.at,
    )


def _shown_type(found: SqlType) -> SqlType:
    return INTEGER if found.kind is Kind.NULL else found
