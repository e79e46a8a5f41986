"""Random queries: blocks, sub-queries, set operations, common table expressions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fuzz.expressions import OPERATORS, Col, Scope
from fuzz.forms import AGGREGATES, MEETING
from fuzz.sources import From, Known, Sources
from fuzz.tree import Cte, Expr, Item, Key, Query, Select, SetQuery, TableRef, With

Columns = tuple[tuple[str, str], ...]
ROUGH = ("mean", "rough")
NESTING = ("EXISTS", "NOT EXISTS", "IN (SELECT)", "NOT IN (SELECT)", "ANY", "ALL", "correlated", "sub-query in WHERE")
SET_OPERATIONS = ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
EVEN = dict.fromkeys(SET_OPERATIONS, 1.0)
GROUPINGS = {"keys": 9.0, "GROUP BY ALL": 0.9, "CUBE": 0.6, "ROLLUP": 0.6, "GROUPING SETS": 0.6}
WAYS = {"GROUP BY expression": 4.0, "GROUP BY alias": 1.5, "GROUP BY position": 1.5}


class Queries(Sources):
    """Makes queries. Every one comes with its columns: names and kinds."""

    nested: int
    """How many sub-queries the view may still have."""
    name_count = 0

    def may_nest(self, scope: Scope) -> bool:
        return self.nested > 0 and self.room > 0 and scope.depth < 2 and "scalar sub-query" not in self.without

    def derived(self, depth: int) -> tuple[Query, Columns]:
        if depth < 3 and self.room > 1 and self.chance(0.07, *SET_OPERATIONS):
            return self.set_operation(depth)
        forms = {"derived table (plain)": 1.0, "derived table (aggregated)": 1.4}
        form = "grouped" if self.pick(forms) == "derived table (aggregated)" else "plain"
        return self.block(form=form, depth=depth)

    # --- blocks -----------------------------------------------------------------------------------------------------

    def block(
        self,
        *,
        form: str = "",
        shape: tuple[str, ...] = (),
        exact: bool = False,
        depth: int = 0,
        first: tuple[Known, ...] = (),
    ) -> tuple[Query, Columns]:
        """Return one SELECT.

        Parameters
        ----------
        form
            "plain", "grouped" or "one group"; any if empty.
        shape
            The kinds of its columns; any if empty.
        exact
            Whether rounded floats must not come out.
        first
            What must stand in FROM.
        """
        form = form or self.pick({"plain SELECT": 2.5, "grouped": 4.0, "one group": 1.0})
        made = self.froms(self._count(depth, len(first)), depth, first)
        scope = self.scope_of(made, depth)
        where = made.where + tuple(self.condition(scope) for _ in range(self._where_count()))
        if self.may_nest(scope) and self.chance(0.12, *NESTING):
            where += (self.subquery_condition(scope),)
        if form == "grouped":
            return self.grouped(made, scope, where, shape, exact)
        if form == "one group":
            exprs = [
                self.over_aggregates(scope, exact=exact, kinds=_meeting(kind)) for kind in shape or self._some(1, 3)
            ]
            having = self._having(scope, (), exprs) if self.chance(0.08) else ()
            items, columns = self.named(exprs, scope)
            return Select(items, made.sources, where, having=having), columns
        exprs = [self._item(scope, kind, exact) for kind in shape or self._some(1, 3)]
        items, columns = self.named(exprs, scope)
        select = Select(items, made.sources, where)
        if self.chance(0.12, "SELECT DISTINCT") and not any(kind in ROUGH for _, kind in columns):
            select = replace(select, distinct=True)
        return select, columns

    def named(self, exprs: list[Expr], scope: Scope) -> tuple[tuple[Item, ...], Columns]:
        """Return items under different names: columns under their own if that means nothing else in the block."""
        items: list[Item] = []
        for expr in exprs:
            own = expr.template.rpartition(".")[2] if expr.alias else ""
            if own not in scope.bare or own in [item.name for item in items]:
                self.name_count += 1
                own = f"x{self.name_count}"
            items.append(Item(expr, own))
        return tuple(items), tuple((item.name, item.expr.kind) for item in items)

    def _count(self, depth: int, least: int) -> int:
        """Return how many sources a block has."""
        wanted = self.draw.choices((1, 2, 3, 4), (3.5, 5, 2.5, 0.8) if depth == 0 else (6, 3, 0.7, 0))[0]
        return max(least, 1, min(wanted, self.room))

    def _where_count(self) -> int:
        return self.draw.choices((0, 1, 2), (5, 4, 0.5))[0]

    def _some(self, least: int, most: int) -> tuple[str, ...]:
        """Return a shape that leaves every kind open."""
        return ("",) * self.draw.randint(least, most)

    def scope_of(self, made: From, depth: int, outer: tuple[Col, ...] = ()) -> Scope:
        names = made.names()
        merged = {column.name for column in made.hidden}
        bare = frozenset(name for name in names if names.count(name) == 1) - merged
        return Scope(made.columns, outer, depth, bare)

    def _item(self, scope: Scope, kind: str, exact: bool) -> Expr:
        """Return an item of a plain SELECT."""
        if self.may_nest(scope) and self.chance(0.05, "sub-query in SELECT"):
            found = self.scalar_subquery(scope, _meeting(kind) if kind else ())
            if not (exact and found.kind in ROUGH):
                return found
        if not kind:
            kinds = [each for each in scope.kinds() if not (exact and each in ROUGH)]
            rounded = not exact and scope.of("int") and self.draw.random() < 0.04
            kind = "rough" if rounded else self.kind_for(scope, kinds)
        if kind in scope.kinds() and self.draw.random() < 0.35:
            return self.column(scope, kind)
        return self.scalar(scope, kind)

    def grouped(
        self, made: From, scope: Scope, where: tuple[Expr, ...], shape: tuple[str, ...], exact: bool
    ) -> tuple[Query, Columns]:
        """Return a block with GROUP BY."""
        grouping = self.pick(GROUPINGS)
        # Every column in one spelling: what DuckDB's GROUPING says of two spellings of one key is its own affair.
        keys = self._keys(replace(scope, bare=frozenset()), shape, grouping)
        shown = tuple(column for column in scope.columns if any(column.expr() == key for key in keys))
        # DuckDB has no sub-queries about groups that GROUP BY ALL finds.
        group_scope = Scope(() if grouping == "GROUP BY ALL" else shown, scope.outer, scope.depth)
        is_cube = grouping not in ("keys", "GROUP BY ALL")
        kinds = shape[len(keys) :] if shape else self._some(0 if self.draw.random() < 0.1 else 1, 3)
        exprs = [*keys]
        for kind in kinds:
            if not shape and is_cube and self.chance(0.35, "GROUPING()"):
                exprs.append(Expr("GROUPING({0})", (self.one(keys),), "int", ("GROUPING()",)))
            elif not is_cube and self.may_nest(group_scope) and self.chance(0.04, "sub-query in SELECT"):
                found = self.scalar_subquery(group_scope, _meeting(kind) if kind else ())
                exprs.append(found if not (exact and found.kind in ROUGH) else self.aggregate(scope, exact=True))
            else:
                exprs.append(self.over_aggregates(scope, exact=exact, kinds=_meeting(kind)))
        items, columns = self.named(exprs, scope)
        ways = [self.pick(WAYS).split()[-1] for _ in keys]
        written = tuple(Key(key, way, item.name) for key, way, item in zip(keys, ways, items, strict=False))
        having = ()
        if self.chance(0.2, "HAVING"):
            having = self._having(scope, () if is_cube else group_scope.columns, exprs[len(keys) :])
        forms = {"keys": "keys", "GROUP BY ALL": "all", "CUBE": "cube", "ROLLUP": "rollup", "GROUPING SETS": "sets"}
        select = Select(items, made.sources, where, forms[grouping], written, having=having)
        if grouping == "GROUPING SETS":
            select = replace(select, sets=self._sets(len(keys)))
        if not shape and grouping != "GROUP BY ALL" and len(items) > 2 and self.draw.random() < 0.08:
            # A key that is not shown: rows may be equal.
            select, columns = replace(select, items=items[1:]), columns[1:]
        elif self.chance(0.02, "SELECT DISTINCT") and not any(kind in ROUGH for _, kind in columns):
            select = replace(select, distinct=True)
        return select, columns

    def _keys(self, scope: Scope, shape: tuple[str, ...], grouping: str) -> list[Expr]:
        """Return the keys of a block: for a shape, its first columns."""
        if shape:
            count = self.draw.randint(1, len(shape))
            return [self._key(scope, kind) for kind in shape[:count]]
        count = self.one((2, 2, 3) if grouping in ("CUBE", "ROLLUP", "GROUPING SETS") else (1, 1, 2))
        kinds = [kind for kind in scope.kinds() if kind not in ROUGH]
        return list(dict.fromkeys(self._key(scope, self.kind_for(scope, kinds)) for _ in range(count)))

    def _key(self, scope: Scope, kind: str) -> Expr:
        columns = scope.of(kind)
        if columns and self.draw.random() < (0.3 if "GROUP BY expression" in self.wanted else 0.65):
            return self.one(columns).expr()
        while True:
            # A constant would be a position, or a group of everything.
            key = self.scalar(scope, kind)
            if key.parts or key.alias or not columns:
                return (
                    key
                    if key.parts or key.alias
                    else Expr("CASE WHEN {0} THEN {1} END", (self.condition(scope, 2), key), kind, ("CASE",))
                )

    def _sets(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Return two or three different sets of the places of keys, every key in one of them."""
        every = tuple(range(count))
        choices = [(), every, *((place,) for place in every), every[:2], every[1:]]
        sets = [self.one(choices) for _ in range(self.one((1, 2, 2)))]
        missing = tuple(place for place in every if not any(place in each for each in sets))
        return tuple(dict.fromkeys([*sets, missing] if missing else [*sets, ()]))

    def _having(self, scope: Scope, keys: tuple[Col, ...], shown: list[Expr]) -> tuple[Expr, ...]:
        """Return conditions on groups: on aggregates that are shown or not, on sub-queries, on keys."""
        group_scope = Scope(keys, scope.outer, scope.depth)
        calls = [expr for expr in shown if expr.kind in MEETING and set(expr.marks) & set(AGGREGATES)]
        one = self.one(calls) if calls and self.draw.random() < 0.4 else self.aggregate(scope)
        weights = {"constant": 4.0, "aggregates": 1.0, "keys": 1.0 if keys else 0.0, "OR": 1.0}
        if self.may_nest(group_scope):
            weights["sub-query in HAVING"] = 1.6
        match self.pick(weights):
            case "aggregates":
                two = self.aggregate(scope, exact=True, kinds=_meeting(one.kind) or ("int",))
                if one.kind not in ROUGH and (one.kind in MEETING[two.kind] or two.kind in MEETING[one.kind]):
                    return (Expr(f"{{0}} {self.one(OPERATORS)} {{1}}", (one, two), marks=("comparison",)),)
            case "keys":
                return (self.condition(group_scope, 1),)
            case "OR":
                other = self.condition(group_scope, 2) if keys else self._tested(self.aggregate(scope), scope)
                return (Expr("({0} OR {1})", (self._tested(one, scope), other), marks=("OR",)),)
            case "sub-query in HAVING":
                if keys and self.draw.random() < 0.4:
                    return (self.subquery_condition(group_scope),)
                return (self.compared(self.aggregate(scope, exact=True) if one.kind in ROUGH else one, group_scope),)
        extra = (self._tested(self.aggregate(scope), scope),) if self.draw.random() < 0.15 else ()
        return (self._tested(one, scope), *extra)

    def _tested(self, call: Expr, scope: Scope) -> Expr:
        """Return a predicate of an aggregate call."""
        test = self.predicate(Scope((Col("?", call.kind, "?"),), (), scope.depth), 2)
        return _put(test, call)

    # --- sub-queries ------------------------------------------------------------------------------------------------

    def inner(self, scope: Scope, correlated: bool) -> tuple[From, Scope, tuple[Expr, ...]]:
        """Return FROM, scope and conditions of a sub-query inside a block."""
        self.nested -= 1
        depth = scope.depth + 1
        made = self.froms(min(max(self.room, 1), self.one((1, 1, 1, 2))), 2)
        inner = self.scope_of(made, depth, scope.inside())
        where = made.where
        if correlated and scope.inside():
            operators = ("=",) if self.draw.random() < 0.75 else ("<", ">=", "<>", ">")
            along = self.along(inner.columns, scope.inside(), 0.5)
            met = self.meeting(inner, scope.inside(), operators)
            where += along or ((met,) if met else ())
            if self.draw.random() < 0.1:
                met = self.meeting(inner, scope.inside(), ("<>", "<="))
                where += (met,) if met else ()
        if self.draw.random() < (0.35 if where else 0.6):
            where += (self.condition(inner, 1),)
        if self.may_nest(inner) and self.chance(0.1, "sub-query in a sub-query"):
            where += (self.subquery_condition(inner),)
        return made, inner, tuple(dict.fromkeys(where))

    def subquery_condition(self, scope: Scope) -> Expr:
        has_columns = any(column.kind in MEETING and column.kind != "rough" for column in scope.columns)
        weights = {"EXISTS": 2.0, "NOT EXISTS": 1.2}
        if has_columns:
            weights |= {"IN (SELECT)": 2.0, "NOT IN (SELECT)": 1.2, "ANY": 0.8, "ALL": 0.8, "scalar sub-query": 2.0}
        form = self.pick(weights)
        if form in ("EXISTS", "NOT EXISTS"):
            made, inner, where = self.inner(scope, self.chance(0.85, "correlated"))
            expr = Expr("1", kind="int") if self.draw.random() < 0.6 else self.column(inner, *inner.kinds())
            query = Select((Item(expr, ""),), made.sources, where)
            if self.draw.random() < 0.08:
                having = (self._tested(self.aggregate(inner), inner),)
                query = replace(query, items=(Item(self.aggregate(inner), ""),), having=having)
            return Expr(f"{form} ({{0}})", (query,), marks=(form,))
        columns = [column for column in scope.columns if column.kind in MEETING and column.kind not in ROUGH]
        if not columns:
            return self.predicate(scope, 1)
        one = self.one(columns)
        left = self.scalar(scope, one.kind, 1) if self.draw.random() < 0.2 else one.expr()
        if form == "scalar sub-query":
            return self.compared(left, scope)
        kind = self.one(MEETING[one.kind])
        query = self._list(scope, kind)
        if form in ("IN (SELECT)", "NOT IN (SELECT)"):
            return Expr(f"{{0}} {form[: -len('(SELECT)')]}({{1}})", (left, query), marks=(form,))
        operator = self.one(("=", "<>", "<", "<=", ">=") if form == "ANY" else ("<>", ">=", "<=", ">"))
        return Expr(f"{{0}} {operator} {form} ({{1}})", (left, query), marks=(form,))

    def _list(self, scope: Scope, kind: str) -> Query:
        """Return a sub-query of one column of a kind."""
        made, inner, where = self.inner(scope, self.chance(0.35, "correlated"))
        expr = self.column(inner, kind) if self.draw.random() < 0.75 else self.scalar(inner, kind)
        select = Select((Item(expr, ""),), made.sources, where)
        choice = self.draw.random()
        if choice < 0.08:
            return replace(select, distinct=True)
        if choice < 0.2 and expr.alias:
            having = (self._tested(self.aggregate(inner), inner),) if self.draw.random() < 0.6 else ()
            return replace(select, grouping="keys", keys=(Key(expr, "expression", ""),), having=having)
        if choice < 0.27 and not inner.outer and self.room > 0:
            made, inner, where = self.inner(scope, False)
            other = Select((Item(self.column(inner, kind), ""),), made.sources, where)
            return SetQuery(self.pick(EVEN), select, other)
        return select

    def compared(self, left: Expr, scope: Scope) -> Expr:
        """Return a comparison of an exact expression with a scalar sub-query."""
        query = self.scalar_subquery(scope, MEETING[left.kind] + (("mean",) if left.kind == "int" else ()))
        return Expr(f"{{0}} {self.one(('<=', '>=', '<>', '=', '<', '>'))} {{1}}", (left, query), marks=("comparison",))

    def scalar_subquery(self, scope: Scope, kinds: Iterable[str]) -> Expr:
        made, inner, where = self.inner(scope, self.chance(0.55, "correlated"))
        kinds = tuple(dict.fromkeys(kinds))
        call = self.over_aggregates(inner, exact=bool(kinds) and "mean" not in kinds, kinds=kinds)
        query = Select((Item(call, ""),), made.sources, where)
        return Expr("({0})", (query,), call.kind, ("scalar sub-query",))

    # --- queries of several blocks ----------------------------------------------------------------------------------

    def set_operation(self, depth: int = 0, first: tuple[Known, ...] = ()) -> tuple[Query, Columns]:
        """Return two or three blocks in UNION, INTERSECT or EXCEPT."""
        op = self.pick(EVEN)
        if op.startswith("INTERSECT") and self.draw.random() < 0.9:
            # Two random blocks have next to nothing in common: two selections of columns do.
            left, columns = self._columns(depth + 1, first, ())
            right, others = self._columns(depth + 1, (), tuple(kind for _, kind in columns))
        else:
            left, columns = self.block(exact=True, depth=depth + 1, first=first)
            form = self.pick({"plain": 3.0, "grouped": 1.0})
            right, others = self.block(shape=tuple(kind for _, kind in columns), exact=True, depth=depth + 1, form=form)
        query: Query = SetQuery(op, left, right)
        columns = tuple((name, _wider(kind, other)) for (name, kind), (_, other) in zip(columns, others, strict=True))
        if self.room > 0 and self.draw.random() < 0.12:
            third, others = self._columns(depth + 1, (), tuple(kind for _, kind in columns))
            columns = tuple(
                (name, _wider(kind, other)) for (name, kind), (_, other) in zip(columns, others, strict=True)
            )
            query = SetQuery(self.pick(EVEN), query, third)
        return query, columns

    def _columns(self, depth: int, first: tuple[Known, ...], shape: tuple[str, ...]) -> tuple[Query, Columns]:
        """Return a plain SELECT of one or two columns, or of the kinds of a shape."""
        made = self.froms(self._count(depth, len(first)), depth, first)
        scope = self.scope_of(made, depth)
        kinds = [kind for kind in scope.kinds() if kind not in ROUGH] or ["int"]
        shape = shape or tuple(self.one(kinds) for _ in range(self.one((1, 1, 2))))
        items, columns = self.named([self.column(scope, kind) for kind in shape], scope)
        where = made.where + ((self.condition(scope),) if self.draw.random() < 0.2 else ())
        return Select(items, made.sources, where), columns

    def with_ctes(self) -> tuple[Query, Columns]:
        """Return a query with one or two common table expressions, one of them perhaps used twice."""
        before = list(self.known)
        ctes: list[Cte] = []
        for _ in range(self.one((1, 1, 2))):
            name = f"w{len(self.known)}"
            form = self.pick({"grouped": 1.5, "plain": 1.0, "set": 0.3})
            query, columns = self.set_operation(1) if form == "set" else self.block(form=form, depth=1)
            ctes.append(Cte(name, query))
            self.known.append(Known(name, columns, "cte"))
        last = self.known[-1]
        if self.chance(0.45, "CTE used twice"):
            if self.draw.random() < 0.5:
                body, columns = self.block(first=(last, last))
            else:
                body, columns = self.block(first=(last,))
                body = self._again(body, last)
        elif self.draw.random() < 0.1 and self.room > 0:
            body, columns = self.set_operation(first=(last,))
        else:
            body, columns = self.block(first=(last,))
        self.known[:] = before
        return With(tuple(ctes), body), columns

    def _again(self, body: Query, cte: Known) -> Query:
        """Return a block with one more condition: a sub-query over a common table expression."""
        assert isinstance(body, Select)
        alias = self.new_alias("")
        inner = Scope(tuple(Col(name, kind, alias) for name, kind in cte.columns))
        kinds = tuple(kind for kind in inner.kinds() if kind in MEETING and kind not in ROUGH)
        if kinds:
            kind = self.one(kinds)
            call = Expr(f"{self.one(('MIN', 'MAX'))}({{0}})", (self.column(inner, kind),), kind, ("MIN",))
            call = replace(call, marks=(call.template[:3],))
        else:
            kind, call = "int", Expr("COUNT(*)", kind="int", marks=("COUNT(*)",))
        query = Select((Item(call, ""),), (TableRef(cte.name, alias, "cte"),))
        there = next(
            (source for source in body.sources if isinstance(source, TableRef) and source.name == cte.name), None
        )
        left = Expr(self.one(("0", "2")), kind="int")
        if there is not None and kinds:
            left = self.one([Col(n, k, there.alias) for n, k in cte.columns if k == kind]).expr()
        elif kinds:
            left = self.literal(kind)
        nested = Expr("({0})", (query,), kind, ("scalar sub-query",))
        condition = Expr(f"{{0}} {self.one(('<=', '>=', '<>', '='))} {{1}}", (left, nested), marks=("comparison",))
        return replace(body, where=(*body.where, condition))


def _meeting(kind: str) -> tuple[str, ...]:
    """Return the kinds that may stand for a kind in a shape."""
    if kind in ("int", "big", "decimal"):
        return ("int", "big", "decimal")
    return (kind,) if kind else ()


def _wider(one: str, two: str) -> str:
    """Return the kind of a column that two blocks of a set operation give."""
    order = ("int", "decimal", "big", "float", "mean", "rough")
    return max(one, two, key=order.index) if one in order and two in order else one


def _put(test: Expr, call: Expr) -> Expr:
    """Return a predicate with its only column replaced."""
    if test.alias == "?":
        return call
    return replace(test, parts=tuple(_put(part, call) if isinstance(part, Expr) else part for part in test.parts))
