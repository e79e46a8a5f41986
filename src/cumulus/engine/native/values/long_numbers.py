"""Numbers of any length: Python holds them, a word is the number of the box that one is in.

Box 0 is the number 0, so a word is 0 where the number is. A box never changes; what is not needed any more is found by
looking through the maps, now and then, when no transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import IntEnum

from cumulus.catalog.types import EXACT
from cumulus.engine.frames.value_words import joined

_FEW = 10_000
_BYTES = 120
"""Of a box with a number of some digits."""


class BoxOp(IntEnum):
    """What code asks for, with two or three words."""

    ADD = 0
    """Of two boxes."""
    MULTIPLY = 1
    """Of two boxes."""
    PUT = 2
    """The low and the high word of a whole number, and the digits of it that stand behind the point."""


class BigIntegers:
    """Integers beyond 128 bits, kept by Python and referred to by number.

    Examples
    --------
    >>> boxes = BigIntegers()
    >>> one, other = boxes.put(Decimal("0.5")), boxes.put(Decimal(-3))
    >>> boxes[boxes.run(BoxOp.MULTIPLY, one, other, 0)], boxes.run(BoxOp.ADD, one, boxes.put(Decimal("-0.5")), 0)
    (Decimal('-1.5'), 0)
    """

    def __init__(self) -> None:
        self._values: list[Decimal | None] = [Decimal(0)]
        self._free: list[int] = []
        self._many = _FEW

    def __getitem__(self, number: int) -> Decimal:
        value = self._values[number]
        assert value is not None, f"box {number} was emptied"
        return value

    @property
    def bytes(self) -> int:
        """About how many bytes the numbers take."""
        return _BYTES * (len(self._values) - len(self._free))

    def dump(self) -> list[Decimal | None]:
        """Return the numbers by their boxes, None in a free one; `replace` takes them."""
        return list(self._values)

    def replace(self, values: Sequence[Decimal | None]) -> None:
        """Make these numbers the contents."""
        self._values = list(values)
        self._free = [number for number, value in enumerate(self._values) if value is None]
        self._many = max(_FEW, 2 * (len(self._values) - len(self._free)))

    @property
    def are_many(self) -> bool:
        """Whether it is time to sweep."""
        return len(self._values) - len(self._free) >= self._many

    def put(self, value: Decimal) -> int:
        """Return a box with a number in it."""
        if not value:
            return 0
        if self._free:
            number = self._free.pop()
            self._values[number] = value
            return number
        self._values.append(value)
        return len(self._values) - 1

    def run(self, op: int, left: int, right: int, more: int) -> int:
        """Do what code asks for; return the box of the result."""
        match op:
            case BoxOp.ADD:
                return self.put(EXACT.add(self[left], self[right]))
            case BoxOp.MULTIPLY:
                return self.put(EXACT.multiply(self[left], self[right]))
            case _:
                return self.put(Decimal(joined(left, right)).scaleb(-more, EXACT))

    def sweep(self, used: Callable[[], Iterable[int]]) -> None:
        """Empty what is not used any more, if there may be much of it."""
        if not self.are_many:
            return
        needed = {0, *used()}
        self._free = [number for number in range(len(self._values)) if number not in needed]
        for number in self._free:
            self._values[number] = None
        self._many = max(_FEW, 2 * len(needed))
