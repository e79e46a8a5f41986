"""Random expressions over the columns of a FROM clause: scalars by kind, conditions, aggregate calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuzz.choosing import Chooser
from fuzz.forms import AGGREGATES, CALLS, EXACT, FORMS, LITERALS, MEETING, PREDICATES, TYPES, Form, result_kind
from fuzz.tree import Expr

OPERATORS = ("=", "=", "<>", "<", "<=", ">", ">=")
MAX_DEPTH = 2


@dataclass(frozen=True)
class Col:
    """A column that may be used: what it is written as, and its table's alias ("" if USING has merged it)."""

    name: str
    kind: str
    alias: str = ""

    def expr(self, *, bare: bool = False) -> Expr:
        written = self.name if bare or not self.alias else f"{self.alias}.{self.name}"
        return Expr(written, kind=self.kind, alias=self.alias)


@dataclass(frozen=True)
class Scope:
    """The columns of a FROM clause, and those of the blocks around it."""

    columns: tuple[Col, ...]
    outer: tuple[Col, ...] = ()
    depth: int = 0
    """How many sub-queries deep the block is."""
    bare: frozenset[str] = frozenset()
    """Names that mean one column without their table."""

    def kinds(self) -> tuple[str, ...]:
        return tuple(column.kind for column in self.columns)

    def of(self, *kinds: str) -> list[Col]:
        return [column for column in self.columns if column.kind in kinds]

    def inside(self) -> tuple[Col, ...]:
        """Return what a sub-query sees of this block and of those around it."""
        return (*(column for column in self.columns if column.alias), *self.outer)


class Expressions(Chooser):
    """Makes expressions; `fuzz.queries` adds sub-queries."""

    def subquery_condition(self, scope: Scope) -> Expr:
        """Return a condition with a sub-query."""
        raise NotImplementedError

    def scalar_subquery(self, scope: Scope, kinds: Iterable[str]) -> Expr:
        """Return a sub-query that has one value of one of some kinds."""
        raise NotImplementedError

    def may_nest(self, scope: Scope) -> bool:
        """Whether there is room for another sub-query."""
        raise NotImplementedError

    # --- scalars ----------------------------------------------------------------------------------------------------

    def column(self, scope: Scope, *kinds: str) -> Expr:
        """Return a column of one of some kinds, or a literal if there is none."""
        found = scope.of(*kinds)
        if not found:
            return self.literal(self.one(kinds))
        column = self.one(found)
        return column.expr(bare=column.name in scope.bare and self.draw.random() < 0.4)

    def literal(self, kind: str) -> Expr:
        """Return a constant."""
        if self.draw.random() < 0.06:
            return Expr(f"CAST(NULL AS {TYPES[kind]})", kind=kind, marks=("CAST",))
        return Expr(self.one(LITERALS.get(kind) or LITERALS["float"]), kind=kind)

    def scalar(self, scope: Scope, kind: str, depth: int = 0) -> Expr:
        """Return an expression of a kind."""
        forms = [form for form in FORMS.get(kind, []) if self._can(form, scope)] if depth < MAX_DEPTH else []
        weights = {"leaf": (3.5 if scope.of(kind) else 0.8) * (1 + depth)}
        weights |= {form.construct: 0.5 for form in forms}
        construct = self.pick(weights)
        if construct == "leaf":
            return self.column(scope, kind)
        return self.formed(self.one([form for form in forms if form.construct == construct]), scope, kind, depth)

    def kind_for(self, scope: Scope, kinds: list[str]) -> str:
        """Return one of some kinds ("int" if there are none), or one that a wanted construct makes."""
        wanted = [
            kind
            for kind, forms in FORMS.items()
            if kind not in ("rough", "bool")
            for form in forms
            if form.construct in self.wanted and form.construct not in ("CASE", "COALESCE", "NULLIF", "comparison")
            if self._can(form, scope)
        ]
        return self.one(wanted) if wanted and self.draw.random() < 0.6 else self.one(kinds or ["int"])

    def _can(self, form: Form, scope: Scope) -> bool:
        """Whether a form has a column to work on."""
        kinds = {operand.removeprefix("column:") for operand in form.operands}
        return "condition" in kinds or bool(scope.of(*kinds))

    def formed(self, form: Form, scope: Scope, kind: str, depth: int) -> Expr:
        """Return a form over random operands, the first of them about columns if that can be."""
        parts = tuple(self._operand(operand, scope, depth) for operand in form.operands)
        return Expr(form.template, parts, kind, (form.construct,))

    def _operand(self, operand: str, scope: Scope, depth: int) -> Expr:
        if operand == "condition":
            return self.condition(scope, depth + 1)
        if operand.startswith("column:"):
            return self.column(scope, operand.removeprefix("column:"))
        return self.scalar(scope, operand, depth + 1)

    # --- conditions -------------------------------------------------------------------------------------------------

    def condition(self, scope: Scope, depth: int = 0, *, likely: bool = True) -> Expr:
        """Return a condition that holds often, or seldom."""
        weights = {"predicate": 7.0, "meeting": 2.0}
        if depth < MAX_DEPTH:
            weights |= {"OR": 1.0, "AND": 0.6, "NOT": 0.6}
            if self.may_nest(scope) and likely:
                weights["sub-query"] = 1.0 if depth else 1.8
        match self.pick(weights):
            case "OR":
                parts = (
                    self.condition(scope, depth + 1),
                    self.condition(scope, depth + 1, likely=self.draw.random() < 0.5),
                )
                return Expr("({0} OR {1})", parts, marks=("OR",))
            case "AND":
                parts = self.condition(scope, depth + 1, likely=likely), self.condition(scope, depth + 1)
                return Expr("({0} AND {1})", parts, marks=("AND",))
            case "NOT":
                return Expr("NOT ({0})", (self.condition(scope, depth + 1, likely=not likely),), marks=("NOT",))
            case "sub-query":
                return self.subquery_condition(scope)
            case "meeting" if (met := self.meeting(scope, scope.columns)) is not None:
                return met
            case _:
                return self.predicate(scope, depth, likely=likely)

    def predicate(self, scope: Scope, depth: int = 0, *, likely: bool = True) -> Expr:
        """Return a predicate of one expression."""
        kinds = [kind for kind in scope.kinds() if kind in PREDICATES] or ["int"]
        wanted = {
            kind
            for kind in kinds
            for form in PREDICATES[kind][0] + PREDICATES[kind][1]
            if form.construct in self.wanted
        }
        kind = self.one(sorted(wanted) if wanted and self.draw.random() < 0.6 else kinds)
        forms = PREDICATES[kind][0 if likely else 1]
        if not likely and self.draw.random() < 0.3:
            forms = PREDICATES[kind][0]
        construct = self.pick({form.construct: 3.0 if form.construct == "comparison" else 1.0 for form in forms})
        form = self.one([form for form in forms if form.construct == construct])
        return self.formed(form, scope, "bool", depth)

    def meeting(self, scope: Scope, others: tuple[Col, ...], operators: tuple[str, ...] = OPERATORS) -> Expr | None:
        """Return a comparison of two columns, the second of `others`, of kinds that compare; None if there are none."""
        pairs = [
            (one, two)
            for one in scope.columns
            for two in others
            if one != two and (two.kind in MEETING[one.kind] or one.kind in MEETING[two.kind])
        ]
        if not pairs:
            return None
        alike = [(one, two) for one, two in pairs if one.kind == two.kind]
        one, two = self.one(alike if alike and self.draw.random() < 0.75 else pairs)
        operator = self.one(operators)
        return Expr(f"{{0}} {operator} {{1}}", (one.expr(), two.expr()), marks=("comparison",))

    # --- aggregates -------------------------------------------------------------------------------------------------

    def aggregate(self, scope: Scope, *, exact: bool = False, kinds: tuple[str, ...] = ()) -> Expr:
        """Return an aggregate call.

        Parameters
        ----------
        exact
            Whether rounded floats must not come out.
        kinds
            What may come out; anything if empty.
        """
        weights: dict[str, float] = {"COUNT(*)": 1.6} if not kinds or "int" in kinds else {}
        for name, (operands, _) in AGGREGATES.items():
            if self._operands(name, operands, scope, exact, kinds):
                weights[name] = {"SUM": 3.0, "COUNT": 1.2, "AVG": 1.2, "MIN": 1.3, "MAX": 1.3}.get(name, 0.45)
        if not weights:
            return Expr("MAX({0})", (self.scalar(scope, kinds[0]),), kinds[0], ("MAX",))
        name = self.pick(weights)
        if name == "COUNT(*)":
            call = Expr("COUNT(*)", kind="int", marks=("COUNT(*)",))
        else:
            kind = self.one(self._operands(name, AGGREGATES[name][0], scope, exact, kinds))
            operand = self.condition(scope, MAX_DEPTH) if kind == "condition" else self.scalar(scope, kind, 1)
            template = CALLS.get(name, f"{name}({{0}})")
            call = Expr(template, (operand,), result_kind(name, kind), (name,))
        if self.chance(0.15, "FILTER"):
            condition = self.condition(scope, MAX_DEPTH)
            return Expr("{0} FILTER (WHERE {1})", (call, condition), call.kind, ("FILTER",))
        return call

    def _operands(
        self, name: str, operands: tuple[str, ...], scope: Scope, exact: bool, kinds: tuple[str, ...]
    ) -> list[str]:
        """Return the kinds of operands, as columns are there, that an aggregate may have here."""
        there = [kind for kind in scope.kinds() if kind in operands] or [
            kind for kind in operands if kind == "condition"
        ]
        results = {kind: result_kind(name, kind) for kind in there}
        return [
            kind
            for kind in there
            if (not exact or results[kind] not in ("mean", "rough")) and (not kinds or results[kind] in kinds)
        ]

    def over_aggregates(self, scope: Scope, *, exact: bool, kinds: tuple[str, ...] = ()) -> Expr:
        """Return an expression over one or two aggregate calls."""
        one = self.aggregate(scope, exact=exact, kinds=kinds)
        if kinds or self.draw.random() < 0.75:
            return one
        return self.around_aggregate(one, self.aggregate(scope, exact=True, kinds=EXACT), exact)

    def around_aggregate(self, one: Expr, two: Expr, exact: bool) -> Expr:
        """Return an expression of the kind of `one` over two aggregate calls."""
        kind = one.kind
        marks: tuple[str, ...] = ("CASE",)
        if kind in ("int", "big", "decimal", "float"):
            number = "big" if kind in ("int", "decimal") else kind
            choice = self.draw.randrange(5)
            if choice == 0 and "COALESCE" not in self.without:
                return Expr("COALESCE({0}, 0)", (one,), kind, ("COALESCE",))
            if choice == 1 and two.kind in ("int", "big"):
                return Expr("({0} + {1})", (one, two), number, ("arithmetic",))
            if choice == 2 and two.kind in ("int", "big") and not exact and number == "big":
                return Expr("({0} / NULLIF({1}, 0))", (one, two), "rough", ("arithmetic", "NULLIF"))
            if choice == 3 and kind != "float":
                return Expr("({0} - 1)", (one,), number, ("arithmetic",))
        test = Expr("{0} > 1", (two,), marks=("comparison",))
        return Expr("CASE WHEN {0} THEN {1} END", (test, one), kind, marks)
