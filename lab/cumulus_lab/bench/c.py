"""The kernel language as C: what machine code is measured against, where there is a C compiler.

The functions are the same, statement for statement, so the ratio of their times is what LLVM in the process costs.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, assert_never

from cumulus.engine.native.kernel import language
from cumulus.engine.native.kernel.language import I64, Expr, Function, Local, Module, Signature, Statement, Type
from cumulus.errors import MissingError

COMPILER = "gcc"
FLAGS = (
    "-O2",
    "-march=native",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
    "-shared",
    "-fPIC",
    "-w",
)

_TYPES: dict[language.InMemory | None, str] = {
    language.BOOL: "_Bool",
    language.I64: "i64",
    language.I128: "i128",
    language.F64: "double",
    language.PTR: "ptr",
    language.U8: "unsigned char",
    language.U32: "unsigned int",
    None: "void",
}
_STORED: dict[language.InMemory, str] = {language.I128: "stored_i128", language.U32: "stored_u32"}
"""As they stand in memory, aligned less than C thinks."""
_HEAD = """typedef long long i64; typedef unsigned long long u64; typedef char *ptr;
typedef __int128 i128; typedef unsigned __int128 u128; typedef __int128 stored_i128 __attribute__((aligned(8)));
typedef unsigned int stored_u32 __attribute__((aligned(1)));
static inline double as_f64(i64 x) { double y; __builtin_memcpy(&y, &x, 8); return y; }
static inline i64 as_i64(double x) { i64 y; __builtin_memcpy(&y, &x, 8); return y; }
"""
_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "sdiv": "/",
    "srem": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "fadd": "+",
    "fsub": "-",
    "fmul": "*",
    "fdiv": "/",
    "at": "+",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "feq": "==",
    "fne": "!=",
    "flt": "<",
    "fle": "<=",
    "fgt": ">",
    "fge": ">=",
}


def to_c(modules: Iterable[Module]) -> str:
    """Return modules as one C file.

    Examples
    --------
    >>> from cumulus.engine.native.kernel.body import define
    >>> with define("next_number", [("number", I64)], I64) as body:
    ...     body.leave(body.parameter("number") + 1)
    >>> print(to_c([Module([body.function])]).removeprefix(_HEAD))
    i64 next_number(i64 number);
    i64 next_number(i64 number)
    {
      return (number + 1LL);
    }
    <BLANKLINE>
    """
    functions = [function for module in modules for function in module.functions]
    writers = [_Writer(function) for function in functions]
    declared = {signature.name: _prototype(signature) for writer in writers for signature in writer.called}
    declared.update({function.name: _head(function) for function in functions})
    return "\n".join([_HEAD + "\n".join(f"{each};" for each in declared.values()), *(each.text() for each in writers)])


def _prototype(signature: Signature) -> str:
    parameters = ", ".join(_TYPES[each] for each in signature.parameters) or "void"
    return f"{_TYPES[signature.result]} {signature.name}({parameters})"


def _head(function: Function) -> str:
    parameters = ", ".join(f"{_TYPES[each.type]} {_name(each)}" for each in function.parameters) or "void"
    linkage = "static inline __attribute__((always_inline)) " if function.inline else ""
    return f"{linkage}{_TYPES[function.signature.result]} {function.name}({parameters})"


def _name(local: Local) -> str:
    name = local.name.replace(".", "_")
    return f"{name}_" if name in _KEYWORDS else name


_KEYWORDS = {"double", "float", "signed", "register", "short", "long", "int", "char", "auto", "default", "ptr", "i64"}


class _Writer:
    """Writes one function."""

    def __init__(self, function: Function) -> None:
        self.called: list[Signature] = []
        self._function = function
        self._lines: list[str] = []
        self._locals: dict[str, str] = {}
        self._parameters = {each.name for each in function.parameters}
        self._block(function.statements, "  ")

    def text(self) -> str:
        """Return the function."""
        locals_ = [f"  {declared};" for declared in self._locals.values()]
        return "\n".join([_head(self._function), "{", *locals_, *self._lines, "}", ""])

    def _block(self, statements: list[Statement], indent: str) -> None:
        for statement in statements:
            for line in self._statement(statement, indent):
                self._lines.append(indent + line)

    def _nested(self, head: str, block: list[Statement], indent: str) -> None:
        self._lines.append(f"{indent}{head} {{")
        self._block(block, indent + "  ")
        self._lines.append(f"{indent}}}")

    def _statement(self, statement: Statement, indent: str) -> Iterator[str]:
        match statement:
            case language.Assign(target, value):
                yield f"{self._target(target)} = {self._value(value)};"
            case language.Load(target, cell, address, offset):
                yield f"{self._target(target)} = {self._cell(cell, address, offset)};"
            case language.StoreWord(cell, address, offset, value):
                yield f"{self._cell(cell, address, offset)} = {self._value(value)};"
            case language.CheckedArithmetic(op, target, overflow, left, right):
                operands = f"{self._value(left)}, {self._value(right)}, &{self._target(target)}"
                yield f"{self._target(overflow)} = __builtin_{op}_overflow({operands});"
            case language.Call(target, callee, args, address):
                yield self._call(target, callee, args, address)
            case language.If(condition, then, other, likely):
                told = self._value(condition)
                told = told if likely is None else f"__builtin_expect({told}, {int(likely)})"
                self._nested(f"if ({told})", then, indent)
                if other:
                    self._nested("else", other, indent)
            case language.Loop(body):
                self._nested("for (;;)", body, indent)
            case language.Break():
                yield "break;"
            case language.Return(result):
                yield "return;" if result is None else f"return {self._value(result)};"
            case language.Prefetch(address):
                yield f"__builtin_prefetch({self._value(address)}, 1);"
            case _:
                assert_never(statement)

    def _call(self, target: Local | None, callee: Signature, args: tuple[Expr, ...], address: Expr | None) -> str:
        if address is None:
            self.called.append(callee)
            called = callee.name
        else:
            parameters = ", ".join(_TYPES[each] for each in callee.parameters)
            called = f"(({_TYPES[callee.result]} (*)({parameters})){self._value(address)})"
        text = f"{called}({', '.join(map(self._value, args))});"
        return text if target is None else f"{self._target(target)} = {text}"

    def _cell(self, cell: language.InMemory, address: Expr, offset: int) -> str:
        type_ = _STORED.get(cell) or _TYPES[cell]
        return f"*({type_} *)({self._value(address)} + {offset})"

    def _target(self, local: Local) -> str:
        if local.name not in self._parameters:
            self._locals.setdefault(local.name, f"{_TYPES[local.type]} {_name(local)}")
        return _name(local)

    def _value(self, expr: Expr) -> str:
        match expr:
            case language.Immediate(type_, number):
                return _literal(type_, number)
            case Local():
                return self._target(expr)
            case language.Op(type_, name, args):
                return self._operation(type_, name, args)
            case _:
                raise AssertionError(f"{expr} is no expression")

    def _operation(self, type_: Type, name: str, args: tuple[Expr, ...]) -> str:
        values = [self._value(arg) for arg in args]
        if name in _INFIX:
            text = f"({values[0]} {_INFIX[name]} {values[1]})"
            return f"(_Bool){text}" if type_ is language.BOOL else text
        wide = "u128" if args[0].type is language.I128 else "u64"
        match name:
            case "lshr":
                return f"({_TYPES[type_]})(({wide}){values[0]} >> {values[1]})"
            case "ult":
                return f"(({wide}){values[0]} < ({wide}){values[1]})"
            case "fneg":
                return f"(-{values[0]})"
            case "select":
                return f"({values[0]} ? {values[1]} : {values[2]})"
            case "bitcast":
                return f"as_{'i64' if type_ is I64 else 'f64'}({values[0]})"
            case _:
                return f"(({_TYPES[type_]}){values[0]})"


def _literal(type_: Type, number: int | float) -> str:
    if type_ is language.F64:
        if math.isnan(number) or math.isinf(number):
            return f"as_f64({struct.unpack('<q', struct.pack('<d', number))[0]}LL)"
        return float(number).hex()
    if type_ is language.PTR:
        return "(ptr)0"
    whole = int(number)
    if type_ is language.I128:
        return f"(i128)(((u128){whole >> 64 & _ALL}ULL << 64) | {whole & _ALL}ULL)"
    return str(whole) if type_ is language.BOOL else f"(i64){whole & _ALL}ULL" if whole < 0 else f"{whole}LL"


_ALL = (1 << 64) - 1


class CompiledC:
    """Modules compiled by the C compiler and loaded: as `cumulus.engine.native.kernel.loaded_code.MachineCode`.

    Raises
    ------
    MissingError
        If there is no compiler, or it fails.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        if shutil.which(COMPILER) is None:
            raise MissingError(f"there is no {COMPILER} here", hint="Install it, or measure without C.")
        with tempfile.TemporaryDirectory(prefix="cumulus-c-") as folder:
            source, target = Path(folder, "program.c"), Path(folder, "program.so")
            source.write_text(to_c(modules), encoding="utf-8")
            command = [COMPILER, *FLAGS, "-o", str(target), str(source)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                raise MissingError(f"{COMPILER} failed: {run.stderr.strip()[:500]}", hint="Measure without C.")
            self._library = ctypes.CDLL(str(target))

    def address(self, name: str) -> int:
        """Return where a function is; KeyError if there is none."""
        try:
            return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(name) from None

    def function(self, name: str, result: Any, *parameters: Any) -> Any:
        """Return a function as Python calls it, without the interpreter's lock."""
        return ctypes.CFUNCTYPE(result, *parameters)(self.address(name))
