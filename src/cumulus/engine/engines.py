"""The engines that there are, by name."""

from __future__ import annotations

from cumulus.algebra.user import Functions
from cumulus.engine.interpreter import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.lanes import NotNativeError
from cumulus.engine.protocol import Engine
from cumulus.errors import UsageError
from cumulus.m3.program import Program

ENGINES = ("interpreter", "native")


def check_engine(name: str) -> None:
    """Raise UsageError if there is no engine of a name."""
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}", hint=f"The engines are {' and '.join(map(repr, ENGINES))}.")


def make_engine(name: str, program: Program, functions: Functions | None = None) -> Engine:
    """Return the engine of a name for a program.

    Raises
    ------
    UsageError
        If there is no such engine, or it cannot run the program.
    MissingFunctionError, ValidationError
        As `Interpreter`.
    """
    check_engine(name)
    if name == "interpreter":
        return Interpreter(program, functions)
    try:
        return NativeEngine(program, functions)
    except NotNativeError as problem:
        where = f"map {problem.maps[0]}: " if len(problem.maps) == 1 else ""
        raise UsageError(
            f"the native engine cannot run this program: {where}{problem.why}",
            hint="Open the warehouse with engine='interpreter'.",
        ) from None
