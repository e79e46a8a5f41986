"""Definitions of maps as SQL over the base tables: for initial loads, checks and documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Cast,
    Compare,
    Const,
    Lift,
    Product,
    Relation,
    Sum,
    Term,
    Var,
)
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import Interval, Kind

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%", "concat": "||", "eq": "=", "ne": "<>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE",
    "is_distinct": "IS DISTINCT FROM",
}  # fmt: skip


def definition_sql(
    values: Sequence[str], keys: Sequence[str], definitions: Sequence[Term], tables: Mapping[str, Table]
) -> str:
    """Return a SELECT of keys and values that computes a map from the base tables.

    Parameters
    ----------
    values
        The names of the value columns.
    keys
        The names of the keys, which the definitions bind.
    definitions
        One term per value column.
    """
    parts = [
        (index, _Parts(part, tables))
        for index, definition in enumerate(definitions)
        for part in _summands(definition.term if isinstance(definition, AggSum) else definition)
    ]
    first = parts[0][1]
    named = ", ".join(_quoted(key) for key in keys)
    if len(parts) == len(values) and all(p.source == first.source and p.bound == first.bound for _, p in parts):
        columns = [f"{first.bound[key]} AS {_quoted(key)}" for key in keys]
        columns += [f"SUM({p.number}) AS {_quoted(name)}" for name, (_, p) in zip(values, parts, strict=True)]
        group = f" GROUP BY {', '.join(first.bound[key] for key in keys)}" if keys else ""
        return f"SELECT {', '.join(columns)} {first.source}{group}"
    selects = [
        "SELECT "
        + ", ".join(
            [f"{part.bound[key]} AS {_quoted(key)}" for key in keys]
            + [f"{part.number if at == index else '0'} AS {_quoted(name)}" for at, name in enumerate(values)]
        )
        + f" {part.source}"
        for index, part in parts
    ]
    totals = ", ".join(f"SUM({_quoted(name)}) AS {_quoted(name)}" for name in values)
    group = f" GROUP BY {named}" if keys else ""
    return f"SELECT {named + ', ' if named else ''}{totals} FROM ({' UNION ALL '.join(selects)}) AS u{group}"


def _summands(body: Term) -> tuple[Term, ...]:
    return body.parts if isinstance(body, Sum) and _has_relation(body) else (body,)


class _Parts:
    """One monomial as the pieces of a SELECT: where its variables come from, its FROM and WHERE, its number."""

    def __init__(self, part: Term, tables: Mapping[str, Table]) -> None:
        self.bound: dict[str, str] = {}
        self.not_null: set[str] = set()
        froms: list[str] = []
        wheres: list[str] = []
        numbers: list[str] = []
        for index, factor in enumerate(part.parts if isinstance(part, Product) else (part,)):
            match factor:
                case Relation(name, variables):
                    alias = f"t{index}"
                    froms.append(f"{_quoted(name)} {alias}")
                    for variable, column in zip(variables, tables[name].columns, strict=True):
                        place = f"{alias}.{_quoted(column.name)}"
                        known = self.bound.setdefault(variable, place)
                        if known != place:
                            safe = column.not_null or variable in self.not_null
                            wheres.append(f"{known} {'=' if safe else 'IS NOT DISTINCT FROM'} {place}")
                        if column.not_null:
                            self.not_null.add(variable)
                case Lift(variable, inner):
                    self.bound[variable] = self.scalar(inner)
                case Compare(op, left, right):
                    wheres.append(self.comparison(op, left, right))
                case _:
                    numbers.append(self.value(factor))
        self.number = " * ".join(numbers) or "1"
        self.source = f"FROM {', '.join(froms)}" + (f" WHERE {' AND '.join(wheres)}" if wheres else "")

    def comparison(self, op: str, left: Term, right: Term) -> str:
        """Return a comparison as `Compare` means it: NULL equals NULL."""
        first, second = self.scalar(left), self.scalar(right)
        if self.not_null_all(left, right):
            return f"{first} {op} {second}"
        if op == "=":
            return f"{first} IS NOT DISTINCT FROM {second}"
        if op == "<>":
            return f"{first} IS DISTINCT FROM {second}"
        return f"({first} {op} {second}) IS TRUE"

    def not_null_all(self, *terms: Term) -> bool:
        """Whether no column or literal in the terms is NULL, so that SQL's comparison is ours."""
        return all(
            term.name in self.not_null if isinstance(term, Var) else isinstance(term, Const) and term.value is not None
            for term in terms
        )

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
            case Apply("finite", (inner,)):
                text = self.scalar(inner)
                return f"CASE WHEN isfinite({text}) THEN {text} ELSE 0 END"
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
            case Apply("not", (arg,)):
                return f"(NOT {self.scalar(arg)})"
            case Apply("neg", (arg,)):
                return f"(-{self.scalar(arg)})"
            case Apply("in", (arg, *choices)):
                return f"({self.scalar(arg)} IN ({', '.join(self.scalar(c) for c in choices)}))"
            case Apply(function, (left, right)) if function in _INFIX:
                return f"({self.scalar(left)} {_INFIX[function]} {self.scalar(right)})"
            case Apply("like" | "ilike" as function, (left, right, escape)):
                return f"({self.scalar(left)} {_INFIX[function]} {self.scalar(right)} ESCAPE {self.scalar(escape)})"
            case Apply(function, args):
                return f"{function}({', '.join(self.scalar(arg) for arg in args)})"
            case _:
                return self.value(term)


def _has_relation(term: Sum) -> bool:
    return any(isinstance(f, Relation) for p in term.parts for f in (p.parts if isinstance(p, Product) else (p,)))


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() and name.isascii() else '"' + name.replace('"', '""') + '"'


def literal(term: Const) -> str:
    """Return a literal as DuckDB reads it back with the same type."""
    value, found = term.value, term.type
    if value is None:
        return "NULL"
    match found.kind:
        case Kind.VARCHAR:
            return "'" + str(value).replace("'", "''") + "'"
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.DATE:
            return f"DATE '{value.isoformat()}'"
        case Kind.TIMESTAMP:
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case Kind.INTERVAL:
            assert isinstance(value, Interval)
            return f"INTERVAL '{value.months} months {value.days} days {value.micros} microseconds'"
        case Kind.DOUBLE | Kind.REAL:
            return f"CAST('{value!r}' AS {found})"
        case Kind.DECIMAL:
            return f"{value:f}"
        case _:
            return str(value)
