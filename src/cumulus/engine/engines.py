"""The engines that there are, by name."""

from __future__ import annotations

import warnings

from cumulus.engine.protocol import Engine, Indexes
from cumulus.errors import EngineWarning, MissingFunctionError, UsageError
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, UserFunction, given_functions, runnable

ENGINES = ("auto", "native", "interpreter")


def check_engine(name: str) -> None:
    """Raise UsageError if there is no engine of a name."""
    if name not in ENGINES:
        told = ", ".join(map(repr, ENGINES))
        raise UsageError(f"there is no engine {name!r}", hint=f"The engines are {told}.")


def make_engine(name: str, program: Program, functions: Functions | None = None, indexes: Indexes = ()) -> Engine:
    """Return the engine of a name for a program.

    Parameters
    ----------
    name
        "native": machine code. "interpreter": generated Python, which runs every program. "auto": machine code, or the
        interpreter where only it can run the program; an EngineWarning says so then.
    indexes
        Maps and key columns that `find` will be asked for.

    Raises
    ------
    UsageError
        If there is no such engine, or it cannot run the program.
    MissingFunctionError, ValidationError
        As `cumulus.engine.interpreter.engine.Interpreter`.
    """
    check_engine(name)
    if name != "interpreter":
        native = _native_or_why_not(program, functions, indexes)
        if not isinstance(native, str):
            return native
        if name == "native":
            hint = "Use engine='auto' or engine='interpreter'."
            raise UsageError(f"the native engine cannot run this program: {native}", hint=hint)
        message = f"this program is interpreted, which is slower: {native}. With engine='interpreter' nobody is told."
        warnings.warn(message, EngineWarning, stacklevel=3)
    from cumulus.engine.interpreter.engine import Interpreter  # most programs are machine code, and never need it

    return Interpreter(program, functions, indexes=indexes)


def python_functions(program: Program, functions: Functions | None = None) -> frozenset[str]:
    """Return what the machine code of a program calls in Python; nothing if the interpreter must run it.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> views = "CREATE VIEW v AS SELECT strftime(d, '%Y') AS y, month(d) AS m FROM r"
    >>> sorted(python_functions(compile_sql(f"CREATE TABLE r (d DATE); {views}")))
    ['strftime']
    """
    try:
        from cumulus.engine.native.kernel.lanes import NotNativeError
        from cumulus.engine.native.program import write_program
        from cumulus.engine.native.scalars.python_functions import called_names
    except ImportError:
        return frozenset()
    try:
        given = runnable(program.functions, given_functions(functions))
        known = {name: each for name, each in given.items() if isinstance(each, UserFunction)}
        return called_names(write_program(program, known, {})[0].python_functions)
    except (NotNativeError, MissingFunctionError):
        return frozenset()


def _native_or_why_not(program: Program, functions: Functions | None, indexes: Indexes) -> Engine | str:
    """Return the native engine, or why there is none."""
    try:
        from cumulus.engine.native.engine import NativeEngine
        from cumulus.engine.native.kernel.lanes import NotNativeError
    except ImportError as problem:
        return f"llvmlite does not work here ({problem})"
    try:
        return NativeEngine(program, functions, indexes=indexes)
    except NotNativeError as problem:
        return f"map {problem.maps[0]}: {problem.why}" if len(problem.maps) == 1 else problem.why
