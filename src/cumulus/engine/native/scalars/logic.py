"""Comparisons, IN with a list, and AND, OR, CASE, IF and COALESCE in the kernel.

Of conditionals no more is evaluated than is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cumulus.algebra.terms import Apply, Term
from cumulus.catalog.types import BOOLEAN, Kind, SqlType
from cumulus.engine.native.kernel.lanes import Scalar, any_null, kernel_type
from cumulus.engine.native.kernel.language import (
    BOOL,
    F64,
    FALSE,
    I128,
    INTEGER_ORDERS,
    TRUE,
    Assign,
    Expr,
    Local,
    Statement,
)
from cumulus.engine.native.scalars.arithmetic import Arithmetic, as_not_null
from cumulus.engine.native.scalars.python_functions import Callee
from cumulus.engine.native.scalars.text_functions import TextFunctions
from cumulus.scalars.python_code import may_raise
from cumulus.scalars.registry import result_type

COMPARED_BY_PYTHON = {Kind.VARCHAR, Kind.INTERVAL, Kind.BIGDECIMAL}
"""What Python compares."""
_FEW = 4
"""As many literals of a list are compared one after the other."""


class Comparisons:
    """Writes comparisons into one function."""

    def __init__(self, arithmetic: Arithmetic, texts: TextFunctions) -> None:
        self._arithmetic, self._texts = arithmetic, texts
        self._body, self._writer = arithmetic.body, arithmetic.writer

    def compare(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Return the two-valued comparison: NULL = NULL, order comparisons with NULL are false."""
        if op in ("=", "<>"):
            same = self._same(left, right)
            return same if op == "=" else ~same
        found = self.ordered(op, left, right)
        for side in (left, right):
            found = side.there_and(found)
        return self._body.let(found, "holds")

    def _same(self, left: Scalar, right: Scalar) -> Expr:
        equal = self.equal(left, right)
        if left.null is None and right.null is None:
            return equal
        nulls = [FALSE if side.null is None else side.null for side in (left, right)]
        return self._body.let((nulls[0] & nulls[1]) | (~(nulls[0] | nulls[1]) & equal), "same")

    def equal(self, left: Scalar, right: Scalar) -> Expr:
        """Return whether two values are equal; anything if one is NULL."""
        if Kind.NULL in (left.type.kind, right.type.kind):
            return FALSE
        if left.type.kind is right.type.kind is Kind.VARCHAR:
            return self._texts.equal(left, right)
        if left.type.kind is right.type.kind is Kind.BOOLEAN:
            return ~(left.value ^ right.value)
        return self.ordered("=", left, right)

    def ordered(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Return a comparison of values that are not NULL."""
        kinds = {left.type.kind, right.type.kind}
        if Kind.NULL in kinds:
            return FALSE
        if kinds == {Kind.VARCHAR}:
            return self._texts.ordered(op, left, right)
        times = self._arithmetic.times.comparable(left, right)
        if times is not None:
            return INTEGER_ORDERS[op](*times)
        if kinds & COMPARED_BY_PYTHON:
            return self._compare_by_python(op, left, right)
        if left.value.type is BOOL or right.value.type is BOOL:
            left, right = (self._arithmetic.as_integer(side) for side in (left, right))
        if F64 in (left.value.type, right.value.type):
            return self._float_order(op, self._arithmetic.as_float(left).value, self._arithmetic.as_float(right).value)
        one, other = self._arithmetic.aligned(left, right)
        return INTEGER_ORDERS[op](one, other)

    def _float_order(self, op: str, left: Expr, right: Expr) -> Expr:
        """Compare floats; NaN is equal to itself and greater than every other number."""
        not_left, not_right = left.ne(left), right.ne(right)
        match op:
            case "=":
                return left.eq(right) | (not_left & not_right)
            case "<":
                return (left < right) | (not_right & ~not_left)
            case "<=":
                return (left <= right) | not_right
            case ">":
                return (left > right) | (not_left & ~not_right)
            case _:
                return (left >= right) | not_left

    def _compare_by_python(self, op: str, left: Scalar, right: Scalar) -> Expr:
        if op in (">", ">="):
            op, left, right = {">": "<", ">=": "<="}[op], right, left
        present = self._body.local(BOOL, "compared")
        self._body.set(present, FALSE)
        with self._arithmetic.unless_null([left, right]):
            found, failed = self._writer.call(self._body, Callee(op), [as_not_null(left), as_not_null(right)], BOOLEAN)
            self._body.set(present, found.value & ~failed)
        return present

    def holds(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Return a comparison; anything if a side is NULL."""
        if op in ("=", "<>"):
            equal = self.equal(left, right)
            return equal if op == "=" else ~equal
        return self.ordered(op, left, right)

    def in_list(self, codes: Sequence[Scalar], literals: Sequence[Any]) -> Scalar:
        """Write IN with a list: literals are searched, all else is compared in turn."""
        body = self._body
        wanted, *others = codes
        fixed: list[tuple[Scalar, Any]] = []
        loose: list[tuple[Scalar, Any]] = []
        for code, value in itertools.zip_longest(others, literals[1:]):
            (fixed if value is not None and value == value else loose).append((code, value))
        found = body.let(FALSE, "among")
        self._search(found, wanted, [code for code, _ in sorted(fixed, key=lambda each: each[1])])
        for code, _ in loose:
            equal = self.equal(wanted, code)
            body.set(found, found | code.there_and(equal))
        unknown = any_null([code for code, _ in loose])
        null = wanted.null if unknown is None else unknown & ~found
        if unknown is not None and wanted.null is not None:
            null = wanted.null | (unknown & ~found)
        return Scalar(BOOLEAN, found, null)

    def _search(self, found: Local, wanted: Scalar, literals: Sequence[Scalar]) -> None:
        """Write whether a value is among literals in ascending order: halves, and the last few one after the other."""
        body = self._body
        if len(literals) <= _FEW:
            for literal in literals:
                body.set(found, found | self.equal(wanted, literal))
            return
        middle = len(literals) // 2
        with body.when(self.ordered("<", wanted, literals[middle])):
            self._search(found, wanted, literals[:middle])
        with body.otherwise():
            self._search(found, wanted, literals[middle:])


class Conditionals:
    """Writes what evaluates some of its arguments only."""

    def __init__(self, arithmetic: Arithmetic, code: Callable[[Term], Scalar]) -> None:
        self._arithmetic, self._code = arithmetic, code
        self._body = arithmetic.body

    def connective(self, function: str, args: tuple[Term, ...]) -> Scalar:
        """Write AND or OR: what comes after a FALSE (TRUE) is not evaluated, what comes after a NULL is."""
        body = self._body
        decisive = function == "or"
        links = _links(function, args)
        decided, null = body.let(FALSE, "decided"), body.let(FALSE, "unknown")
        may_be_null = False
        for arg in links:
            # Each is written once: chains stand in chains, and twice at each level would be 2ⁿ times.
            block, code = self._aside(arg)
            if not may_raise(arg) and all(isinstance(each, Assign) for each in block):
                body.splice(block)
                self._decide(decided, null, code, decisive=decisive)
            else:
                with body.when(~decided):
                    body.splice(block)
                    self._decide(decided, null, code, decisive=decisive)
            may_be_null = may_be_null or code.null is not None
        value = decided if decisive else ~decided
        return Scalar(BOOLEAN, value, body.let(null & ~decided, "null") if may_be_null else None)

    def _aside(self, arg: Term) -> tuple[list[Statement], Scalar]:
        """Return the code of a condition, which is not written yet, and its value."""
        block: list[Statement] = []
        with self._body.inside(block):
            return block, self._arithmetic.cast(self._code(arg), BOOLEAN)

    def _decide(self, decided: Local, null: Local, code: Scalar, *, decisive: bool) -> None:
        """Take one more condition of an OR (`decisive` TRUE) or an AND in."""
        found = code.value if decisive else ~code.value
        self._body.set(decided, decided | code.there_and(found))
        if code.null is not None:
            self._body.set(null, null | code.null)

    def chosen(self, function: str, args: tuple[Term, ...]) -> Scalar:
        """Write CASE, IF or COALESCE: no more is evaluated than is needed."""
        body = self._body
        pairs: list[tuple[Term | None, Term]] = []
        if function == "coalesce":
            pairs = [(None, arg) for arg in args]
        else:
            pairs = [(args[place], args[place + 1]) for place in range(0, len(args) - 1, 2)]
            if len(args) % 2:
                pairs.append((None, args[-1]))
        open_ = body.let(TRUE, "open")
        null = body.let(TRUE, "null")
        ends: list[tuple[list[Statement], Scalar]] = []
        types: list[SqlType] = []
        for condition, arg in pairs:
            with body.when(open_):
                if condition is None:
                    with body.branch(TRUE) as block:
                        ends.append((block, self._end_of(function, arg, open_, null)))
                    types.append(ends[-1][1].type)
                    continue
                test = self._arithmetic.cast(self._code(condition), BOOLEAN)
                types.append(BOOLEAN)
                with body.branch(test.there_and(test.value)) as block:
                    ends.append((block, self._end_of(function, arg, open_, null)))
                types.append(ends[-1][1].type)
        result = result_type(function, tuple(types))
        value, bits = self._joined(ends, result)
        return Scalar(result, value, null, bits)

    def _end_of(self, function: str, arg: Term, open_: Local, null: Local) -> Scalar:
        found = self._code(arg)
        self._body.set(open_, ~found.is_there if function == "coalesce" else FALSE)
        self._body.set(null, ~found.is_there)
        return found

    def _joined(self, ends: list[tuple[list[Statement], Scalar]], result: SqlType) -> tuple[Local, int]:
        """Give one variable the value of whichever branch is taken, cast to the type of all."""
        body = self._body
        done: list[tuple[list[Statement], Scalar]] = []
        for block, scalar in ends:
            with body.inside(block):
                done.append((block, self._arithmetic.writer.numbered(body, self._arithmetic.cast(scalar, result))))
        bits = max(scalar.bits for _, scalar in done)
        kinds = {scalar.value.type for _, scalar in done}
        kernel = kernel_type(result) if len(kinds) == 1 else I128
        if len(kinds) == 1:
            (kernel,) = kinds
        value = body.local(kernel, "chosen")
        for block, scalar in done:
            with body.inside(block):
                body.set(value, scalar.value.to(kernel))
        return value, bits


def _links(function: str, args: Iterable[Term]) -> list[Term]:
    """Return what a chain of AND or OR connects, however it nests."""
    found: list[Term] = []
    waiting = list(args)[::-1]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Apply) and each.function == function:
            waiting += each.args[::-1]
        else:
            found.append(each)
    return found
