"""Aggregates as numbers to maintain and scalars that finish them: AVG is a ratio, SUM of nothing is NULL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.algebra.terms import NULL_VALUE, ONE, ZERO, Apply, Scalar, Term, Var, number, product_of
from cumulus.algebra.typing import Typed, scalar_type
from cumulus.catalog.types import BIGINT, DOUBLE, HUGEINT, Kind, SqlType
from cumulus.sql.bind import Aggregate
from cumulus.sql.conditions import condition, is_not_null, special, summand


@dataclass(frozen=True, slots=True)
class Summed:
    """One number that a view maintains per group: the sum of `term` over its rows."""

    name: str
    term: Term
    type: SqlType


class Sums:
    """Collects the numbers that a view maintains, each once."""

    def __init__(self, variables: Mapping[str, Typed], *, keyless: bool) -> None:
        self.variables = variables
        self.keyless = keyless
        self.columns: list[Summed] = []
        self.column(ONE, BIGINT, "n")

    def column(self, term: Term, found: SqlType, hint: str) -> Scalar:
        """Return the name of the sum of `term` as a variable, adding it if it is new."""
        if term is ZERO:
            return number(0)
        for known in self.columns:
            if known.term is term:
                return Var(known.name)
        taken = {known.name for known in self.columns} | set(self.variables)
        name, count = hint, 1
        while name in taken:
            count += 1
            name = f"{hint}{count}"
        self.columns.append(Summed(name, term, found))
        return Var(name)

    def finish(self, aggregate: Aggregate) -> Scalar:
        """Return the scalar that makes the aggregate's value of sums."""
        variables = self.variables
        only = ONE if aggregate.where is None else condition(aggregate.where, variables)
        if aggregate.arg is None:
            return self.column(only, BIGINT, "n")
        present = product_of([only, is_not_null(aggregate.arg, variables, expand=True)])
        count = self.column(present, BIGINT, "n")
        if aggregate.kind == "count":
            return count
        total: Scalar = self._total(aggregate, aggregate.arg, only)
        if aggregate.kind == "avg":
            total = Apply("div", (total, count))
        if present is ONE and not self.keyless:
            return total
        return Apply("case", (Apply("eq", (count, number(0))), NULL_VALUE, total))

    def _total(self, aggregate: Aggregate, arg: Scalar, only: Term) -> Scalar:
        term = product_of([only, summand(arg, self.variables)])
        found = scalar_type(arg, self.variables)
        if found.is_float:
            plain = self.column(term, DOUBLE, "s")
            odd = self.column(product_of([only, special(arg)]), HUGEINT, "odd")
            return Apply("float_sum", (plain, odd))
        kept = aggregate.type if aggregate.kind == "sum" else SqlType(Kind.DECIMAL, 38, found.scale)
        if aggregate.kind == "avg" and found.kind is not Kind.DECIMAL:
            kept = HUGEINT
        return self.column(term, kept, "s")
