"""Numbers of value context, and scalars over the variables of an environment, as Python source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from cumulus.algebra import float_sums, terms
from cumulus.algebra.terms import Term
from cumulus.catalog.types import DOUBLE, HUGEINT, MAX_PRECISION, Kind, SqlType, decimal
from cumulus.engine.interpreter.writer import Writer
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import NamePool, PythonCode, ScalarCoder


class NumberKind(IntEnum):
    """What is known of a number; where two meet, the greater is the kind of the result."""

    INT = 0
    DEC = 1
    FLOAT = 2
    ANY = 3


class Value(NamedTuple):
    """A Python expression (atomic) for a number, its kind, and its SQL type if that is known.

    A sum that a map has may have grown beyond DOUBLE; then it is inf or -inf.
    """

    text: str
    kind: NumberKind
    type: SqlType | None = None
    is_sum: bool = False


ONE = Value("1", NumberKind.INT)


def kind_of(sql_type: SqlType | None) -> NumberKind | None:
    """Return the kind of numbers of a type: ANY if the type is unknown, None if it has no numbers."""
    if sql_type is None or sql_type.kind is Kind.NULL:
        return NumberKind.ANY
    if sql_type.is_integer or sql_type.kind is Kind.BOOLEAN:
        return NumberKind.INT
    if sql_type.kind in (Kind.DECIMAL, Kind.BIGDECIMAL):
        return NumberKind.DEC
    return NumberKind.FLOAT if sql_type.is_float else None


def number_of(code: PythonCode, pool: NamePool) -> Value:
    """Return the number that a scalar is in value context (NULL is 0).

    Raises
    ------
    ValidationError
        If values of its type are no numbers.
    """
    kind = kind_of(code.type)
    text = code.text
    if kind is None:
        raise ValidationError(f"a {code.type} stands where a number must stand", hint="Only numbers can be added.")
    if kind is NumberKind.ANY:
        return Value(f"{pool.bind(float_sums.ring, 'ring')}({text})", kind)
    assert code.type is not None, "a kind other than ANY comes from a type"
    if code.type.kind is Kind.BOOLEAN:
        return Value(f"int({text} or 0)" if code.nullable else f"int({text})", kind)
    return Value(f"({text} or 0)" if code.nullable else text, kind, code.type)


def scalar_of(value: Value, pool: NamePool) -> PythonCode:
    """Return a number of value context as a scalar, never NULL."""
    if value.kind is NumberKind.FLOAT:
        return PythonCode(f"(float({value.text}) + 0.0)", DOUBLE, False)  # -0.0 is 0.0
    return PythonCode(value.text, value.type or (HUGEINT if value.kind is NumberKind.INT else None), False)


def product(values: Sequence[Value], pool: NamePool) -> Value:
    """Return the product of numbers, 1 if there are none."""
    if not values:
        return ONE
    if len(values) == 1:
        return values[0]
    kind = max(value.kind for value in values)
    scales = [_scale(value) for value in values]
    found = None if None in scales else _exact_type(sum(scale for scale in scales if scale is not None))
    if kind is NumberKind.ANY:
        times = pool.bind(terms.multiply, "multiply")
        text = values[0].text
        for value in values[1:]:
            text = f"{times}({text}, {value.text})"
        return Value(text, kind)
    texts = [_met(value, kind) for value in values]
    return Value(f"({' * '.join(texts)})", kind, found)


def _scale(value: Value) -> int | None:
    """Return the scale of an exact number of a known type."""
    if value.type is not None and value.type.is_exact and value.type.kind is not Kind.BIGDECIMAL:
        return value.type.scale
    return 0 if value.kind is NumberKind.INT else None


def _exact_type(scale: int) -> SqlType | None:
    """Return the type of exact numbers of a scale."""
    if scale > MAX_PRECISION:
        return None
    return decimal(MAX_PRECISION, scale) if scale else HUGEINT


def _met(value: Value, kind: NumberKind) -> str:
    """Return the text of `value` where it meets numbers of `kind`: Python does not mix Decimal and float."""
    if kind is NumberKind.FLOAT and value.kind is NumberKind.DEC:
        return f"float({value.text})"
    return value.text


@dataclass(slots=True)
class Accumulator:
    """Lines that add to one target, written when the kinds of all their values are known.

    Parameters
    ----------
    render
        From the text of a value to the line that adds it, given whether the plain `+` will do.
    floats
        From the text of a value to the line that adds it where all are floats, if that is another one.
    """

    writer: Writer
    render: Callable[[str, bool], str]
    floats: Callable[[str], str] | None = None
    lines: list[tuple[int, Value]] = field(default_factory=list)
    """The places of lines, and what they add."""

    def add(self, value: Value) -> None:
        """Reserve the line that adds `value` here."""
        self.lines.append((self.writer.reserve(), value))

    @property
    def type(self) -> SqlType | None:
        """The type of the sum, if the types of all its values are known and exact."""
        scales = [_scale(value) for _, value in self.lines]
        return None if None in scales else _exact_type(max((s for s in scales if s is not None), default=0))

    def finish(self) -> NumberKind:
        """Write the lines; return the kind of the sum."""
        kind = max((value.kind for _, value in self.lines), default=NumberKind.INT)
        for place, value in self.lines:
            text = _met(value, kind)
            if kind is NumberKind.FLOAT and self.floats is not None:
                self.writer.fill(place, self.floats(text))
            else:
                self.writer.fill(place, self.render(text, kind is not NumberKind.ANY))
        return kind


Env: TypeAlias = dict[str, PythonCode]
"""Variables, and the code of their values."""


@dataclass(frozen=True, slots=True)
class EnvScalars:
    """Writes scalars; `leaf` writes a node of value context inside one."""

    pool: NamePool
    leaf: Callable[[Term, Env], PythonCode]

    def code(self, term: Term, env: Env) -> PythonCode:
        """Return the code of a scalar; what must be computed before is written."""
        return self.coder(env).code(term)

    def compare(self, op: str, left: PythonCode, right: PythonCode) -> str:
        """Return the comparison of two scalars that are written already."""
        return self.coder({}).compare(op, left, right)

    def coder(self, env: Env) -> ScalarCoder:
        """Return what writes scalars over the variables of `env`."""

        def lookup(name: str) -> PythonCode:
            if name not in env:
                raise ValidationError(f"{name} is not bound", hint="Bind it in the trigger or by a factor to the left.")
            return env[name]

        return ScalarCoder(self.pool, lookup, lambda term: self.leaf(term, env))
