"""AND, OR, CASE, IF and COALESCE in the kernel: no more is evaluated than is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cumulus.algebra.terms import Apply, Term
from cumulus.catalog.types import BOOLEAN, SqlType
from cumulus.engine.native.kernel.lanes import Scalar, kernel_type
from cumulus.engine.native.kernel.language import FALSE, I128, TRUE, Assign, Local, Statement
from cumulus.engine.native.scalars.arithmetic import Arithmetic
from cumulus.scalars.python_code import may_raise
from cumulus.scalars.registry import result_type


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
