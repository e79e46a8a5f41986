"""The SELECT list, GROUP BY, HAVING and ORDER BY of one SELECT, bound over its FROM."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Apply, Const, Lift, Scalar, Term, Var, children, number, product_of, rebuild
from cumulus.catalog.types import BIGINT, INTEGER
from cumulus.m3.program import OrderItem
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import AGGREGATES, CastTo, ColumnRef, Expr, Literal, Select, SelectItem, SqlCall, Star, Subquery
from cumulus.sql.binding.aggregates import Lifts, Sums
from cumulus.sql.binding.bind import Binder
from cumulus.sql.binding.branches import BranchScope
from cumulus.sql.binding.groups import Grouped, Keys, has_rows
from cumulus.sql.binding.scope import Scope, SubqueryLookup


class SelectBinder:
    """Binds the clauses of one SELECT whose FROM is open."""

    def __init__(self, scope: Scope, query: Select) -> None:
        self.scope = scope
        self.query = query
        self.binder = Binder(scope)
        self.items = self._expand_stars()
        self._open_aliases: set[str] = set()
        self._aggregates = False
        self._item_keys: dict[int, Scalar] = {}
        scope.aliases = self._alias

    def bind(self, expr: Expr, clause: str = "SELECT") -> Scalar:
        """Return an expression of a SELECT that does not group."""
        return self.binder.bind(expr, clause=clause)

    def _alias(self, name: str) -> Scalar | None:
        """Return the item of the SELECT list that is called `name`: DuckDB lets other clauses name it."""
        found = [at for at, item in enumerate(self.items) if item.aliased and item.name == name]
        if not found or name in self._open_aliases:
            return None
        if found[0] in self._item_keys:
            return self._item_keys[found[0]]
        self._open_aliases.add(name)
        try:
            return self.binder.bind(
                self.items[found[0]].expr, aggregates=self._aggregates, clause=f"{name}, where it is used"
            )
        finally:
            self._open_aliases.discard(name)

    def _expand_stars(self) -> list[SelectItem]:
        """Return the select list with its stars spelled out."""
        items: list[SelectItem] = []
        for item in self.query.items:
            if isinstance(item.expr, ColumnRef) and not item.aliased:
                items.append(replace(item, name=self.scope.spelling(item.expr)))
                continue
            if not isinstance(item.expr, Star):
                items.append(item)
                continue
            wanted = item.expr.table
            tables = [table for table in self.scope.tables if not wanted or table.alias == wanted]
            if not tables:
                raise self.scope.source.bind_error(f"no table {wanted} in FROM", item.expr.at)
            for table in tables:
                for name in table.columns:
                    if wanted or (table.shows(name) and name not in table.merged):
                        items.append(SelectItem(ColumnRef(name, table.alias, item.expr.at), name))
                    elif table.shows(name):
                        items.append(SelectItem(ColumnRef(name, "", item.expr.at), name))
        return items

    def group_all(self) -> None:
        """Let GROUP BY ALL be GROUP BY the items that name a column of these tables, outside aggregates.

        Where none does there is no GROUP BY, as in DuckDB: one group if there is an aggregate, and else the rows.
        """
        trial = Binder(self.scope)
        trial.lookups = []
        keys = []
        for item in self.items:
            if not has_aggregate(item.expr):
                before = self.scope.named
                trial.bind(item.expr, clause="SELECT")
                if self.scope.named > before:
                    keys.append(item.expr)
        self.query = replace(self.query, group_by=tuple(keys) or None)

    # --- groups -----------------------------------------------------------------------------------------------------

    def grouped(self, branches: list[BranchScope]) -> Grouped:
        """Return the SELECT as groups; the branches of its scope are settled."""
        query, scope = self.query, self.scope
        keys = Keys(scope, branches)
        sets = self._grouping_sets(keys)
        self._aggregates = True
        after: list[SubqueryLookup] = []
        self.binder.lookups = after
        shown_items = [(at, item) for at, item in enumerate(self.items) if query.shown is None or at in query.shown]
        selected = [
            self._item_keys.get(at) or self.binder.bind(item.expr, aggregates=True, clause="SELECT")
            for at, item in shown_items
        ]
        having = None
        if query.having is not None:
            having = self.binder.truth(query.having, aggregates=True, clause="HAVING")
        order_by = self.order_by(selected, aggregates=True)
        several = len(sets) > 1
        lifts_of_sets: list[Lifts] = [partial(keys.lifts, without=one) for one in sets]
        variables = keys.variables
        mark = ""
        if several:
            mark = scope.new_variable("grouping_set", "of", Typed(INTEGER, False))
            lifts_of_sets = [partial(_lifts_and_mark, lifts, mark, at) for at, lifts in enumerate(lifts_of_sets)]
            variables = (*variables, mark)
        absent = [at for at, one in enumerate(sets) if several and len(one) == len(keys.names)]
        nulls = [Lift(name, Const(None, scope.variables[name].type)) for name in keys.variables]
        standing = [product_of([*nulls, Lift(mark, number(at))]) for at in absent]
        sums = Sums(scope, branches, variables, lifts_of_sets, standing)
        finished = {name: sums.finish(aggregate) for name, aggregate in self.binder.aggregate_calls.aggregates.items()}
        finished |= {
            name: _grouping(args, sets, mark, keys, at)
            for name, (args, at) in self.binder.aggregate_calls.groupings.items()
        }

        def finish(scalar: Scalar, at: int) -> Scalar:
            return self._finish_scalar(scalar, finished, keys, at)

        shown = None if having is None else finish(having, query.at)
        always = query.group_by is None or (bool(query.grouping_sets) and not several and not keys.variables)
        if not always and not variables:
            # GROUP BY of constants only: one group, but none where there are no rows.
            there = has_rows(sums.sums[0].name)
            shown = there if shown is None else Apply("and", (there, shown))
        return Grouped(
            scope=scope,
            keys=variables,
            sums=sums.sums,
            ends=sums.ends,
            columns=[
                (item.name, finish(scalar, item.expr.at))
                for (_, item), scalar in zip(shown_items, selected, strict=True)
            ],
            having=shown,
            order_by=tuple(OrderItem(finish(i.expression, query.at), i.descending, i.nulls_first) for i in order_by),
            limit=query.limit,
            offset=query.offset,
            after=[SubqueryLookup(e.derived, tuple(finish(arg, query.at) for arg in e.args), e.outs) for e in after],
            always=always,
        )

    def _grouping_sets(self, keys: Keys) -> list[list[Scalar]]:
        """Add the keys; return, for each grouping set, the keys that are not in it."""
        query = self.query
        meant = {expr: self._group_expression(expr) for expr in query.group_by or ()}
        bound: dict[Expr, Scalar] = {}
        for expr, (scalar, name, item) in meant.items():
            key = keys.plain(scalar)
            written = expr if item is None else self.items[item].expr
            told = _has_subquery(written)
            if query.grouping_sets is not None:
                constant = not variables_of(key)
                alone = sum(other is scalar for other, _, _ in meant.values()) == 1
                if constant or not alone:
                    is_column = isinstance(written, ColumnRef)
                    key = keys.column(key, name, alike=is_column or not (constant or key in keys.last))
                if item is not None:
                    self._item_keys.setdefault(item, key)
                # The whole expression goes first: a part of it, such as a constant, may be a key too.
                # Of two spellings of one column the last is meant; a cast that does nothing is no column.
                told = told or constant or alone or not isinstance(written, ColumnRef)
            if told:
                self.binder.grouped[written] = key
            keys.add(key, name)
            bound[expr] = key
        if query.grouping_sets is None:
            return [[]]
        sets = []
        for one in query.grouping_sets:
            present = {bound[expr] for expr in one}
            sets.append([scalar for scalar in keys.names if scalar not in present])
        keys.set_apart([scalar for scalar in keys.names if any(scalar in absent for absent in sets)])
        self.scope.grouped = keys.after
        return sets

    def _group_expression(self, expr: Expr) -> tuple[Scalar, str, int | None]:
        """Return what a GROUP BY item means, with a name for it.

        A position or the alias of a select item has the place of that item with it.
        """
        items = self.items
        place = self._position(expr, "GROUP BY")
        if place is not None:
            return self.binder.bind(items[place].expr, clause="GROUP BY"), items[place].name, place
        if isinstance(expr, ColumnRef) and not expr.table:
            is_column = any(table.shows(expr.name) for table in self.scope.tables)
            aliased = [at for at, item in enumerate(items) if item.aliased and item.name == expr.name]
            if aliased and not is_column:
                return self.binder.bind(items[aliased[0]].expr, clause="GROUP BY"), expr.name, aliased[0]
        scalar = self.binder.bind(expr, clause="GROUP BY")
        named = [item.name for item in items if item.aliased and self._matches(item.expr, scalar)]
        return scalar, named[0] if named else "", None

    def _position(self, expr: Expr, clause: str) -> int | None:
        """Return which item of the SELECT list a whole number in a clause means, from 0; None for what is no number."""
        if not isinstance(expr, Literal) or not isinstance(expr.value, int) or isinstance(expr.value, bool):
            return None
        if not 1 <= expr.value <= len(self.items):
            told = f"{clause} {expr.value}: the select list has {len(self.items)} items"
            raise self.scope.source.bind_error(told, expr.at)
        return expr.value - 1

    def _matches(self, expr: Expr, scalar: Scalar) -> bool:
        return not has_aggregate(expr) and not _has_subquery(expr) and self.binder.bind(expr) is scalar

    # --- order ------------------------------------------------------------------------------------------------------

    def order_by(self, selected: list[Scalar], *, aggregates: bool = False) -> list[OrderItem]:
        """Return ORDER BY over the scope's variables; `selected` is the SELECT list."""
        if self.query.order_all:
            return [OrderItem(scalar) for scalar in selected]
        return [
            OrderItem(self._order_expression(item.expr, selected, aggregates), item.descending, item.nulls_first)
            for item in self.query.order_by
        ]

    def _order_expression(self, expr: Expr, selected: list[Scalar], aggregates: bool) -> Scalar:
        place = self._position(expr, "ORDER BY")
        if place is not None:
            return selected[place]
        if isinstance(expr, ColumnRef) and not expr.table:
            for item, scalar in zip(self.items, selected, strict=True):
                if item.name == expr.name:
                    return scalar
        return self.binder.bind(expr, aggregates=aggregates, clause="ORDER BY")

    # --- after grouping ---------------------------------------------------------------------------------------------

    def _finish_scalar(self, scalar: Scalar, finished: dict[str, Scalar], keys: Keys, at: int) -> Scalar:
        """Return a scalar over group variables and sums; BindError for a column that is neither."""
        scalar = keys.last.get(scalar, scalar)
        if scalar in keys.names:
            return Var(keys.names[scalar])
        if isinstance(scalar, Var):
            if scalar.name in finished:
                return finished[scalar.name]
            if scalar.name in self.scope.parameters.values() or self._is_after(scalar.name):
                return scalar
            named = {
                variable: (f"{table.alias}.{column}", column)
                for table in reversed(self.scope.tables)
                for column, known in reversed(table.columns.items())
                for variable in variables_of(known)
            }
            whole, column = named.get(scalar.name, (scalar.name, scalar.name))
            raise self.scope.source.bind_error(
                f"column {column} must stand in GROUP BY or inside an aggregate", at, hint=f"Add {whole} to GROUP BY."
            )
        if not children(scalar):
            return scalar
        result: Scalar = rebuild(scalar, lambda child: self._finish_scalar(child, finished, keys, at))
        return result

    def _is_after(self, name: str) -> bool:
        return any(name in lookup.outs for lookup in self.binder.lookups)


def _lifts_and_mark(lifts: Lifts, mark: str, at: int, within: BranchScope) -> list[Term]:
    """Return what binds the keys of a grouping set, and the number of the set."""
    return [*lifts(within), Lift(mark, number(at))]


def _grouping(args: tuple[Scalar, ...], sets: list[list[Scalar]], mark: str, keys: Keys, at: int) -> Scalar:
    """Return GROUPING(args): a bit for each argument, 1 where the row's grouping set does not have it."""
    args = tuple(keys.last.get(arg, arg) for arg in map(keys.plain, args))
    for arg in args:
        if arg not in keys.names:
            told = "GROUPING takes expressions of GROUP BY"
            raise keys.scope.source.bind_error(told, at, hint="Group by its arguments.")
    values = [sum((arg in absent) << (len(args) - 1 - place) for place, arg in enumerate(args)) for absent in sets]
    if not mark or len(set(values)) == 1:
        return Const(values[0], BIGINT)
    parts: list[Scalar] = []
    for which, value in enumerate(values[:-1]):
        parts += [Apply("eq", (Var(mark), number(which))), Const(value, BIGINT)]
    return Apply("case", (*parts, Const(values[-1], BIGINT)))


def has_aggregate(expr: Expr) -> bool:
    """Whether an expression has an aggregate call of its own SELECT."""
    if isinstance(expr, SqlCall):
        return expr.name in AGGREGATES or expr.name in ("grouping", "grouping_id") or any(map(has_aggregate, expr.args))
    if isinstance(expr, CastTo):
        return has_aggregate(expr.arg)
    return isinstance(expr, Subquery) and expr.left is not None and has_aggregate(expr.left)


def _has_subquery(expr: Expr) -> bool:
    if isinstance(expr, SqlCall):
        return any(map(_has_subquery, expr.args))
    return isinstance(expr, Subquery) or (isinstance(expr, CastTo) and _has_subquery(expr.arg))
