"""Scalar functions of the user's: Python with a signature.

`function` makes one, `given_functions` reads the `functions=` of the public interface, and `runnable` fits what a
program declares and what the user gave together: hosts call nothing else. A function must be pure: for equal arguments
it always gives the same value. A view that was added to with one value is taken from with another otherwise.
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, overload

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    Interval,
    Kind,
    SqlType,
    coerce,
    type_named,
)
from cumulus.errors import EvaluationError, MissingFunctionError, UsageError
from cumulus.scalars.casts import cast_value
from cumulus.scalars.function import common_type, failure
from cumulus.scalars.registry import FUNCTIONS

IS_CALLED: ContextVar[bool] = ContextVar("is_called", default=False)
"""Whether DuckDB, maybe in a thread of its own, is calling a function of the user's, in which this is asked."""
_ANNOTATIONS: dict[Any, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: VARCHAR,
    decimal.Decimal: SqlType(Kind.DECIMAL, 18, 3),
    dt.date: DATE,
    dt.datetime: TIMESTAMP,
    dt.timedelta: INTERVAL,
    Interval: INTERVAL,
}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPE = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's, as `cumulus.function` makes it. Calling it calls the Python function as it is."""

    signature: FunctionSignature
    implement: Callable[..., Any]

    @property
    def name(self) -> str:
        """What SQL and M3 call it."""
        return self.signature.name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the Python function, without any checks."""
        return self.implement(*arguments, **named)


Given: TypeAlias = UserFunction | Callable[..., Any]
Functions: TypeAlias = Mapping[str, Given] | Iterable[Given]
"""What users give as `functions=`: functions, or names with functions."""


@overload
def function(
    implement: Callable[..., Any],
    *,
    name: str = "",
    arguments: Sequence[str | SqlType] | None = None,
    returns: str | SqlType | None = None,
    null: str = "skip",
) -> UserFunction: ...


@overload
def function(
    implement: None = None,
    *,
    name: str = "",
    arguments: Sequence[str | SqlType] | None = None,
    returns: str | SqlType | None = None,
    null: str = "skip",
) -> Callable[[Callable[..., Any]], UserFunction]: ...


def function(
    implement: Callable[..., Any] | None = None,
    *,
    name: str = "",
    arguments: Sequence[str | SqlType] | None = None,
    returns: str | SqlType | None = None,
    null: str = "skip",
) -> UserFunction | Callable[[Callable[..., Any]], UserFunction]:
    """Declare a Python function as a scalar function of SQL and M3; a decorator, with or without arguments.

    Parameters
    ----------
    implement
        A pure function: equal arguments give equal values, always, in every process.
    name
        What SQL calls it; the Python name if left out.
    arguments, returns
        SQL types. What is left out comes from the annotations: bool, int (BIGINT), float (DOUBLE), str,
        Decimal (DECIMAL(18,3)), date, datetime and timedelta; `| None` plays no part.
    null
        "skip": a NULL argument makes the value NULL, and the function is not called. "pass": it is called with None.

    Returns
    -------
    UserFunction
        Which can be called like `implement`.

    Raises
    ------
    UsageError
        If a type is unknown or missing, or the name is no name or taken.

    Examples
    --------
    >>> @function
    ... def score(a: float, b: float) -> float:
    ...     return 1 - abs(a - b)
    >>> print(score.signature), score(1.0, 0.5)
    score(DOUBLE, DOUBLE) DOUBLE
    (None, 0.5)
    >>> print(function(min, name="lesser", arguments=["INT", "INT"], returns="INT").signature)
    lesser(INTEGER, INTEGER) INTEGER
    """
    if implement is None:
        return lambda found: function(found, name=name, arguments=arguments, returns=returns, null=null)
    called = name or getattr(implement, "__name__", "")
    if not _NAME.fullmatch(called):
        raise UsageError(f"{called!r} is no name for a function", hint="Give one: function(f, name='score').")
    if called.lower() in FUNCTIONS:
        raise UsageError(f"there is a function {called.lower()} already", hint="Give yours another name.")
    if null not in ("skip", "pass"):
        raise UsageError(f"null={null!r}", hint="null is 'skip' or 'pass'.")
    hints = _hints(implement)
    if arguments is None:
        parameters = tuple(_annotated_type(called, each, hints) for each in _parameters(called, implement))
    else:
        parameters = tuple(_sql_type(called, each) for each in arguments)
        _check_count(called, implement, len(parameters))
    result = _annotated_type(called, "return", hints) if returns is None else _sql_type(called, returns)
    return UserFunction(FunctionSignature(called, parameters, result, null == "pass"), implement)


def _hints(implement: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(implement)
    except (NameError, TypeError):
        return {}


def _parameters(name: str, implement: Callable[..., Any]) -> list[str]:
    try:
        found = list(inspect.signature(implement).parameters.values())
    except (TypeError, ValueError):
        raise _untyped_error(name, "its parameters") from None
    for each in found:
        if each.kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY, each.VAR_KEYWORD):
            raise _untyped_error(name, str(each))
    return [each.name for each in found]


def _check_count(name: str, implement: Callable[..., Any], count: int) -> None:
    try:
        inspect.signature(implement).bind(*range(count))
    except TypeError as problem:
        raise UsageError(
            f"{name} cannot be called with {count} arguments: {problem}", hint="Give one type for each parameter."
        ) from None
    except ValueError:
        return  # a builtin that does not tell


def _annotated_type(name: str, parameter: str, hints: Mapping[str, Any]) -> SqlType:
    hint = hints.get(parameter)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        rest = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = rest[0] if len(rest) == 1 else None
    if hint is None or hint not in _ANNOTATIONS:
        raise _untyped_error(name, "what it returns" if parameter == "return" else parameter)
    return _ANNOTATIONS[hint]


def _untyped_error(name: str, what: str) -> UsageError:
    return UsageError(
        f"the SQL types of {name} are not known: {what} has no annotation that says one",
        hint=f"Annotate it (float, int, str, …), or say function({name}, arguments=['DOUBLE', …], returns='DOUBLE').",
    )


def _sql_type(name: str, given: str | SqlType) -> SqlType:
    if isinstance(given, SqlType):
        return given
    found = _TYPE.fullmatch(given)
    numbers = tuple(int(each) for each in found.groups()[1:] if each is not None) if found else ()
    named = type_named(found[1], numbers) if found else None
    if named is None or named.kind in (Kind.NULL, Kind.BIGDECIMAL):
        raise UsageError(f"{name}: there is no type {given!r}", hint="Say 'DOUBLE', 'VARCHAR', 'DECIMAL(18,2)', ….")
    return named


# --- what users give ------------------------------------------------------------------------------------------------


def given_functions(functions: Functions | None) -> dict[str, Given]:
    """Return the functions that a user gave, by name: declared where a signature can be told.

    Parameters
    ----------
    functions
        Functions made by `function` or with annotations, in any order; or a mapping from names to such, or to functions
        whose types nobody knows (they serve programs that declare them, or that want no types).

    Raises
    ------
    UsageError
        If something is no function, two have one name, or a function without a name of its own tells no types.
    """
    by_name: dict[str, Given] = {}
    if functions is None:
        return by_name
    if isinstance(functions, UserFunction) or callable(functions):
        raise UsageError("functions= takes a list of functions", hint="Write functions=[f].")
    if not isinstance(functions, Iterable):
        raise UsageError(f"{functions!r} is no list of functions", hint="Write functions=[f].")
    pairs = functions.items() if isinstance(functions, Mapping) else (("", each) for each in functions)
    for name, each in pairs:
        if not callable(each):
            raise UsageError(f"{each!r} is no function", hint="Give functions, or names with functions.")
        made = _with_name(name, each)
        called = made.name if isinstance(made, UserFunction) else name
        if called.lower() in {other.lower() for other in by_name}:
            raise UsageError(f"two functions are called {called}", hint="Give each a name: function(f, name='…').")
        by_name[called] = made
    return by_name


def _with_name(name: str, given: Given) -> Given:
    if isinstance(given, UserFunction):
        return replace(given, signature=replace(given.signature, name=name)) if name else given
    if not name:
        return function(given)
    try:
        return function(given, name=name)
    except UsageError:
        if name.lower() in FUNCTIONS:
            raise
        return given


def signatures(functions: Mapping[str, Given]) -> tuple[FunctionSignature, ...]:
    """Return the signatures of `functions`.

    Raises
    ------
    UsageError
        If the types of one are not known.
    """
    for name, each in functions.items():
        if not isinstance(each, UserFunction):
            function(each, name=name)  # says what is missing
    return tuple(each.signature for each in functions.values() if isinstance(each, UserFunction))


def declared(program: Sequence[FunctionSignature], functions: Mapping[str, Given]) -> dict[str, Given]:
    """Return `functions` with the signatures that a program has for those of unknown types."""
    known = {each.name: each for each in program}
    return {
        name: each if isinstance(each, UserFunction) or name not in known else UserFunction(known[name], each)
        for name, each in functions.items()
    }


# --- what hosts run -------------------------------------------------------------------------------------------------


def runnable(declared: Sequence[FunctionSignature], functions: Mapping[str, Given]) -> dict[str, Given]:
    """Return what generated code calls for each function: a declared one with its signature, others as they are.

    Parameters
    ----------
    declared
        What the program says of the functions that it calls.

    Returns
    -------
    dict
        Of checked functions: they raise nothing but `EvaluationError` naming the function, and declared ones give a
        value of their type, or None.

    Raises
    ------
    MissingFunctionError
        Naming the declared functions that were not given.
    UsageError
        If a function is declared otherwise than it was given.
    """
    missing = [each for each in declared if each.name not in functions]
    if missing:
        raise MissingFunctionError(
            f"the program calls {', '.join(map(str, missing))}: not given",
            names=tuple(each.name for each in missing),
            hint=f"Give the Python for {'it' if len(missing) == 1 else 'them'}: functions=[…], or --functions FILE.py.",
        )
    checked: dict[str, Given] = {}
    known = {each.name: each for each in declared}
    for name, each in functions.items():
        signature = known.get(name)
        if isinstance(each, UserFunction):
            if signature is not None and signature != each.signature:
                raise UsageError(
                    f"the program declares {signature}, but the function given is {each.signature}",
                    hint="Give the function that the program was compiled with, or compile again.",
                )
            signature = each.signature
        plain = each.implement if isinstance(each, UserFunction) else each
        checked[name] = (
            _guard(name, plain) if signature is None else UserFunction(signature, _check_value(signature, plain))
        )
    return checked


def _guard(name: str, implement: Callable[..., Any]) -> Callable[..., Any]:
    """Return `implement` in a decimal context of its own (ours never rounds), its exceptions in our words."""
    own = decimal.DefaultContext.copy()
    get, put = decimal.getcontext, decimal.setcontext

    def call(*arguments: Any) -> Any:
        before = get()
        put(own)
        try:
            return implement(*arguments)
        except Exception as problem:  # a user's function may raise anything
            reason = problem.message if isinstance(problem, EvaluationError) else str(problem)
            kind = type(problem).__name__
            raise failure(name, arguments, f"raised {kind}: {reason}" if reason else f"raised {kind}") from problem
        finally:
            put(before)

    return call


def _check_value(signature: FunctionSignature, implement: Callable[..., Any]) -> Callable[..., Any]:
    """Return `implement` guarded, its value checked to be of the declared type."""
    guarded = _guard(signature.name, implement)
    result = signature.result
    plain = {Kind.BOOLEAN: bool, Kind.VARCHAR: str, Kind.DATE: dt.date, Kind.DOUBLE: float}.get(result.kind)

    def call(*arguments: Any) -> Any:
        value = guarded(*arguments)
        if value is None or type(value) is plain:
            return value
        try:
            return _as_result(value, result)
        except (TypeError, ValueError, EvaluationError) as problem:
            reason = problem.message if isinstance(problem, EvaluationError) else str(problem)
            raise failure(
                signature.name,
                arguments,
                f"gave {value!r}, not {result}: {reason}",
                f"It is declared to give {result}: convert inside, or declare another type.",
            ) from None

    return call


def _as_result(value: Any, result: SqlType) -> Any:
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy scalar
        value = value.item()
    number = isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)
    if number and result.kind in (Kind.DECIMAL, Kind.REAL):
        return cast_value(value, result)  # rounds, as a cast does
    return coerce(value, result)


# --- types ----------------------------------------------------------------------------------------------------------


def fits_parameter(given: SqlType, parameter: SqlType) -> bool:
    """Whether an argument of type `given` is taken for `parameter` without a CAST: nothing may be lost.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER, REAL
    >>> [fits_parameter(*pair) for pair in ((INTEGER, DOUBLE), (BIGINT, INTEGER), (DATE, TIMESTAMP), (DOUBLE, REAL))]
    [True, False, True, False]
    """
    if given.kind is Kind.NULL or given == parameter:
        return True
    if given.kind is Kind.BOOLEAN or parameter.kind is Kind.BOOLEAN:
        return False
    return common_type((given, parameter)) == parameter
