"""Scalars as DuckDB's SQL: what maps are defined by, and what makes the rows of views of sums, as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cumulus.algebra.printing import print_text
from cumulus.algebra.terms import Apply, Cast, Compare, Const, Product, Sum, Term, Var
from cumulus.catalog.types import Interval, Kind
from cumulus.scalars.float_parts import PLACES

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%", "concat": "||", "eq": "=", "ne": "<>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE",
    "is_distinct": "IS DISTINCT FROM", "bit_and": "&", "bit_or": "|",
}  # fmt: skip
_PREFIX = {"not": "NOT ", "neg": "-", "bit_not": "~"}


class ScalarText:
    """Writes scalars over variables.

    Parameters
    ----------
    bound
        Variable → its SQL.
    not_null
        Those that are never NULL.
    """

    def __init__(self, bound: Mapping[str, str], not_null: Collection[str]) -> None:
        self.bound, self.not_null = dict(bound), set(not_null)

    def comparison(self, op: str, left: Term, right: Term) -> str:
        """Return a comparison as `Compare` means it: NULL equals NULL."""
        first, second = self.scalar(left), self.scalar(right)
        if all(
            term.name in self.not_null if isinstance(term, Var) else isinstance(term, Const) and term.value is not None
            for term in (left, right)
        ):  # then SQL's comparison is ours
            return f"{first} {op} {second}"
        if op == "=":
            return f"{first} IS NOT DISTINCT FROM {second}"
        if op == "<>":
            return f"{first} IS DISTINCT FROM {second}"
        return f"({first} {op} {second}) IS TRUE"

    def value(self, term: Term) -> str:
        """Return a number in value context: NULL counts as 0."""
        match term:
            case Sum(parts):
                return "(" + " + ".join(self.value(part) for part in parts) + ")"
            case Product(parts):
                return "(" + " * ".join(self.value(part) for part in parts) + ")"
            case Compare(op, left, right):
                return f"CAST({self.comparison(op, left, right)} AS INTEGER)"
            case Const():
                return literal(term)
            case Apply("finite" | "exactly", (inner,)):
                text = self.scalar(inner)
                return f"CASE WHEN isfinite({text}) THEN {text} ELSE 0 END"
            case Apply("float_whole" | "float_fraction" | "float_rest" as part, (inner,)):
                return _float_part(part, self.scalar(inner))
            case Apply("special", (inner,)):
                text = self.scalar(inner)
                infinite = f"WHEN isinf({text}) AND {text} > 0 THEN {1 << 40} WHEN isinf({text}) THEN {1 << 80}"
                return f"CAST(CASE WHEN isnan({text}) THEN 1 {infinite} ELSE 0 END AS HUGEINT)"
            case Var(name) if name in self.not_null:
                return self.bound[name]
            case _:
                return f"COALESCE({self.scalar(term)}, 0)"

    def scalar(self, term: Term) -> str:
        """Return a SQL value."""
        match term:
            case Var(name):
                return self.bound[name]
            case Const():
                return literal(term)
            case Cast(arg, target):
                return f"CAST({self.scalar(arg)} AS {target})"
            case Apply("case", args):
                branches = "".join(
                    f" WHEN {self.scalar(args[i])} THEN {self.scalar(args[i + 1])}" for i in range(0, len(args) - 1, 2)
                )
                return f"CASE{branches} ELSE {self.scalar(args[-1])} END"
            case Apply("is_null", (arg,)):
                return f"({self.scalar(arg)} IS NULL)"
            case Apply("not" | "neg" | "bit_not" as function, (arg,)):
                return f"({_PREFIX[function]}{self.scalar(arg)})"
            case Apply("in", (arg, *choices)):
                return f"({self.scalar(arg)} IN ({', '.join(self.scalar(c) for c in choices)}))"
            case Apply("float_fits", (inner,)):
                return f"({_float_part('float_rest', self.scalar(inner))} = 0)"
            case Apply("float_total", (whole, fraction, rest)):
                parts = f"{self.scalar(whole)} + {self.scalar(fraction)} * 1e0 / {1 << PLACES}"
                return f"CAST({parts} + {self.scalar(rest)} AS DOUBLE)"
            case Apply("float_sum", (total, odd)):
                return _float_sum(self.scalar(total), self.scalar(odd))
            case Apply("variance_of" | "deviation_of" as function, (n, s, q, missing)):
                count, added, squares, freedom = map(self.scalar, (n, s, q, missing))
                spread = f"CAST({count} * {squares} - {added} * {added} AS DOUBLE) / ({count} * ({count} - {freedom}))"
                root = f"sqrt({spread})" if function == "deviation_of" else spread
                return f"CASE WHEN {count} > {freedom} THEN {root} END"
            case Apply("only_row", (count, value)):
                several = "error('a sub-query in an expression has several rows')"
                return f"CASE WHEN {self.scalar(count)} > 1 THEN {several} ELSE {self.scalar(value)} END"
            case Apply(function, (left, right)) if function in _INFIX:
                return f"({self.scalar(left)} {_INFIX[function]} {self.scalar(right)})"
            case Apply("like" | "ilike" as function, (left, right, escape)):
                return f"({self.scalar(left)} {_INFIX[function]} {self.scalar(right)} ESCAPE {self.scalar(escape)})"
            case Apply(function, args):
                return f"{function}({', '.join(self.scalar(arg) for arg in args)})"
            case _:
                return self.value(term)


def _float_part(part: str, given: str) -> str:
    """Return a number that a float is cut into (`scalars.float_parts`), 0 where it is NULL; NaN and ±inf are rests."""
    unit = f"CAST({1 << PLACES} AS DOUBLE)"
    left = f"({given} - trunc({given}))"
    within, beyond = {
        "float_whole": (f"CAST(trunc({given}) AS HUGEINT)", "0"),
        "float_fraction": (f"CAST(trunc({left} * {unit}) AS HUGEINT)", "0"),
        "float_rest": (f"({left} * {unit} - trunc({left} * {unit})) / {unit}", given),
    }[part]
    return f"CASE WHEN abs({given}) < {unit} THEN {within} WHEN {given} IS NOT NULL THEN {beyond} ELSE 0 END"


def _float_sum(total: str, odd: str) -> str:
    """Return SQL's sum from the sum of the finite numbers and the counts of the others (`scalar_number.special`)."""
    nan, plus, minus = f"({odd}) % {1 << 40}", f"(({odd}) // {1 << 40}) % {1 << 40}", f"({odd}) // {1 << 80}"
    return (
        f"CASE WHEN {odd} = 0 THEN {total} WHEN {nan} > 0 OR ({plus} > 0 AND {minus} > 0) THEN CAST('nan' AS DOUBLE) "
        f"WHEN {plus} > 0 THEN CAST('inf' AS DOUBLE) ELSE CAST('-inf' AS DOUBLE) END"
    )


def literal(term: Const) -> str:
    """Return a literal as DuckDB reads it back with the same type."""
    value, found = term.value, term.type
    if value is None:
        return "NULL"
    match found.kind:
        case Kind.VARCHAR:
            return print_text(str(value))
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.DATE:
            return f"DATE '{value.isoformat()}'"
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return f"{found} '{value.isoformat(sep=' ')}'"
        case Kind.INTERVAL:
            assert isinstance(value, Interval)
            return f"INTERVAL '{value.months} months {value.days} days {value.micros} microseconds'"
        case Kind.DOUBLE | Kind.REAL:
            return f"CAST('{value!r}' AS {found})"
        case Kind.DECIMAL:
            return f"{value:f}"
        case _:
            return str(value)
