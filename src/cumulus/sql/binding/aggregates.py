"""Aggregates as numbers to maintain and scalars that finish them: AVG is a ratio, SUM of nothing is NULL.

Sums of DOUBLE over two tables are taken apart: of `f(a) - g(b)` each side is added up for itself, and nothing is lost.
Sums of floats would lose the difference in what the sides add up to. So each side is cut into numbers that add up
exactly: a whole number, a multiple of 2⁻⁸⁰, and a rest that nearly all floats between 10⁻⁸ and 10²⁴ do not have. Only
rows that have one, or NaN or an infinity, are kept with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import (
    FALSE,
    NULL_VALUE,
    ONE,
    ZERO,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Lift,
    Scalar,
    Term,
    Var,
    negate,
    number,
    product_of,
    sum_of,
)
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, SumRelation
from cumulus.catalog.types import BIGDECIMAL, BIGINT, DOUBLE, HUGEINT, MAX_PRECISION, Kind, SqlType, decimal
from cumulus.scalars.python_code import NAN
from cumulus.scalars.typing import Typed, in_its_type, scalar_type
from cumulus.sql.binding.aggregate_calls import Aggregate
from cumulus.sql.binding.branches import NEVER, BranchScope, settle_branches, sum_branches
from cumulus.sql.binding.conditions import is_not_null, summand
from cumulus.sql.binding.groups import Grouped, derive_relation
from cumulus.sql.binding.scope import Scope

SPREADS = {
    "var_pop": ("variance_of", 0),
    "var_samp": ("variance_of", 1),
    "stddev_pop": ("deviation_of", 0),
    "stddev_samp": ("deviation_of", 1),
}
"""Aggregates of spread: the function that finishes them, and their missing degrees of freedom."""

Factor = Callable[[BranchScope], Term]


Lifts = Callable[[BranchScope], list[Term]]
"""What binds the keys of one grouping set in a branch."""


@dataclass(slots=True)
class Sums:
    """Collects the numbers that a query maintains per group, each once.

    Parameters
    ----------
    scope
        Its branches are settled.
    keys
        The variables of the group, which every set binds.
    sets
        The grouping sets; one where there is plain GROUP BY.
    standing
        Groups that are there even without rows, as products that bind the keys: `()` among several grouping sets. They
        count as a row in the count of rows, and in nothing else.
    """

    scope: Scope
    branches: list[BranchScope]
    keys: tuple[str, ...]
    sets: list[Lifts]
    standing: list[Term] = field(default_factory=list)
    sums: list[SumRelation] = field(default_factory=list)
    ends: list[ExtremumRelation] = field(default_factory=list)
    _known: dict[tuple[object, ...], str] = field(default_factory=dict)
    _values: dict[tuple[object, ...], tuple[str, DerivedRelation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.standing:
            self._add_sum("n", BIGINT, ("rows",), lambda: sum_of([self.rows(lambda within: ONE), *self.standing]))
        else:
            self.column("n", BIGINT, (), lambda within: ONE)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def rows(self, factor: Factor) -> Term:
        """Return the rows of all branches and sets, times a factor."""
        return sum_branches(
            ((within, [*lifts(within), factor(within)]) for lifts in self.sets for within in self.branches), self.keys
        )

    def column(self, hint: str, found: SqlType, identity: tuple[object, ...], factor: Factor) -> Scalar:
        """Return the sum of a factor over the rows as a variable, adding it if it is new."""
        if len(self.branches) == 1:
            identity = (factor(self.branches[0]),)
        return self._add_sum(hint, found, identity, lambda: self.rows(factor))

    def _add_sum(self, hint: str, found: SqlType, identity: tuple[object, ...], make: Callable[[], Term]) -> Scalar:
        name = self._known.get(identity)
        if name is None:
            name = self._new_name(hint, Typed(found, False))
            self._known[identity] = name
            self.sums.append(SumRelation(name, make(), found))
        kept = self.scope.variables[name].type
        return Var(name) if kept == found else Cast(Var(name), found)

    def _new_name(self, hint: str, typed: Typed) -> str:
        """Return a name that no variable and no other sum has."""
        name, count = hint, 1
        while name in self.scope.variables:
            count += 1
            name = f"{hint}{count}"
        self.scope.variables[name] = typed
        return name

    # --- aggregates -------------------------------------------------------------------------------------------------

    def finish(self, aggregate: Aggregate) -> Scalar:
        """Return the scalar that makes the aggregate's value of sums and ends."""
        arg, where = aggregate.arg, aggregate.where

        def only(within: BranchScope) -> Term:
            return ONE if where is None else within.condition(where)

        if arg is None:
            return self.column("n", BIGINT, ("count", None, where), only)
        if isinstance(arg, Const) and arg.value is None and aggregate.kind != "count":
            return Const(None, aggregate.type)

        def present(within: BranchScope) -> Term:
            return product_of([only(within), is_not_null(within.scalar(arg), within.variables, expand=True)])

        if aggregate.kind in ("min", "max"):
            return self._end(aggregate, arg, present)
        if aggregate.kind in ("bool_and", "bool_or", "count_if"):
            return self._conditions(aggregate, arg, only, present)
        if aggregate.kind in SPREADS:
            return self._spread(aggregate, arg, only, present)
        if aggregate.distinct:
            return self._distinct(aggregate, arg, present)
        count = self.column("n", BIGINT, ("count", arg, where), present)
        if aggregate.kind == "count":
            return count
        total: Scalar = self._total(aggregate, arg, only)
        return self._null_of_none(aggregate, arg, total, count, present)

    def _null_of_none(self, aggregate: Aggregate, arg: Scalar, total: Scalar, count: Scalar, present: Factor) -> Scalar:
        if aggregate.kind == "avg":
            total = Apply("div", (total, count))
        if self.keys and not self.standing and len(self.branches) == 1 and present(self.branches[0]) is ONE:
            return total
        return Apply("case", (Apply("eq", (count, number(0))), NULL_VALUE, total))

    def _total(self, aggregate: Aggregate, arg: Scalar, only: Factor) -> Scalar:
        arg_type = scalar_type(arg, self.scope.variables)
        identity = ("sum", arg, aggregate.where)

        def number_of(within: BranchScope) -> Term:
            return product_of([only(within), summand(within.scalar(arg), within.variables)])

        if arg_type.is_float and any(is_summed_by_sides(within, arg) for within in self.branches):
            return self._sum_by_sides(arg, identity, only)
        if arg_type.is_float:
            plain = self.column("s", DOUBLE, identity, number_of)
            return Apply("float_sum", (plain, self._not_finite(arg, aggregate, only)))
        return self.column("s", _total_type(aggregate, arg_type), identity, number_of)

    def _sum_by_sides(self, arg: Scalar, identity: tuple[object, ...], only: Factor) -> Scalar:
        """Return the sum of a difference of floats from exact sums over each side of it."""

        def summed_up(column: FloatSumColumn) -> Scalar:
            kept, part = column.type, column.function
            return self.column(
                column.hint, kept, (part, *identity), lambda w: product_of([only(w), column_summand(w, arg, column)])
            )

        return Apply("float_total", tuple(map(summed_up, COLUMNS)))

    def _spread(self, aggregate: Aggregate, arg: Scalar, only: Factor, present: Factor) -> Scalar:
        """Variance and deviation are made of the count, the sum and the sum of squares, all of them exact."""
        arg_type = scalar_type(arg, self.scope.variables)
        count = self.column("n", BIGINT, ("count", arg, aggregate.where), present)
        is_long = arg_type.is_float or arg_type.scale > MAX_PRECISION // 2

        def value(within: BranchScope) -> Term:
            scalar = within.scalar(arg)
            return Apply("exactly", (scalar,)) if is_long else summand(scalar, within.variables)

        def square(within: BranchScope) -> Term:
            number_ = value(within)
            return product_of([only(within), number_, number_])

        if is_long:
            kept = BIGDECIMAL
            total = self.column("s", kept, ("exact", arg, aggregate.where), lambda w: product_of([only(w), value(w)]))
        else:
            kept = decimal(38, 2 * arg_type.scale) if arg_type.kind is Kind.DECIMAL else HUGEINT
            total = self._total(replace(aggregate, kind="avg"), arg, only)
        squares = self.column("q", kept, ("squares", arg, aggregate.where), square)
        function, missing = SPREADS[aggregate.kind]
        spread = Apply(function, (count, total, squares, number(missing)))
        if not arg_type.is_float:
            return spread
        # One value has no spread, whatever it is; several of which one is not finite have NaN, as in DuckDB.
        tame = Apply("or", (Apply("eq", (self._not_finite(arg, aggregate, only), ZERO)), Apply("le", (count, ONE))))
        return Apply("case", (tame, spread, Const(NAN, DOUBLE)))

    def _not_finite(self, arg: Scalar, aggregate: Aggregate, only: Factor) -> Scalar:
        """Return the count of what is not finite among floats."""
        identity = ("odd", "sum", arg, aggregate.where)
        return self.column("odd", HUGEINT, identity, lambda w: product_of([only(w), _special(w.scalar(arg))]))

    def _conditions(self, aggregate: Aggregate, arg: Scalar, only: Factor, present: Factor) -> Scalar:
        """BOOL_AND is TRUE where no value is FALSE, BOOL_OR where some value is TRUE; COUNT_IF counts these."""
        count = self.column("n", BIGINT, ("count", arg, aggregate.where), present)
        kept = HUGEINT if aggregate.kind == "count_if" else BIGINT
        true = ("true", arg, aggregate.where)
        holds = self.column("t", kept, true, lambda w: product_of([only(w), w.condition(arg)]))
        tests = {"bool_and": Apply("eq", (holds, count)), "bool_or": Apply("gt", (holds, number(0)))}
        return self._null_of_none(aggregate, arg, tests.get(aggregate.kind, holds), count, present)

    def _end(self, aggregate: Aggregate, arg: Scalar, present: Factor) -> Scalar:
        """MIN and MAX are the ends of the group's values, which are kept with their counts."""
        identity = (aggregate.kind, arg, aggregate.where)
        name = self._known.get(identity)
        if name is None:
            found = Typed(scalar_type(arg, self.scope.variables), True)
            value, bind = self._value(arg, found)
            name = self._new_name(aggregate.kind, found)
            self._known[identity] = name
            term = self.rows(_present_rows(present, bind))
            self.ends.append(ExtremumRelation(name, aggregate.kind.upper(), value, term, found.type))
        return Var(name)

    def _value(self, arg: Scalar, typed: Typed) -> tuple[str, Factor]:
        """Return a variable for the values of an argument, and what binds it: nothing where it is a column."""
        if len(self.branches) == 1:
            scalar = self.branches[0].scalar(arg)
            if isinstance(scalar, Var) and scalar.name not in {*self.keys, *self.scope.parameters.values()}:
                return scalar.name, lambda within: ONE
        name = self._new_name("x", typed)
        return name, lambda within: Lift(name, in_its_type(within.scalar(arg), self.scope.variables))

    def _distinct(self, aggregate: Aggregate, arg: Scalar, present: Factor) -> Scalar:
        """Add up over the different values of the group, which are a derived relation."""
        arg_type = scalar_type(arg, self.scope.variables)
        identity = ("distinct", arg, aggregate.where)
        if identity not in self._values:
            value, bind = self._value(arg, Typed(arg_type, False))
            body = self.rows(_present_rows(present, bind))
            count = self._new_name("n", Typed(BIGINT, False))
            rows = Grouped(self.scope, (*self.keys, value), [SumRelation(count, body, BIGINT)], [], [])
            there = Compare(">", Var(count), number(0))
            self._values[identity] = (value, derive_relation(rows, (), there, lookup=False))
        x, values = self._values[identity]
        atom = Atom(values.name, values.parameters)
        different = self._add_sum("d", BIGINT, ("d", *identity), lambda: atom)
        if aggregate.kind == "count":
            return different

        def values_of() -> Term:
            return product_of([atom, summand(Var(x), self.scope.variables)])

        if arg_type.is_float:
            plain = self._add_sum("s", DOUBLE, ("s", *identity), values_of)
            odd = self._add_sum("odd", HUGEINT, ("odd", *identity), lambda: product_of([atom, _special(Var(x))]))
            total: Scalar = Apply("float_sum", (plain, odd))
        else:
            total = self._add_sum("s", _total_type(aggregate, arg_type), ("s", *identity), values_of)
        if aggregate.kind == "avg":
            total = Apply("div", (total, different))
        return Apply("case", (Apply("eq", (different, number(0))), NULL_VALUE, total))


def _present_rows(present: Factor, bind: Factor) -> Factor:
    """Return the rows that are present, each with its value; where none ever is, the value is bound all the same."""

    def rows(within: BranchScope) -> Term:
        there = present(within)
        return product_of([NEVER if there is ZERO else there, bind(within)])

    return rows


def one_group(scope: Scope, *, merging: bool = True) -> tuple[Grouped, Sums]:
    """Return the rows of a scope as one group, which is there without rows too, and what adds up more of it.

    Equal columns become one variable if `merging`: see `settle_branches`.
    """
    sums = Sums(scope, settle_branches(scope, merging=merging), (), [lambda within: []])
    return Grouped(scope, (), sums.sums, sums.ends, [], always=True), sums


def _special(scalar: Scalar) -> Term:
    """Return the number in which NaN and the infinities among floats are counted."""
    return Apply("special", (scalar,))


def _total_type(aggregate: Aggregate, found: SqlType) -> SqlType:
    """Return the type in which an exact total is kept."""
    if aggregate.kind == "avg":
        return decimal(38, found.scale) if found.kind is Kind.DECIMAL else HUGEINT
    return aggregate.type


@dataclass(frozen=True, slots=True)
class FloatSumColumn:
    """One of the sums that a sum of floats is made of.

    Parameters
    ----------
    hint, type
        A name for it, and its type.
    function
        What is added up of a float.
    is_rare
        Whether it is 0 for a float that `float_fits`, so that most rows need not be kept.
    """

    hint: str
    function: str
    type: SqlType
    is_rare: bool


COLUMNS = (
    FloatSumColumn("s", "float_whole", HUGEINT, False),
    FloatSumColumn("f", "float_fraction", HUGEINT, False),
    FloatSumColumn("r", "float_rest", BIGDECIMAL, True),
)
"""What `float_total` makes the sum of."""


def is_summed_by_sides(within: BranchScope, arg: Scalar) -> bool:
    """Whether a float is the sum or difference of two that come from tables which no column joins.

    Where a column does, an event meets the few rows that have its value, and one sum of them costs less than three. It
    is of two only: a float that is rounded more than once may differ from its exact value by more than a part of
    itself.
    """
    match within.scalar(arg):
        case Apply("add" | "sub", (left, right)):
            tables = [frozenset(atom.variables) for atom in within.branch.atoms]
            sides = [_joined_columns(variables_of(side), tables) for side in (left, right)]
            return None not in sides and sides[0] != sides[1]
        case _:
            return False


def _joined_columns(names: frozenset[str], tables: list[frozenset[str]]) -> frozenset[str] | None:
    """Return the columns of all tables that are joined with the one that has some columns; None if none has them."""
    found = next((table for table in tables if names <= table), None) if names else None
    while found is not None:
        more = found.union(*(table for table in tables if not found.isdisjoint(table)))
        if more == found:
            break
        found = more
    return found


def column_summand(within: BranchScope, arg: Scalar, column: FloatSumColumn) -> Term:
    """Return the term that adds up one column of a float: of each side by itself where it is taken apart."""
    scalar = within.scalar(arg)
    if not is_summed_by_sides(within, arg):
        return _part(scalar, column)
    assert isinstance(scalar, Apply), "it is a sum or a difference"
    left, right = scalar.args
    there = is_not_null(scalar, within.variables, expand=True)
    return product_of([there, sum_of([_part(left, column), _part(right, column, minus=scalar.function == "sub")])])


def _part(scalar: Scalar, column: FloatSumColumn, *, minus: bool = False) -> Term:
    if not column.is_rare:
        number = Apply(column.function, (scalar,))
        return negate(number) if minus else number
    # A minus inside: what counts an infinity is another number then, not less.
    given = Apply("neg", (scalar,)) if minus else scalar
    return product_of([Compare("=", Apply("float_fits", (scalar,)), FALSE), Apply(column.function, (given,))])
