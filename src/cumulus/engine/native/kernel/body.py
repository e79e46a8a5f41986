"""Writing functions of the kernel language, statement after statement.

>>> @kernel_function("twice_at", [("place", language.PTR)], I64)
... def twice_at(body: Body, place: Local) -> None:
...     number = body.load(I64, place, 8)
...     body.leave_if(number < 0, number)
...     body.leave(number + number)
>>> [type(each).__name__ for each in twice_at.statements]
['Load', 'If', 'Return']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from cumulus.engine.native.kernel import language
from cumulus.engine.native.kernel.language import BOOL, I64, Expr, Function, Local, Operand, Signature, Type


class Body:
    """Writes the statements of a function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._blocks = [function.statements]
        self._counts: dict[str, int] = {}
        for parameter in function.parameters:
            self._counts[parameter.name] = 1

    def parameter(self, name: str) -> Local:
        """Return the parameter called `name`."""
        return next(each for each in self.function.parameters if each.name == name)

    def local(self, type_: Type, hint: str = "t") -> Local:
        """Return a new variable, without a value."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return Local(type_, f"{hint}.{count}" if count else hint)

    def let(self, value: Expr, hint: str = "t") -> Local:
        """Return a new variable with this value."""
        target = self.local(value.type, hint)
        self._add(language.Assign(target, value))
        return target

    def set(self, target: Local, value: Operand) -> None:
        """Give a variable another value."""
        self._add(language.Assign(target, value if isinstance(value, Expr) else language.Immediate(target.type, value)))

    def load(self, cell: language.InMemory, address: Expr, offset: int = 0, hint: str = "t") -> Local:
        """Load a cell of memory into a new variable.

        Parameters
        ----------
        cell
            Type of the cell in memory.
        address, offset
            Where it is: a pointer, and bytes behind it.
        hint
            Beginning of the variable's name.
        """
        target = self.local(cell if isinstance(cell, Type) else I64, hint)
        self._add(language.Load(target, cell, address, offset))
        return target

    def store(self, cell: language.InMemory, address: Expr, offset: int, value: Operand) -> None:
        """Store a value in a cell of memory.

        Parameters
        ----------
        cell
            Type of the cell in memory.
        address, offset
            Where it is: a pointer, and bytes behind it.
        value
            What is written, of the type of the cell.
        """
        type_ = cell if isinstance(cell, Type) else I64
        found = value if isinstance(value, Expr) else language.Immediate(type_, value)
        assert found.type is type_, f"{found.type} is stored as {cell}"
        self._add(language.StoreWord(cell, address, offset, found))

    def checked(self, op: str, left: Expr, right: Operand, hint: str = "t") -> tuple[Local, Local]:
        """Return the sum, difference or product of two integers, and whether it does not fit their type.

        Parameters
        ----------
        op
            The operation on integers, such as "add".
        left, right
            Operands of one type.
        hint
            Beginning of the variable's name.
        """
        found = right if isinstance(right, Expr) else language.Immediate(left.type, right)
        target, overflow = self.local(left.type, hint), self.local(BOOL, "overflow")
        self._add(language.CheckedArithmetic(op, target, overflow, left, found))
        return target, overflow

    def call(self, callee: Signature | Function, *args: Operand, hint: str = "t") -> Local:
        """Call a function that has a result; return it."""
        signature, values = _called(callee, args)
        assert signature.result is not None
        target = self.local(signature.result, hint)
        self._add(language.Call(target, signature, values))
        return target

    def run(self, callee: Signature | Function, *args: Operand) -> None:
        """Call a function for its effects."""
        signature, values = _called(callee, args)
        self._add(language.Call(None, signature, values))

    def call_at(self, address: Expr, signature: Signature, *args: Operand, hint: str = "t") -> Local:
        """Call the function at an address; return its result."""
        assert signature.result is not None
        _, values = _called(signature, args)
        target = self.local(signature.result, hint)
        self._add(language.Call(target, signature, values, address))
        return target

    def prefetch(self, address: Expr) -> None:
        """Say that memory will be read soon."""
        self._add(language.Prefetch(address))

    def leave(self, value: Operand | None = None) -> None:
        """Return from the function."""
        result = self.function.signature.result
        if value is None or isinstance(value, Expr):
            self._add(language.Return(value))
        else:
            assert result is not None
            self._add(language.Return(language.Immediate(result, value)))

    def stop(self) -> None:
        """Leave the innermost loop."""
        self._add(language.Break())

    @contextmanager
    def when(self, condition: Expr, likely: bool | None = None) -> Iterator[None]:
        """Write what happens only where the condition holds."""
        statement = language.If(condition, likely=likely)
        self._add(statement)
        with self.inside(statement.then):
            yield

    def leave_if(self, condition: Expr, value: Operand | None = None, likely: bool | None = None) -> None:
        """Return from the function where the condition holds."""
        with self.when(condition, likely):
            self.leave(value)

    def stop_if(self, condition: Expr, likely: bool | None = None) -> None:
        """Leave the innermost loop where the condition holds."""
        with self.when(condition, likely):
            self.stop()

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Write what happens where the condition of the `when` just written does not hold."""
        before = self._blocks[-1][-1]
        assert isinstance(before, language.If)
        assert not before.other, "one otherwise for a when"
        with self.inside(before.other):
            yield

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Write what is done again and again; `stop` leaves."""
        statement = language.Loop()
        self._add(statement)
        with self.inside(statement.body):
            yield

    @contextmanager
    def loop_while(self, condition: Expr) -> Iterator[None]:
        """Write what is done as long as the condition holds."""
        with self.loop():
            self.stop_if(~condition)
            yield

    @contextmanager
    def counting(self, start: Operand, end: Expr, hint: str = "i") -> Iterator[Local]:
        """Write what is done for each number from `start` to before `end`."""
        at = self.let(start if isinstance(start, Expr) else language.Immediate(I64, start), hint)
        with self.loop_while(at < end):
            yield at
            self.set(at, at + 1)

    @contextmanager
    def branch(self, condition: Expr) -> Iterator[list[language.Statement]]:
        """Write a `when`, and say what its block is, so that more can be written at its end later (`inside`)."""
        with self.when(condition):
            yield self._blocks[-1]

    @contextmanager
    def inside(self, block: list[language.Statement]) -> Iterator[None]:
        """Write at the end of a block that was written before."""
        self._blocks.append(block)
        yield
        self._blocks.pop()

    def splice(self, block: Sequence[language.Statement]) -> None:
        """Write what was written in a block that stands nowhere yet."""
        self._blocks[-1] += block

    def _add(self, statement: language.Statement) -> None:
        self._blocks[-1].append(statement)


def _called(callee: Signature | Function, args: Sequence[Operand]) -> tuple[Signature, tuple[Expr, ...]]:
    signature = callee.signature if isinstance(callee, Function) else callee
    assert len(args) == len(signature.parameters), f"{signature.name} takes {len(signature.parameters)} arguments"
    values = tuple(
        arg if isinstance(arg, Expr) else language.Immediate(type_, arg)
        for arg, type_ in zip(args, signature.parameters, strict=True)
    )
    for value, type_ in zip(values, signature.parameters, strict=True):
        assert value.type is type_, f"{signature.name} takes {type_}, not {value.type}"
    return signature, values


@contextmanager
def define(
    name: str,
    parameters: Sequence[tuple[str, Type]],
    result: Type | None = None,
    *,
    inline: bool | None = None,
    is_public: bool = True,
) -> Iterator[Body]:
    """Write a new function; every way through it must end with `leave`, if it has a result.

    Parameters
    ----------
    name
        The symbol of the function.
    parameters
        Name and type of each parameter.
    result
        Type of the result; None if it has none.
    inline
        Whether LLVM inlines it: True always, False never, None as it decides.
    is_public
        Whether other modules may call it.
    """
    signature = Signature(name, tuple(type_ for _, type_ in parameters), result)
    function = Function(
        signature, tuple(Local(type_, hint) for hint, type_ in parameters), inline=inline, is_public=is_public
    )
    yield Body(function)


WriteStatements: TypeAlias = Callable[..., None]
"""Writes the statements of a function: it is given the body, and the parameters."""


def kernel_function(
    name: str, parameters: Sequence[tuple[str, Type]], result: Type | None = None, *, inline: bool | None = None
) -> Callable[[WriteStatements], Function]:
    """Make a function of the kernel of a Python function that writes its statements.

    Parameters
    ----------
    name, parameters, result, inline
        As in `define`.
    """

    def make(write: WriteStatements) -> Function:
        with define(name, parameters, result, inline=inline) as body:
            write(body, *body.function.parameters)
        return body.function

    return make


def implement(
    signature: Signature, names: Sequence[str], write: WriteStatements, *, inline: bool | None = None
) -> Function:
    """Return the function with a signature.

    Parameters
    ----------
    signature
        Symbol and types.
    names
        The names of its parameters, in order.
    write
        Writes the statements.
    inline
        As in `define`.
    """
    parameters = list(zip(names, signature.parameters, strict=True))
    return kernel_function(signature.name, parameters, signature.result, inline=inline)(write)
