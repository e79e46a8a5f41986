"""Comparisons and functions of texts in the kernel; what is not here is Python's.

Two texts that both have numbers are equal where these are. Everything else looks at bytes, and needs no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cumulus.catalog.types import BOOLEAN, Kind, SqlType
from cumulus.engine.native.kernel.lanes import Scalar, bits_of
from cumulus.engine.native.kernel.language import FALSE, I64, INTEGER_ORDERS, PTR, Expr, Immediate, i64
from cumulus.engine.native.scalars.arithmetic import Arithmetic
from cumulus.engine.native.scalars.patterns import Piece, equals, pieces_of
from cumulus.engine.native.store import text_table
from cumulus.engine.native.store.text_table import bytes_of

_AROUND: dict[str, Callable[[Piece], tuple[Piece, ...]]] = {
    "starts_with": lambda piece: (piece, ()),
    "ends_with": lambda piece: ((), piece),
    "contains": lambda piece: ((), piece, ()),
}
_LONGEST = 1 << 40


class TextFunctions:
    """Writes what is done with texts into one function."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self._body, self._writer = arithmetic.body, arithmetic.writer

    # --- comparisons ------------------------------------------------------------------------------------------------

    def equal(self, left: Scalar, right: Scalar) -> Expr:
        """Write whether two texts are equal; anything if one is NULL."""
        if left.length is None and right.length is None:
            return left.value.eq(right.value)
        if left.known is not None:
            left, right = right, left
        body = self._body
        found = body.let(FALSE, "equal")
        with self._arithmetic.unless_null([left, right]):
            address, length = self._writer.bytes_of(body, left)
            if not isinstance(right.known, str):
                other = self._writer.bytes_of(body, right)
                body.set(found, body.call(text_table.texts_equal, address, length, *other).ne(0))
            else:
                known = bytes_of(right.known)
                with body.when(length.eq(len(known))):
                    body.set(found, equals(body, address, known))
        return found

    def ordered(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Write `<`, `<=`, `>` or `>=` of two texts; anything if one is NULL."""
        body = self._body
        found = body.let(FALSE, "holds")
        with self._arithmetic.unless_null([left, right]):
            sides = (part for side in (left, right) for part in self._writer.bytes_of(body, side))
            order = body.call(text_table.compare_texts, *sides, hint="order")
            body.set(found, INTEGER_ORDERS[op](order, i64(0)))
        return found

    # --- functions --------------------------------------------------------------------------------------------------

    def call(self, function: str, codes: Sequence[Scalar], result: SqlType) -> Scalar | None:
        """Write a function of texts, if there is code for it with such arguments."""
        if not codes or codes[0].type.kind is not Kind.VARCHAR:
            return None
        text, *others = codes
        literals = [code.known if isinstance(code.known, str) else None for code in others]
        match function:
            case "like" if None not in literals:
                return self._matched(text, pieces_of(*(each for each in literals if each is not None)))
            case "starts_with" | "ends_with" | "contains" if literals[0] is not None:
                part = bytes_of(literals[0])
                return self._matched(text, _AROUND[function]((part,) if part else ()))
            case "in" if None not in literals:
                return self._among(text, others)
            case "length":
                return self._measured(text, result)
            case "substring" | "left":
                return self._part(text, [i64(1), *_numbers(others)] if function == "left" else _numbers(others))
            case _:
                return None

    def _matched(self, text: Scalar, pieces: tuple[Piece, ...] | None) -> Scalar | None:
        if pieces is None:
            return None
        body = self._body
        found = body.let(FALSE, "matches")
        with self._arithmetic.unless_null([text]):
            body.set(found, body.call(self._writer.matcher(pieces), *self._writer.bytes_of(body, text)).ne(0))
        return Scalar(BOOLEAN, found, text.null)

    def _among(self, text: Scalar, others: Sequence[Scalar]) -> Scalar:
        body = self._body
        found = body.let(FALSE, "among")
        for other in others:
            with body.when(~found):
                body.set(found, self.equal(text, other))
        return Scalar(BOOLEAN, found, text.null)

    def _measured(self, text: Scalar, result: SqlType) -> Scalar:
        body = self._body
        found = body.let(i64(0), "characters")
        with self._arithmetic.unless_null([text]):
            body.set(found, body.call(text_table.count_characters, *self._writer.bytes_of(body, text)))
        return Scalar(result, found, text.null, bits_of(result))

    def _part(self, text: Scalar, numbers: Sequence[Expr | None]) -> Scalar | None:
        """Write a part of a text, which lies in it; only where it begins at its start or later, and has a length."""
        plain = [each.value for each in numbers if isinstance(each, Immediate) and 0 <= each.value < _LONGEST]
        if len(plain) < len(numbers) or not plain[0]:
            return None
        body = self._body
        part, size = body.local(PTR, "part"), body.let(i64(0), "size")
        body.set(part, 0)
        with self._arithmetic.unless_null([text]):
            address, length = self._writer.bytes_of(body, text)
            passed, before = int(plain[0]) - 1, i64(0)
            if passed:
                before = body.call(text_table.bytes_of_first, address, length, passed, hint="before")
            body.set(part, address.at(before))
            body.set(size, length - before)
            if len(plain) > 1:
                body.set(size, body.call(text_table.bytes_of_first, part, size, int(plain[1])))
        return Scalar(text.type, part, text.null, length=size)


def _numbers(codes: Sequence[Scalar]) -> list[Expr | None]:
    """Return whole numbers that are never NULL."""
    return [code.value if code.null is None and code.value.type is I64 else None for code in codes]
