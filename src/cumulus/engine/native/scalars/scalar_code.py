"""SQL scalars in the kernel.

Comparisons and logic are code of their own, as are `cumulus.engine.native.scalars.arithmetic` and what
`cumulus.engine.native.scalars.text_functions` has for texts. Every other function is Python's, called through the host:
its arguments and its value travel as words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from cumulus.algebra.terms import Apply, Cast, Compare, Const, Term, Var
from cumulus.catalog.types import BOOLEAN, DOUBLE, Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import NotNativeError, Scalar, any_null, bits_of, kernel_type
from cumulus.engine.native.kernel.language import BOOL, F64, FALSE, I64, I128, TRUE, Assign, Expr, Local, Statement
from cumulus.engine.native.scalars.arithmetic import Fixed, Host, is_exact, sure
from cumulus.engine.native.scalars.python_functions import Callee
from cumulus.engine.native.scalars.text_functions import Textual
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import COMPARISONS, may_raise
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.user import UserFunction

_DIVISIONS = ("div", "intdiv", "mod")
_OUTSIDE = {Kind.VARCHAR, Kind.INTERVAL, Kind.BIGDECIMAL}
"""What Python compares."""
_FEW = 4
"""As many literals of a list are compared one after the other."""


class ScalarEmitter(Textual):
    """Writes the code of scalars into one function.

    Parameters
    ----------
    lookup
        Gives the value of a variable.
    leaf
        Gives the value of a node that is no scalar by itself.
    """

    def __init__(self, body: Body, host: Host, lookup: Callable[[str], Scalar], leaf: Callable[[Term], Scalar]) -> None:
        super().__init__(body, host)
        self._lookup = lookup
        self._leaf = leaf

    def code(self, term: Term) -> Scalar:
        """Write the computing of a scalar; return it."""
        match term:
            case Const(value, sql_type):
                return self.literal(value, sql_type)
            case Var(name):
                return self._lookup(name)
            case Apply(function, args):
                return self._apply(function, args)
            case Cast(arg, target):
                return self.cast(self.code(arg), target)
            case Compare(op, left, right):
                return Scalar(BOOLEAN, self.compare(op, self.code(left), self.code(right)))
            case _:
                return self._leaf(term)

    # --- comparisons ------------------------------------------------------------------------------------------------

    def compare(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Return the two-valued comparison: NULL = NULL, order comparisons with NULL are false."""
        if op in ("=", "<>"):
            same = self._same(left, right)
            return same if op == "=" else ~same
        found = self._ordered(op, left, right)
        for side in (left, right):
            if side.null is not None:
                found = found & ~side.null
        return self._body.let(found, "holds")

    def _same(self, left: Scalar, right: Scalar) -> Expr:
        equal = self._values_equal(left, right)
        if left.null is None and right.null is None:
            return equal
        nulls = [FALSE if side.null is None else side.null for side in (left, right)]
        return self._body.let((nulls[0] & nulls[1]) | (~(nulls[0] | nulls[1]) & equal), "same")

    def _values_equal(self, left: Scalar, right: Scalar) -> Expr:
        if Kind.NULL in (left.type.kind, right.type.kind):
            return FALSE
        if left.type.kind is right.type.kind is Kind.VARCHAR:
            return self.texts_equal(left, right)
        if left.type.kind is right.type.kind is Kind.BOOLEAN:
            return ~(left.value ^ right.value)
        return self._ordered("=", left, right)

    def _ordered(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Return a comparison of values that are not NULL."""
        kinds = {left.type.kind, right.type.kind}
        if Kind.NULL in kinds:
            return FALSE
        if kinds == {Kind.VARCHAR}:
            return self.texts_ordered(op, left, right)
        times = self._times.comparable(left, right)
        if times is not None:
            return _integer_order(op, *times)
        if kinds & _OUTSIDE:
            return self._compared_outside(op, left, right)
        if left.value.type is BOOL or right.value.type is BOOL:
            left, right = (self._as_integer(side) for side in (left, right))
        if F64 in (left.value.type, right.value.type):
            return self._float_order(op, self.as_float(left).value, self.as_float(right).value)
        one, other = self._aligned(left, right)
        return _integer_order(op, one, other)

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

    def _compared_outside(self, op: str, left: Scalar, right: Scalar) -> Expr:
        if op in (">", ">="):
            op, left, right = {">": "<", ">=": "<="}[op], right, left
        present = self._body.local(BOOL, "compared")
        self._body.set(present, FALSE)
        with self._unless_null([left, right]):
            found, failed = self._host.call(self._body, Callee(op), [sure(left), sure(right)], BOOLEAN)
            self._body.set(present, found.value & ~failed)
        return present

    # --- functions --------------------------------------------------------------------------------------------------

    def _apply(self, function: str, args: tuple[Term, ...]) -> Scalar:
        match function:
            case "and" | "or":
                return self._connective(function, args)
            case "not":
                inner = self.cast(self.code(args[0]), BOOLEAN)
                return Scalar(BOOLEAN, ~inner.value, inner.null)
            case "is_null":
                found = self.code(args[0]).null
                return Scalar(BOOLEAN, FALSE if found is None else found)
            case "try":
                return self._try(args[0])
        user = self._host.user_function(function)
        if user is not None:
            return self._users(user, args)
        if function in ("case", "if", "coalesce"):
            return self._chosen(function, args)
        codes = [self.code(arg) for arg in args]
        if function in COMPARISONS:
            value = self._ordered_or_equal(COMPARISONS[function], codes[0], codes[1])
            return Scalar(BOOLEAN, value, any_null(codes))
        literals = [arg.value if isinstance(arg, Const) else None for arg in args]
        fixed = [f"{arg.type} {arg.value!r}" if isinstance(arg, Const) else None for arg in args]
        return self.call(function, codes, literals, fixed)

    def _ordered_or_equal(self, op: str, left: Scalar, right: Scalar) -> Expr:
        if op in ("=", "<>"):
            equal = self._values_equal(left, right)
            return equal if op == "=" else ~equal
        return self._ordered(op, left, right)

    def call(
        self, function: str, codes: list[Scalar], literals: Sequence[Any] = (), fixed: Fixed | None = None
    ) -> Scalar:
        """Write a call of a function of the dialect; for `fixed` see `Host.call`."""
        if function not in FUNCTIONS:
            raise NotNativeError(f"the function {function}, of which nothing is known")
        definition = FUNCTIONS[function]
        types = tuple(code.type for code in codes)
        result = result_type(function, types, literals)
        if function in ("add", "sub", "mul", "neg") and all(is_exact(code.type) for code in codes):
            return self._arithmetic(function, codes, result)
        if function in ("add", "sub", "mul") and result == DOUBLE:
            return self._float_arithmetic(function, codes)
        codes = [self.cast(code, to) for code, to in zip(codes, definition.arguments(types), strict=True)]
        time = self._timed(function, codes, result)
        if time is not None:
            return time
        summed = self.summed_float(function, codes)
        if summed is not None:
            return summed
        text = self.text_function(function, codes, result)
        if text is not None:
            return text
        if function == "in" and all(code.type.kind not in {*_OUTSIDE, Kind.NULL} for code in codes):
            return self._in_list(codes, literals)
        if function in _DIVISIONS and all(is_exact(code.type) or code.type.is_float for code in codes):
            return self._divided(function, codes, result, fixed)
        return self._outside(Callee(function), codes, result, strict=definition.strict, fixed=fixed)

    def _in_list(self, codes: Sequence[Scalar], literals: Sequence[Any]) -> Scalar:
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
            equal = self._values_equal(wanted, code)
            body.set(found, found | (equal if code.null is None else equal & ~code.null))
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
                body.set(found, found | self._values_equal(wanted, literal))
            return
        middle = len(literals) // 2
        with body.when(self._ordered("<", wanted, literals[middle])):
            self._search(found, wanted, literals[:middle])
        with body.otherwise():
            self._search(found, wanted, literals[middle:])

    def _timed(self, function: str, codes: list[Scalar], result: SqlType) -> Scalar | None:
        """Write a function of times, if there is code for it; what is beyond its words is left to Python."""
        written = self._times.function(function, codes, result)
        if written is None:
            return None
        found, beyond = written
        if beyond is None:
            return found
        value = self._body.let(found.value, "time")
        with self._body.when(beyond, likely=False):
            args = [sure(code) for code in codes]
            called, failed = self._host.call(self._body, Callee(function), args, result, is_rare=True)
            self.fails(failed)
            self._body.set(value, called.value)
        return replace(found, value=value)

    def _divided(self, function: str, codes: list[Scalar], result: SqlType, fixed: Fixed | None) -> Scalar:
        """Write a division; what is divided by 0 or -1, and what is wide, is left to Python."""
        body = self._body
        if result == DOUBLE and function != "mod":
            left, right = (self.as_float(code).value for code in codes)
            is_plain = right.ne(0.0)
        elif all(code.type.is_integer and code.value.type is I64 for code in codes) and kernel_type(result) is I64:
            left, right = (code.value for code in codes)
            is_plain = right.ne(0) & right.ne(-1)
        else:
            return self._outside(Callee(function), codes, result, strict=True, fixed=fixed)
        value, unknown = body.local(left.type, "quotient"), any_null(codes)
        body.set(value, 0)
        with self._unless_null(codes):
            with body.when(is_plain, likely=True):
                body.set(
                    value, left / right if left.type is F64 else left % right if function == "mod" else left // right
                )
            with body.otherwise():
                args = [sure(code) for code in codes]
                found, failed = self._host.call(body, Callee(function), args, result, is_rare=True)
                self.fails(failed)
                body.set(value, found.value)
        return Scalar(result, value, unknown, bits_of(result))

    def _users(self, user: UserFunction, args: tuple[Term, ...]) -> Scalar:
        signature = user.signature
        if len(args) != len(signature.parameters):
            raise ValidationError(f"{signature.name} takes {len(signature.parameters)} arguments, not {len(args)}")
        codes = [self.cast(self.code(arg), to) for arg, to in zip(args, signature.parameters, strict=True)]
        return self._outside(
            Callee(user.name, is_user=True), codes, signature.result, strict=not signature.called_with_null
        )

    def _try(self, arg: Term) -> Scalar:
        with self.attempt() as outcome:
            found = self.code(arg)
        failed = outcome()
        if failed is None:
            return found
        return replace(found, null=failed if found.null is None else failed | found.null)

    # --- logic ------------------------------------------------------------------------------------------------------

    def _connective(self, function: str, args: tuple[Term, ...]) -> Scalar:
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
            return block, self.cast(self.code(arg), BOOLEAN)

    def _decide(self, decided: Local, null: Local, code: Scalar, *, decisive: bool) -> None:
        """Take one more condition of an OR (`decisive` TRUE) or an AND in."""
        found = code.value if decisive else ~code.value
        self._body.set(decided, decided | (found if code.null is None else found & ~code.null))
        if code.null is not None:
            self._body.set(null, null | code.null)

    def _chosen(self, function: str, args: tuple[Term, ...]) -> Scalar:
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
                test = self.cast(self.code(condition), BOOLEAN)
                types.append(BOOLEAN)
                with body.branch(test.value if test.null is None else test.value & ~test.null) as block:
                    ends.append((block, self._end_of(function, arg, open_, null)))
                types.append(ends[-1][1].type)
        result = result_type(function, tuple(types))
        value, bits = self._joined(ends, result)
        return Scalar(result, value, null, bits)

    def _end_of(self, function: str, arg: Term, open_: Local, null: Local) -> Scalar:
        found = self.code(arg)
        there = TRUE if found.null is None else ~found.null
        self._body.set(open_, ~there if function == "coalesce" else FALSE)
        self._body.set(null, ~there)
        return found

    def _joined(self, ends: list[tuple[list[Statement], Scalar]], result: SqlType) -> tuple[Local, int]:
        """Give one variable the value of whichever branch is taken, cast to the type of all."""
        body = self._body
        done: list[tuple[list[Statement], Scalar]] = []
        for block, scalar in ends:
            with body.inside(block):
                done.append((block, self._host.numbered(body, self.cast(scalar, result))))
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


def _integer_order(op: str, left: Expr, right: Expr) -> Expr:
    match op:
        case "=":
            return left.eq(right)
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right
