"""A bound SELECT as calculus terms and a finishing step: what the compiler is given for a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import (
    FALSE,
    NULL_VALUE,
    ONE,
    TRUE,
    ZERO,
    Apply,
    Cast,
    Compare,
    Lift,
    Product,
    Relation,
    Scalar,
    Term,
    Var,
    children,
    number,
    product_of,
    rebuild,
)
from cumulus.algebra.typing import Typed
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import INTEGER, INTEGER_BITS, Kind, SqlType
from cumulus.errors import BindError, UnsupportedError
from cumulus.m3.program import OrderItem
from cumulus.sql.ast import (
    Call,
    ColumnRef,
    CreateView,
    Derived,
    Expr,
    FromItem,
    Join,
    Literal,
    Select,
    SelectItem,
    SetOperation,
    Star,
    TableRef,
)
from cumulus.sql.bind import AGGREGATES, Binder, Scope, ScopeTable
from cumulus.sql.conditions import condition, conjuncts
from cumulus.sql.source import Source
from cumulus.sql.sums import Summed, Sums


@dataclass(frozen=True, slots=True)
class BoundView:
    """A view, ready to compile.

    Parameters
    ----------
    group
        The group's variables, in order, bound by `body`.
    body
        The join with its conditions: multiplicities of joined rows.
    sums
        What is added up; the count of rows comes first. No name of them is a variable's.
    select, having, order_by
        Scalars over the group's variables and the names of `sums`.
    repeat
        A plain SELECT: every row stands as often as the count of rows says.
    variables
        Types of all variables.
    """

    name: str
    columns: tuple[Column, ...]
    group: tuple[str, ...]
    body: Term
    sums: tuple[Summed, ...]
    select: tuple[Scalar, ...]
    having: Scalar | None
    order_by: tuple[OrderItem, ...]
    limit: int | None
    offset: int
    repeat: bool
    variables: Mapping[str, Typed]
    sql: str
    at: int = -1

    @property
    def count(self) -> str:
        """The name of the count of rows."""
        return self.sums[0].name


def bind_view(view: CreateView, tables: Mapping[str, Table], source: Source) -> BoundView:
    """Return a CREATE VIEW as terms.

    Raises
    ------
    BindError, UnsupportedError
        With the place in the script.
    """
    query = view.query
    if isinstance(query, SetOperation):
        raise _unsupported(query.op.upper(), source, query.at, "Make each side a view and combine them in query().")
    if query.ctes:
        raise _unsupported("WITH", source, query.at, "Write the tables of the WITH query into FROM.")
    if query.distinct:
        raise _unsupported("SELECT DISTINCT", source, query.at, "Use GROUP BY over the same columns.")
    scope = Scope(source)
    where = _from_clause(query, tables, scope)
    binder = Binder(scope)
    if query.where is not None:
        where += conjuncts(binder.condition(query.where))
    return _Select(view, query, binder, where).bound()


def _unsupported(what: str, source: Source, at: int, hint: str) -> UnsupportedError:
    return UnsupportedError(f"{what} does not compile", feature=what, hint=hint, **source.place(at))


def _from_clause(query: Select, tables: Mapping[str, Table], scope: Scope) -> list[Scalar]:
    """Open the scope with the tables of FROM; return the conditions of its joins."""
    if not query.sources:
        raise _unsupported("SELECT without FROM", scope.source, query.at, "A view reads at least one table.")
    conditions: list[Scalar] = []
    for item in query.sources:
        conditions += _from_item(item, tables, scope)
    return conditions


def _from_item(item: FromItem, tables: Mapping[str, Table], scope: Scope) -> list[Scalar]:
    place = scope.source.place(item.at)
    match item:
        case TableRef(name, alias, _):
            if name not in tables:
                raise BindError(f"no table {name}", hint=f"There are {', '.join(tables) or 'none'}.", **place)
            if any(table.alias == alias for table in scope.tables):
                raise BindError(f"two tables called {alias} in FROM", hint="Give one an alias.", **place)
            columns: dict[str, str] = {}
            for column in tables[name].columns:
                assert column.type is not None, "SQL declares every type"
                typed = Typed(column.type, not column.not_null)
                columns[column.name] = scope.new_variable(column.name, alias, typed)
            scope.tables.append(ScopeTable(alias, {name: Var(variable) for name, variable in columns.items()}))
            scope.relations.append(Relation(name, tuple(columns.values())))
            return []
        case Join(left, right, kind, on, using, natural, at):
            if kind not in ("inner", "cross"):
                raise _unsupported(f"{kind.upper()} JOIN", scope.source, at, "Use an inner join, or two views.")
            before = len(scope.tables)
            conditions = _from_item(left, tables, scope)
            middle = len(scope.tables)
            conditions += _from_item(right, tables, scope)
            lefts, rights = scope.tables[before:middle], scope.tables[middle:]
            if natural:
                shared = {name for table in lefts for name in table.columns if table.shows(name)}
                using = ordered(name for table in rights for name in table.columns if name in shared)
                if not using:
                    raise BindError(
                        "the sides of NATURAL JOIN have no column in common", hint="Write JOIN … ON.", **place
                    )
            for name in using:
                conditions.append(_same(name, lefts, rights, scope, at))
            if on is not None:
                conditions += conjuncts(Binder(scope).condition(on, clause="ON"))
            return conditions
        case Derived(_, _, _, at):
            raise _unsupported("a query in FROM", scope.source, at, "Make it a view of its own, or join its tables.")


def _same(name: str, lefts: list[ScopeTable], rights: list[ScopeTable], scope: Scope, at: int) -> Scalar:
    """Return the equality that USING (name) means, and merge the two columns into one name."""
    sides = []
    for side in (lefts, rights):
        found = [table for table in side if table.shows(name)]
        if len(found) != 1:
            raise BindError(
                f"USING ({name}): one side has {'no such column' if not found else 'several such columns'}",
                hint="Write JOIN … ON.",
                **scope.source.place(at),
            )
        sides.append(found[0])
    sides[1].hidden.add(name)
    return Binder(scope).apply("eq", (sides[0].columns[name], sides[1].columns[name]), at)


def _unify(scope: Scope, where: list[Scalar]) -> tuple[list[Scalar], list[Term]]:
    """Make one variable of columns that are equal; return the other conditions, and guards against NULL."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.get(name, name) != name:
            name = leader[name]
        return name

    rest: list[Scalar] = []
    variables = scope.variables
    for scalar in where:
        match scalar:
            case Apply("eq", (Var(left), Var(right))) if left == right:
                rest.append(Apply("not", (Apply("is_null", (Var(left),)),)))
            case Apply("eq", (Var(left), Var(right))) if _alike(variables[left].type, variables[right].type):
                first, second = find(left), find(right)
                if _bits(variables[second].type) < _bits(variables[first].type):
                    first, second = second, first
                if first != second:
                    leader[second] = first
            case _:
                rest.append(scalar)
    names = {name: find(name) for name in variables if find(name) != name}
    guards: list[Term] = []
    for kept in dict.fromkeys(names.values()):
        members = [kept, *(name for name, target in names.items() if target == kept)]
        if all(variables[name].nullable for name in members):
            guards.append(Compare("<>", Var(kept), NULL_VALUE))
        # The join drops the NULLs.
        variables[kept] = Typed(variables[kept].type, False)
    # The narrowest type leads, so that no cast back to a column's own type can fail.
    values: dict[str, Scalar] = {
        name: Var(kept) if variables[name].type == variables[kept].type else Cast(Var(kept), variables[name].type)
        for name, kept in names.items()
    }
    for table in scope.tables:
        for column, scalar in table.columns.items():
            table.columns[column] = substitute(scalar, values)
    scope.relations = [
        Relation(relation.name, tuple(names.get(name, name) for name in relation.variables))
        for relation in scope.relations
    ]
    return [substitute(scalar, values) for scalar in rest], guards


class _Select:
    """Binds one SELECT: groups, aggregates, then everything that is finished when the view is read."""

    def __init__(self, view: CreateView, query: Select, binder: Binder, where: list[Scalar]) -> None:
        self.view = view
        self.query = query
        self.binder = binder
        self.scope = binder.scope
        rest, guards = _unify(self.scope, where)
        tests = [part for scalar in rest for part in _factors(condition(scalar, self.scope.variables))]
        self.factors: list[Term] = [*self.scope.relations, *dict.fromkeys([*guards, *tests])]
        self.items = self._expanded()
        self.groups: dict[Scalar, str] = {}

    def bound(self) -> BoundView:
        query, binder = self.query, self.binder
        has_aggregates = any(_has_aggregate(item.expr) for item in self.items) or (
            query.having is not None and _has_aggregate(query.having)
        )
        plain = query.group_by is None and not has_aggregates
        if plain and query.having is not None:
            raise BindError("HAVING needs GROUP BY or an aggregate", **self.scope.source.place(query.at))
        if query.group_by is not None:
            for expr in query.group_by:
                self._add_group(*self._group_expression(expr))
        selected = [self._bind(item.expr) for item in self.items]
        having = None
        if query.having is not None:
            having = binder.condition(query.having, aggregates=True, clause="HAVING")
        ordered = [(self._order_expression(item.expr, selected), item) for item in query.order_by]
        if plain:
            for (scalar, item), is_item in [
                *((pair, True) for pair in zip(selected, self.items, strict=True)),
                *(((scalar, None), False) for scalar, _ in ordered),
            ]:
                self._add_group(scalar, item.name if is_item and item is not None else "")
        sums = Sums(self.scope.variables, keyless=not self.groups)
        finished = {f"#{index}": sums.finish(aggregate) for index, aggregate in enumerate(binder.aggregates)}

        def finish(scalar: Scalar, at: int) -> Scalar:
            return self._finished(scalar, finished, at)

        shown = None if having is None else finish(having, query.at)
        if query.group_by is not None and not self.groups:
            # GROUP BY of constants only: one group, but none where there are no rows.
            there = Apply("gt", (Var(sums.columns[0].name), number(0)))
            shown = there if shown is None else Apply("and", (there, shown))
        select = tuple(finish(scalar, item.expr.at) for scalar, item in zip(selected, self.items, strict=True))
        columns = tuple(
            Column(name, self._column_type(scalar)) for name, scalar in zip(self._column_names(), selected, strict=True)
        )
        return BoundView(
            name=self.view.name,
            columns=columns,
            group=tuple(self.groups.values()),
            body=product_of(self.factors),
            sums=tuple(sums.columns),
            select=select,
            having=shown,
            order_by=tuple(
                OrderItem(finish(scalar, item.expr.at), item.descending, item.nulls_first) for scalar, item in ordered
            ),
            limit=query.limit,
            offset=query.offset,
            repeat=plain,
            variables=self.scope.variables,
            sql=self.view.text,
            at=self.view.at,
        )

    def _expanded(self) -> list[SelectItem]:
        """Return the select list with its stars spelled out."""
        items: list[SelectItem] = []
        for item in self.query.items:
            if not isinstance(item.expr, Star):
                items.append(item)
                continue
            wanted = item.expr.table
            tables = [table for table in self.scope.tables if not wanted or table.alias == wanted]
            if not tables:
                raise BindError(f"no table {wanted} in FROM", **self.scope.source.place(item.expr.at))
            for table in tables:
                names = [name for name in table.columns if wanted or table.shows(name)]
                items += [SelectItem(ColumnRef(name, table.alias, item.expr.at), name) for name in names]
        return items

    def _column_names(self) -> list[str]:
        """Return the names of the columns; a name that stands twice gets a number, as in DuckDB's tables."""
        given = self.view.columns
        if given and len(given) != len(self.items):
            raise BindError(
                f"{self.view.name} names {len(given)} columns, its SELECT has {len(self.items)}",
                **self.scope.source.place(self.view.at),
            )
        names: list[str] = []
        for name in given or [item.name for item in self.items]:
            unique, count = name, 1
            while unique in names:
                unique, count = f"{name}_{count}", count + 1
            names.append(unique)
        return names

    def _column_type(self, scalar: Scalar) -> SqlType:
        found = self.binder.type_of(scalar)
        return INTEGER if found.kind is Kind.NULL else found

    def _bind(self, expr: Expr, clause: str = "SELECT") -> Scalar:
        return self.binder.bind(expr, aggregates=True, clause=clause)

    def _group_expression(self, expr: Expr) -> tuple[Scalar, str]:
        """Return what a GROUP BY item means: a position, an expression, or the alias of a select item."""
        items = self.items
        if isinstance(expr, Literal) and isinstance(expr.value, int) and not isinstance(expr.value, bool):
            if not 1 <= expr.value <= len(items):
                raise BindError(
                    f"GROUP BY {expr.value}: the select list has {len(items)} items", **self.scope.source.place(expr.at)
                )
            chosen = items[expr.value - 1]
            return self._group_scalar(chosen.expr), chosen.name
        if isinstance(expr, ColumnRef) and not expr.table:
            is_column = any(table.shows(expr.name) for table in self.scope.tables)
            aliased = [item for item in items if item.aliased and item.name == expr.name]
            if aliased and not is_column:
                return self._group_scalar(aliased[0].expr), expr.name
        scalar = self._group_scalar(expr)
        named = [item.name for item in items if item.aliased and self._matches(item.expr, scalar)]
        return scalar, named[0] if named else ""

    def _matches(self, expr: Expr, scalar: Scalar) -> bool:
        return not _has_aggregate(expr) and self._bind(expr) is scalar

    def _group_scalar(self, expr: Expr) -> Scalar:
        return self.binder.bind(expr, clause="GROUP BY")

    def _add_group(self, scalar: Scalar, name: str = "") -> None:
        """Make a scalar a key of the view: a column is its own, anything else is lifted."""
        if isinstance(scalar, Cast) and any(scalar in table.columns.values() for table in self.scope.tables):
            scalar = scalar.arg  # a column whose variable is another's, in a narrower type
        if scalar in self.groups or not variables_of(scalar):
            return
        if isinstance(scalar, Var):
            self.groups[scalar] = scalar.name
            return
        typed = Typed(self.binder.type_of(scalar), self.binder.nullable(scalar))
        wanted = name if name.isidentifier() else f"key_{len(self.groups) + 1}"
        variable = self.scope.new_variable(wanted, "key", typed)
        self.groups[scalar] = variable
        self.factors.append(Lift(variable, scalar))

    def _order_expression(self, expr: Expr, selected: list[Scalar]) -> Scalar:
        if isinstance(expr, Literal) and isinstance(expr.value, int) and not isinstance(expr.value, bool):
            if not 1 <= expr.value <= len(selected):
                raise BindError(
                    f"ORDER BY {expr.value}: the select list has {len(selected)} items",
                    **self.scope.source.place(expr.at),
                )
            return selected[expr.value - 1]
        if isinstance(expr, ColumnRef) and not expr.table:
            for item, scalar in zip(self.items, selected, strict=True):
                if item.name == expr.name:
                    return scalar
        return self._bind(expr, "ORDER BY")

    def _finished(self, scalar: Scalar, finished: Mapping[str, Scalar], at: int) -> Scalar:
        """Return a scalar over group variables and sums; BindError for a column that is neither."""
        if scalar in self.groups:
            return Var(self.groups[scalar])
        if isinstance(scalar, Var):
            if scalar.name in finished:
                return finished[scalar.name]
            named = {
                variable: (f"{table.alias}.{column}", column)
                for table in reversed(self.scope.tables)
                for column, known in reversed(table.columns.items())
                for variable in variables_of(known)
            }
            whole, column = named.get(scalar.name, (scalar.name, scalar.name))
            raise BindError(
                f"column {column} must stand in GROUP BY or inside an aggregate",
                hint=f"Add {whole} to GROUP BY.",
                **self.scope.source.place(at),
            )
        if not children(scalar):
            return scalar
        result: Scalar = rebuild(scalar, lambda child: self._finished(child, finished, at))
        return result


def _factors(term: Term) -> tuple[Term, ...]:
    if term is ONE:
        return ()
    if term is ZERO:
        # A condition that never holds must not swallow the tables that it stands with.
        return (Compare("=", TRUE, FALSE),)
    return term.parts if isinstance(term, Product) else (term,)


def _alike(left: SqlType, right: SqlType) -> bool:
    """Whether equal values of two types are one value everywhere, so that one variable can stand for both."""
    return left == right or (left.is_integer and right.is_integer)


def _bits(found: SqlType) -> int:
    return INTEGER_BITS.get(found.kind, 0)


def _has_aggregate(expr: Expr) -> bool:
    if isinstance(expr, Call):
        return expr.name in AGGREGATES or any(_has_aggregate(arg) for arg in expr.args)
    arg = getattr(expr, "arg", None)
    return arg is not None and _has_aggregate(arg)
