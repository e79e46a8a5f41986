"""The kernel language as LLVM IR text.

Every variable is a slot of the stack frame; LLVM's first pass makes registers of them. Names of variables stand in the
text, so a function can be read beside its kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import assert_never

from cumulus.engine.native.kernel import language
from cumulus.engine.native.kernel.language import Expr, Function, If, Local, Module, Op, Statement, Type

_COMPARISONS = {
    **{name: f"icmp {name}" for name in ("eq", "ne", "ult")},
    **{name: f"icmp s{name}" for name in ("lt", "le", "gt", "ge")},
    **{f"f{name}": f"fcmp o{name}" for name in ("eq", "lt", "le", "gt", "ge")},
    "fne": "fcmp une",
}
_CONVERSIONS = {"zext", "sext", "trunc", "sitofp", "fptosi", "ptrtoint", "inttoptr", "bitcast"}
_ALIGNMENTS: dict[language.InMemory, int] = {language.Cell.U8: 1, language.Cell.U32: 1}
_WEIGHTS = {True: "!0", False: "!1"}
_METADATA = """!0 = !{!"branch_weights", i32 1000, i32 1}
!1 = !{!"branch_weights", i32 1, i32 1000}
"""


def to_llvm(module: Module, *, inline: bool = True) -> str:
    """Return a module as LLVM IR.

    Parameters
    ----------
    inline
        Whether functions that are to be inlined are: it makes more code, and quicker code if it is optimised.

    Examples
    --------
    >>> from cumulus.engine.native.kernel.body import I64, define
    >>> with define("next_number", [("number", I64)], I64) as body:
    ...     body.leave(body.parameter("number") + 1)
    >>> print(to_llvm(Module([body.function])).split("!0")[0].strip())
    define i64 @next_number(i64 %number.in) nounwind {
    entry:
      %number = alloca i64, align 8
      store i64 %number.in, ptr %number, align 8
      %1 = load i64, ptr %number, align 8
      %2 = add i64 %1, 1
      ret i64 %2
    }
    """
    writers = [_Writer(function) for function in module.functions]
    defined = {function.name for function in module.functions}
    declared: dict[str, str] = {}
    for writer in writers:
        for name, text in writer.declared.items():
            if name not in defined:
                declared[name] = text
    return "\n".join([*declared.values(), "", *(writer.text(inline) for writer in writers), _METADATA])


class _Writer:
    """Writes one function."""

    def __init__(self, function: Function) -> None:
        self.declared: dict[str, str] = {}
        self._function = function
        self._slots: dict[str, Type] = {}
        self._lines: list[str] = []
        self._registers = 0
        self._labels = 0
        self._is_open = True
        """Whether control can reach the next line."""
        self._loop_ends: list[str] = []
        for parameter in function.parameters:
            self._slot(parameter)
            self._line(f"store {parameter.type} %{parameter.name}.in, {self._place(parameter)}")
        self._block(function.statements)
        if self._is_open:
            assert function.signature.result is None, f"{function.name} ends without a result"
            self._line("ret void")

    def text(self, inline: bool) -> str:
        """Return the function."""
        signature = self._function.signature
        parameters = ", ".join(f"{each.type} %{each.name}.in" for each in self._function.parameters)
        attributes = "" if self._function.inline is None else " noinline"
        if self._function.inline and inline:
            attributes = " alwaysinline"
        linkage = "" if self._function.is_public else "internal "
        return "\n".join(
            [
                f"define {linkage}{signature.result or 'void'} @{signature.name}({parameters}) nounwind{attributes} {{",
                "entry:",
                *(f"  %{name} = alloca {type_}, align 8" for name, type_ in self._slots.items()),
                *self._lines,
                "}",
                "",
            ]
        )

    # --- statements -------------------------------------------------------------------------------------------------

    def _block(self, statements: list[Statement]) -> None:
        for statement in statements:
            if not self._is_open:
                return
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case language.Assign(target, value):
                self._store(target, self._value(value))
            case language.Load(target, cell, address, offset):
                place = self._value(address.at(offset) if offset else address)
                found = self._new(f"load {cell.value}, ptr {place}, align {_alignment(cell)}")
                self._store(target, found if isinstance(cell, Type) else self._new(f"zext {cell.value} {found} to i64"))
            case language.StoreWord(cell, address, offset, value):
                number = self._value(value)
                if isinstance(cell, language.Cell):
                    number = self._new(f"trunc i64 {number} to {cell.value}")
                place = self._value(address.at(offset) if offset else address)
                self._line(f"store {cell.value} {number}, ptr {place}, align {_alignment(cell)}")
            case language.CheckedArithmetic(op, target, overflow, left, right):
                type_ = target.type
                name = f"llvm.s{op}.with.overflow.{type_}"
                self.declared[name] = f"declare {{{type_}, i1}} @{name}({type_}, {type_})"
                both = self._new(
                    f"call {{{type_}, i1}} @{name}({type_} {self._value(left)}, {type_} {self._value(right)})"
                )
                self._store(target, self._new(f"extractvalue {{{type_}, i1}} {both}, 0"))
                self._store(overflow, self._new(f"extractvalue {{{type_}, i1}} {both}, 1"))
            case language.Call(target, callee, args, address):
                self._call(target, callee, args, address)
            case If():
                self._if(statement)
            case language.Loop(body):
                self._loop(body)
            case language.Break():
                self._jump(self._loop_ends[-1])
            case language.Return(result):
                self._line("ret void" if result is None else f"ret {result.type} {self._value(result)}")
                self._is_open = False
            case language.Prefetch(address):
                self.declared["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
                self._line(f"call void @llvm.prefetch.p0(ptr {self._value(address)}, i32 1, i32 3, i32 1)")
            case _:
                assert_never(statement)

    def _call(
        self, target: Local | None, callee: language.Signature, args: tuple[Expr, ...], address: Expr | None
    ) -> None:
        if address is None:
            called = f"@{callee.name}"
            types = ", ".join(callee.parameters)
            self.declared[callee.name] = f"declare {callee.result or 'void'} {called}({types})"
        else:
            called = self._value(address)
        text = (
            f"call {callee.result or 'void'} {called}({', '.join(f'{each.type} {self._value(each)}' for each in args)})"
        )
        if target is None:
            self._line(text)
        else:
            self._store(target, self._new(text))

    def _if(self, statement: If) -> None:
        if isinstance(statement.condition, language.Immediate) and statement.condition.value:
            self._block(statement.then)
            return
        condition = self._value(statement.condition)
        then, other, after = self._label("then"), self._label("else"), self._label("end")
        weights = "" if statement.likely is None else f", !prof {_WEIGHTS[statement.likely]}"
        self._line(f"br i1 {condition}, label %{then}, label %{other if statement.other else after}{weights}")
        reached = not statement.other
        for label, block in ((then, statement.then), (other, statement.other)):
            if block or label == then:
                self._begin(label)
                self._block(block)
                reached = reached or self._is_open
                self._jump(after)
        if reached:
            self._begin(after)

    def _loop(self, body: list[Statement]) -> None:
        head, after = self._label("loop"), self._label("done")
        self._jump(head)
        self._begin(head)
        self._loop_ends.append(after)
        self._block(body)
        self._jump(head)
        self._loop_ends.pop()
        if any(isinstance(each, language.Break) for each in _own_statements(body)):
            self._begin(after)

    def _jump(self, label: str) -> None:
        if self._is_open:
            self._line(f"br label %{label}")
        self._is_open = False

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._is_open = True

    # --- values -----------------------------------------------------------------------------------------------------

    def _value(self, expr: Expr) -> str:
        waiting: list[Op] = []
        while isinstance(expr, Op):  # a chain of a value for each of many columns is as deep as it is long
            waiting.append(expr)
            expr = expr.args[0]
        found = self._leaf(expr)
        for each in reversed(waiting):
            found = self._operation(each, found)
        return found

    def _leaf(self, expr: Expr) -> str:
        match expr:
            case language.Immediate(type_, number):
                return _literal(type_, number)
            case Local(type_, _):
                self._slot(expr)
                return self._new(f"load {type_}, {self._place(expr)}")
            case _:
                raise AssertionError(f"{expr} is no expression")

    def _operation(self, operation: Op, first_value: str) -> str:
        """Write an operation, the first of whose arguments has a value already."""
        type_, name, args = operation.type, operation.name, operation.args
        values = [first_value, *(self._value(arg) for arg in args[1:])]
        first = args[0].type
        if name in _CONVERSIONS:
            return self._new(f"{name} {first} {values[0]} to {type_}")
        if name in _COMPARISONS:
            return self._new(f"{_COMPARISONS[name]} {first} {values[0]}, {values[1]}")
        if name == "at":
            return self._new(f"getelementptr i8, ptr {values[0]}, i64 {values[1]}")
        if name == "select":
            return self._new(f"select i1 {values[0]}, {type_} {values[1]}, {type_} {values[2]}")
        return self._new(f"{name} {type_} {', '.join(values)}")

    def _slot(self, local: Local) -> None:
        known = self._slots.setdefault(local.name, local.type)
        assert known is local.type, f"two variables are called {local.name}"

    def _place(self, local: Local) -> str:
        return f"ptr %{local.name}, align 8"

    def _store(self, target: Local, value: str) -> None:
        self._slot(target)
        self._line(f"store {target.type} {value}, {self._place(target)}")

    def _new(self, text: str) -> str:
        self._registers += 1
        self._line(f"%{self._registers} = {text}")
        return f"%{self._registers}"

    def _label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}..{self._labels}"  # no variable is called so

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")


def _own_statements(block: list[Statement]) -> Iterator[Statement]:
    """Yield the statements of a loop's body that are in no inner loop."""
    for statement in block:
        yield statement
        if isinstance(statement, If):
            yield from _own_statements(statement.then)
            yield from _own_statements(statement.other)


def _alignment(cell: language.InMemory) -> int:
    return _ALIGNMENTS.get(cell, 8)


def _literal(type_: Type, number: int | float) -> str:
    if type_ is language.F64:
        return f"0x{struct.pack('>d', number).hex()}"
    if type_ is language.PTR:
        assert number == 0
        return "null"
    if type_ is language.BOOL:
        return "true" if number else "false"
    return str(int(number))
