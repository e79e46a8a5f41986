"""Numbers and scalars inside one function of the kernel: evaluating them, and what happens where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias, TypeVar

from cumulus.algebra.terms import Term
from cumulus.catalog.types import BIGDECIMAL, BIGINT, DOUBLE, HUGEINT, MAX_PRECISION, Kind, SqlType, decimal
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import NotNativeError, Number, Scalar
from cumulus.engine.native.kernel.language import F64, I64, I128, TRUE, Expr, Local, i64, select
from cumulus.engine.native.kernel.language import Immediate as Literal
from cumulus.engine.native.scalars.scalar_code import ScalarEmitter
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, Reason, ValueLane, value_lanes
from cumulus.engine.native.values.codec import BoxOp
from cumulus.errors import ValidationError
from cumulus.scalars.typing import Typed

Env: TypeAlias = dict[str, Scalar]
Then: TypeAlias = Callable[[Env, list[Number]], None]
Found = TypeVar("Found")

ONE = Number(i64(1))


class Evaluator:
    """Writes evaluations into one function.

    Parameters
    ----------
    types
        What is known of all variables of the statement.
    site
        Where a failure is told to come from.
    leaf
        Writes a node of value context that stands inside a scalar.
    """

    def __init__(
        self,
        writer: ProgramWriter,
        body: Body,
        types: Mapping[str, Typed],
        site: int,
        leaf: Callable[[Term, Env], Scalar],
    ) -> None:
        self.writer = writer
        self.body = body
        self.types = types
        self.site = site
        self.row: Expr = i64(0)
        """The row of the batch that is being looked at; 0 if there is none, or not just one."""
        self._leaf = leaf

    def increase(self, total: Local, number: Number) -> None:
        """Write the adding of a number to a variable; what does not fit is reported, and left out."""
        if total.type is F64:
            self.body.set(total, total + number.value)
            return
        if number.is_boxed:
            self.body.set(total, self.writer.box(self.body, BoxOp.ADD, total, number.value))
            return
        found, overflow = self.body.checked("add", total, number.value, "total")
        with self.body.when(overflow, likely=False):
            self.report(Reason.OVERFLOW)
        with self.body.otherwise():
            self.body.set(total, found)

    @contextmanager
    def summand(self, numbers: Sequence[Number], lane: ValueLane) -> Iterator[Number]:
        """Write the product that a combination adds, in the type of a lane; what is inside runs if it exists."""
        with self.evaluated(lambda coder: self._fitted(coder, self.product(coder, numbers), lane)) as number:
            if not number.is_float or number.is_sum:
                yield number
                return
            value = number.value
            with self.body.when((value - value).eq(0.0), likely=True):
                yield number
            with self.body.otherwise():
                self.report(Reason.NOT_FINITE)

    def _fitted(self, coder: ScalarEmitter, number: Number, lane: ValueLane) -> Number:
        """Return a number as what is added to a lane."""
        if lane.held is ColumnStorage.BOXED:
            return self._boxed(number)
        if number.is_boxed:
            raise NotNativeError(f"a number of any length for {lane.type}")
        if lane.held.kernel is F64:
            return as_float(coder, number)
        if number.is_float:
            raise ValidationError("a DOUBLE is added to an exact column", hint="Declare the value column DOUBLE.")
        if number.scale > lane.scale:
            raise NotNativeError(f"a number with {number.scale} digits behind the point for {lane.type}")
        value = number.value
        if number.scale < lane.scale:
            factor = 10 ** (lane.scale - number.scale)
            value = coder.arithmetic.whole(
                "mul", value.to(I128), Literal(I128, factor), number.bits + factor.bit_length()
            )
        if lane.held is ColumnStorage.COUNT and value.type is I128:
            coder.arithmetic.fails(value.ne(value.to(I64).to(I128)))
        return Number(self.body.let(value.to(lane.held.kernel), "delta"), lane.scale, min(number.bits, 127))

    def product(self, coder: ScalarEmitter, numbers: Sequence[Number]) -> Number:
        """Write the product of numbers, 1 if there are none."""
        if not numbers:
            return ONE
        found = numbers[0]
        for number in numbers[1:]:
            if found.is_boxed or number.is_boxed:
                found = self._boxed_product(found, number)
                continue
            if found.is_float or number.is_float:
                one, other = as_float(coder, found), as_float(coder, number)
                is_sum = (found.is_unit and number.is_sum) or (found.is_sum and number.is_unit)
                found = Number(self.body.let(one.value * other.value, "product"), is_sum=is_sum)
                continue
            if found.value is ONE.value or number.value is ONE.value:
                found = number if found.value is ONE.value else found
                continue
            bits = found.bits + number.bits
            value = coder.arithmetic.whole("mul", found.value, number.value, bits)
            found = Number(value, found.scale + number.scale, min(bits, 127))
        return found

    def _boxed_product(self, one: Number, other: Number) -> Number:
        if one.is_unit:
            one, other = other, one
        found = self.body.let(self._boxed(one).value, "product")
        with self.body.when(other.value.ne(1) if other.is_unit else TRUE):  # a sign is mostly 1, and a box is slow
            self.body.set(found, self.writer.box(self.body, BoxOp.MULTIPLY, found, self._boxed(other).value))
        return Number(found, is_boxed=True)

    def _boxed(self, number: Number) -> Number:
        """Return an exact number in a box."""
        if number.is_boxed:
            return number
        if number.is_float:
            raise NotNativeError("a product of a DOUBLE and a number of any length")
        wide = self.body.let(number.value.to(I128), "wide")
        words = wide.to(I64), (wide >> 64).to(I64)
        return Number(self.writer.box(self.body, BoxOp.PUT, *words, number.scale), is_boxed=True)

    @contextmanager
    def evaluated(self, compute: Callable[[ScalarEmitter], Found]) -> Iterator[Found]:
        """Write an evaluation; what is written inside runs where it did not fail."""
        coder = self.scalars({})
        with coder.arithmetic.attempt() as outcome:
            found = compute(coder)
        failed = outcome()
        if failed is None:
            yield found
            return
        with self.body.when(failed, likely=False):
            self.report(Reason.RAISED)
        with self.body.otherwise():
            yield found

    def scalars(self, env: Env, attempt: ScalarEmitter | None = None) -> ScalarEmitter:
        """Return what writes scalars over some variables; the caller looks at its failures, or those of the attempt."""

        def lookup(name: str) -> Scalar:
            if name not in env:
                raise ValidationError(f"{name} is not bound", hint="Bind it in the trigger or by a factor to the left.")
            return env[name]

        coder = ScalarEmitter(self.body, self.writer, lookup, lambda term: self._leaf(term, env))
        if attempt is not None:
            coder.arithmetic.flags = attempt.arithmetic.flags
        return coder

    def scalar(self, term: Term, env: Env, attempt: ScalarEmitter) -> Scalar:
        """Write a scalar; its failures are those of an attempt."""
        return self.scalars(env, attempt).code(term)

    def number(self, term: Term, env: Env, attempt: ScalarEmitter | None = None) -> Number:
        """Write a scalar as a number; its failures are those of an attempt, without one it cannot fail."""
        return self.number_of(self.scalars(env, attempt).code(term))

    def compare(self, op: str, left: Scalar, right: Scalar) -> Expr:
        """Write the comparison of two scalars that are written already."""
        return self.scalars({}).comparisons.compare(op, left, right)

    def number_of(self, scalar: Scalar) -> Number:
        """Return the number that a scalar is in value context; NULL is 0."""
        value = scalar.value
        if scalar.type.kind is Kind.NULL:
            return Number(i64(0), 0, 0)
        if scalar.type.kind is Kind.BIGDECIMAL:
            value = value if scalar.null is None else select(scalar.null, i64(0), value)
            return Number(self.body.let(value, "number"), is_boxed=True)
        if not (scalar.type.is_numeric or scalar.type.kind is Kind.BOOLEAN):
            raise ValidationError(
                f"a {scalar.type} stands where a number must stand", hint="Only numbers can be added."
            )
        if value.type not in (F64, I64, I128):
            value = value.to(I64)
        if scalar.null is not None:
            value = select(scalar.null, Literal(value.type, 0), value)
        return Number(self.body.let(value, "number"), scalar.scale, scalar.bits)

    def scalar_of(self, number: Number, kept: SqlType) -> Scalar:
        """Return a number of value context as a scalar of the type in which it is kept, never NULL."""
        if number.is_boxed:
            return Scalar(BIGDECIMAL, number.value)
        if kept == DOUBLE:
            return Scalar(DOUBLE, number.value)
        found = decimal(MAX_PRECISION, number.scale) if number.scale else HUGEINT if kept == HUGEINT else BIGINT
        return Scalar(found, number.value, None, number.bits)

    def number_type(self, term: Term) -> SqlType:
        """Return the type in which the sum that a term is, is kept."""
        return self.writer.typing.number(term, self.types)

    @contextmanager
    def all_but_zero(self, numbers: Sequence[Number]) -> Iterator[None]:
        """Write what happens where none of some numbers is 0; without floats it does not matter where."""
        with ExitStack() as tests:
            if any(number.is_float for number in numbers):
                for number in numbers:
                    tests.enter_context(self.body.when(number.differs_from_zero))
            yield

    def unless_zero(self, number: Number, then: Callable[[], None]) -> None:
        """Write what happens where a number is not 0."""
        if isinstance(number.value, Literal):
            if number.value.value:
                then()
            return
        with self.body.when(number.differs_from_zero):
            then()

    def report(self, reason: Reason) -> None:
        """Write that something failed here."""
        self.writer.report(self.body, self.site, reason, self.row)


def number_lane(kept: SqlType) -> ValueLane:
    """Return how sums of a type are kept."""
    return value_lanes([kept], is_scratch=True)[0]


def read_number(lane: ValueLane, value: Expr) -> Number:
    """Return a sum as a number."""
    if lane.held is ColumnStorage.BOXED:
        return Number(value, is_boxed=True)
    if lane.held.kernel is F64:
        return Number(value, is_sum=True)
    return Number(value, lane.scale, 63 if lane.held is ColumnStorage.COUNT else 127)


def read_value(body: Body, store: MapLayout, column: int, place: Expr) -> Number:
    """Write the reading of a value column of a row."""
    lane = store.values[column]
    offset = store.shape.value(lane.word)
    if lane.held in (ColumnStorage.CELL, ColumnStorage.FLOAT):
        total = body.let(body.load(F64, place, offset) + body.load(F64, place, offset + 8), "value")
        return Number(total, is_sum=True)
    return read_number(lane, body.load(lane.held.kernel, place, offset, "value"))


def as_float(coder: ScalarEmitter, number: Number) -> Number:
    """Return a number as a float."""
    if number.is_float:
        return number
    found = decimal(MAX_PRECISION, number.scale) if number.scale else HUGEINT
    return Number(coder.arithmetic.as_float(Scalar(found, number.value, None, number.bits)).value)
