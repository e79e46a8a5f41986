"""The kernel language: what machine code is written from, and C, where C is compared with it.

A function has parameters and local variables of five types, and statements: assignments, loads, stores, branches,
loops, calls. Expressions have no effects and read no memory, so they may be written anywhere, twice or never; what has
effects is a statement, and its result is a variable. Integers wrap where nothing else is said (`checked` says else).

Functions are written with a `cumulus.engine.native.kernel.body.Body`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Type(StrEnum):
    """The type of a local variable, as LLVM calls it."""

    BOOL = "i1"
    I64 = "i64"
    I128 = "i128"
    F64 = "double"
    PTR = "ptr"


BOOL, I64, I128, F64, PTR = Type.BOOL, Type.I64, Type.I128, Type.F64, Type.PTR


class Cell(StrEnum):
    """A type that only memory has; loaded, it is an I64 without sign."""

    U8 = "i8"
    U32 = "i32"


U8, U32 = Cell.U8, Cell.U32
InMemory: TypeAlias = Type | Cell
SIZES: dict[InMemory, int] = {U8: 1, U32: 4, I64: 8, I128: 16, F64: 8, PTR: 8}
"""Bytes. An I128 in memory is aligned to 8 bytes only, a U32 to none."""


# --- expressions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """The base of expressions. Operators take another expression of the same type, or a Python number."""

    type: Type

    def __add__(self, other: Operand) -> Expr:
        return self._with("fadd" if self.type is F64 else "add", other)

    def __sub__(self, other: Operand) -> Expr:
        return self._with("fsub" if self.type is F64 else "sub", other)

    def __mul__(self, other: Operand) -> Expr:
        return self._with("fmul" if self.type is F64 else "mul", other)

    def __truediv__(self, other: Operand) -> Expr:
        assert self.type is F64, "whole numbers are divided with `//`"
        return self._with("fdiv", other)

    def __floordiv__(self, other: Operand) -> Expr:
        """The quotient cut towards zero; the divisor must not be 0, and not -1 of the least number."""
        assert self.type is I64
        return self._with("sdiv", other)

    def __mod__(self, other: Operand) -> Expr:
        """What `//` leaves, with the sign of the dividend."""
        assert self.type is I64
        return self._with("srem", other)

    def __and__(self, other: Operand) -> Expr:
        return self._with("and", other)

    def __or__(self, other: Operand) -> Expr:
        return self._with("or", other)

    def __xor__(self, other: Operand) -> Expr:
        return self._with("xor", other)

    def __invert__(self) -> Expr:
        return self._with("xor", -1 if self.type is not BOOL else 1)

    def __neg__(self) -> Expr:
        return Op(self.type, "fneg", (self,)) if self.type is F64 else Immediate(self.type, 0) - self

    def __lshift__(self, other: Operand) -> Expr:
        return self._with("shl", other)

    def __rshift__(self, other: Operand) -> Expr:
        """Shift right without the sign: zeros come in."""
        return self._with("lshr", other)

    def __lt__(self, other: Operand) -> Expr:
        return self._compared("lt", other)

    def __le__(self, other: Operand) -> Expr:
        return self._compared("le", other)

    def __gt__(self, other: Operand) -> Expr:
        return self._compared("gt", other)

    def __ge__(self, other: Operand) -> Expr:
        return self._compared("ge", other)

    def eq(self, other: Operand) -> Expr:
        """Whether both are equal; a NaN is equal to nothing."""
        return self._compared("eq", other)

    def ne(self, other: Operand) -> Expr:
        """Whether they differ; a NaN differs from everything."""
        return self._compared("ne", other)

    def below(self, other: Operand) -> Expr:
        """Whether this is less as a number without sign."""
        return Op(BOOL, "ult", (self, self._operand(other)))

    def to(self, target: Type) -> Expr:
        """Convert: integers keep their value or lose high bits, a BOOL is 0 or 1, an integer becomes a float."""
        if target is self.type:
            return self
        return Op(target, _CONVERSIONS[self.type, target], (self,))

    def bits(self) -> Expr:
        """Return an F64 as the I64 with its bits, and back."""
        return Op(I64 if self.type is F64 else F64, "bitcast", (self,))

    def at(self, offset: Operand) -> Expr:
        """Return the address `offset` bytes behind this one."""
        assert self.type is PTR
        return Op(PTR, "at", (self, offset if isinstance(offset, Expr) else Immediate(I64, offset)))

    def _with(self, name: str, other: Operand) -> Expr:
        return Op(self.type, name, (self, self._operand(other)))

    def _compared(self, name: str, other: Operand) -> Expr:
        return Op(BOOL, f"{'f' if self.type is F64 else ''}{name}", (self, self._operand(other)))

    def _operand(self, other: Operand) -> Expr:
        found = other if isinstance(other, Expr) else Immediate(self.type, other)
        assert found.type is self.type, f"{self.type} meets {found.type}"
        return found


Operand: TypeAlias = Expr | int | float


@dataclass(frozen=True, slots=True, eq=False)
class Immediate(Expr):
    """A literal. A PTR is only ever 0."""

    value: int | float


@dataclass(frozen=True, slots=True, eq=False)
class Local(Expr):
    """A parameter or a variable; its name is its own in the function."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Op(Expr):
    """An operation without effects: `name` is LLVM's, but for comparisons (eq, flt, ult, …), `at` and `select`."""

    name: str
    args: tuple[Expr, ...]


# What needs a function of a compiler's own library, such as I128 to F64, is not here: no such library is at hand.
_CONVERSIONS = {
    (BOOL, I64): "zext",
    (BOOL, I128): "zext",
    (I64, I128): "sext",
    (I128, I64): "trunc",
    (I64, F64): "sitofp",
    (F64, I64): "fptosi",
    (PTR, I64): "ptrtoint",
    (I64, PTR): "inttoptr",
}

TRUE, FALSE, NOWHERE = Immediate(BOOL, 1), Immediate(BOOL, 0), Immediate(PTR, 0)


def i64(value: int) -> Expr:
    """Return a literal I64."""
    return Immediate(I64, value)


def select(condition: Expr, then: Expr, other: Expr) -> Expr:
    """Return `then` where the condition holds, else `other`; both are computed."""
    assert condition.type is BOOL
    assert then.type is other.type
    return Op(then.type, "select", (condition, then, other))


INTEGER_ORDERS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "=": Expr.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparisons of whole numbers by the signs of SQL."""


def absolute(number: Expr) -> Expr:
    """Return a float without its sign."""
    return select(number < 0.0, -number, number)


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Assign:
    """`target` becomes `value`."""

    target: Local
    value: Expr


@dataclass(slots=True)
class Load:
    """`target` becomes what stands at `address` + `offset`."""

    target: Local
    cell: InMemory
    address: Expr
    offset: int


@dataclass(slots=True)
class StoreWord:
    """What stands at `address` + `offset` becomes `value`; a `Cell` takes its low bits."""

    cell: InMemory
    address: Expr
    offset: int
    value: Expr


@dataclass(slots=True)
class CheckedArithmetic:
    """`target` becomes `left` op `right` (add, sub, mul), and `overflow` whether that does not fit."""

    op: str
    target: Local
    overflow: Local
    left: Expr
    right: Expr


@dataclass(slots=True)
class Call:
    """Call a function, or the address `callee` of one; `target` becomes its result."""

    target: Local | None
    callee: Signature
    args: tuple[Expr, ...]
    address: Expr | None = None


@dataclass(slots=True)
class If:
    """`then` where the condition holds, else `other`."""

    condition: Expr
    then: list[Statement] = field(default_factory=list)
    other: list[Statement] = field(default_factory=list)
    likely: bool | None = None
    """What the condition nearly always is; None if nobody knows."""


@dataclass(slots=True)
class Loop:
    """Its body again and again, until a `Break` or a `Return`."""

    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Break:
    """Leave the innermost loop."""


@dataclass(slots=True)
class Return:
    """Leave the function."""

    value: Expr | None


@dataclass(slots=True)
class Prefetch:
    """Say that the memory at `address` will be read, and perhaps written, soon."""

    address: Expr


Statement: TypeAlias = Assign | Load | StoreWord | CheckedArithmetic | Call | If | Loop | Break | Return | Prefetch


# --- functions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """What a caller must know of a function; without a body elsewhere it belongs to the process (malloc …)."""

    name: str
    parameters: tuple[Type, ...]
    result: Type | None = None


@dataclass(slots=True)
class Function:
    """A function with its body.

    Parameters
    ----------
    inline
        True: wherever it is called, in code that is optimised; False: nowhere; None: as the compiler likes.
    is_public
        Whether other modules, and Python, may call it.
    """

    signature: Signature
    parameters: tuple[Local, ...]
    statements: list[Statement] = field(default_factory=list)
    inline: bool | None = None
    is_public: bool = True

    @property
    def name(self) -> str:
        """What callers call it."""
        return self.signature.name


@dataclass(slots=True)
class Module:
    """Functions that are compiled together."""

    functions: list[Function] = field(default_factory=list)
