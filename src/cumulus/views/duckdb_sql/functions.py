"""DuckDB for SQL over views, and for maps loaded by SQL: in UTC, with the user's functions, stopped by Ctrl-C."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import Interval
from cumulus.interrupts import calling_on_interrupt
from cumulus.scalars.user import IS_CALLED, Given, UserFunction, runnable


def set_utc(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a DuckDB connection understand moments as views do, whatever the zone of the machine is."""
    # Without its calendar extension, DuckDB knows no other zone.
    with suppress(duckdb.Error), stopped_by_interrupts(connection):
        connection.execute("SET TimeZone = 'UTC'")


@contextmanager
def stopped_by_interrupts(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C stop what DuckDB does for a connection in the block.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, of which DuckDB makes errors of its own.
    """
    try:
        with calling_on_interrupt(connection.interrupt):
            yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as problem:
        if "interrupted" in str(problem).lower():
            raise KeyboardInterrupt from None
        raise
    except duckdb.InvalidInputException as problem:
        if _IN_PYTHON.search(str(problem)):
            raise KeyboardInterrupt from None
        raise


_IN_PYTHON = re.compile(r"(?:executing the UDF|failed): KeyboardInterrupt\b")
"""What DuckDB says of Ctrl-C in Python that it has called: a function, or what it reads from."""


def create_functions(connection: duckdb.DuckDBPyConnection, functions: Mapping[str, Given]) -> None:
    """Create those of `functions` whose types are known in a DuckDB connection, as pure functions.

    They do there what they do here: the same casts, checks and rule for NULL.
    """
    typed = {name: each for name, each in functions.items() if isinstance(each, UserFunction)}
    for each in runnable((), typed).values():
        assert isinstance(each, UserFunction), "its signature is known"
        signature = each.signature
        connection.create_function(
            signature.name,
            _adapt(each.implement, signature),
            [duckdb.sqltype(str(given)) for given in signature.parameters],
            duckdb.sqltype(str(signature.result)),
            null_handling=FunctionNullHandling.SPECIAL,  # with the other, a function may give no NULL
        )


def _adapt(implement: Callable[..., Any], signature: FunctionSignature) -> Callable[..., Any]:
    """Return `implement` as DuckDB calls it: with a Python signature that it can count, and its own intervals."""
    strict = not signature.called_with_null

    def call(*arguments: Any) -> Any:
        if strict and None in arguments:
            return None
        token = IS_CALLED.set(True)
        try:
            value = implement(*map(_from_duckdb, arguments))
        finally:
            IS_CALLED.reset(token)
        return _to_duckdb(value) if isinstance(value, Interval) else value

    named = [
        inspect.Parameter(f"argument_{place}", inspect.Parameter.POSITIONAL_ONLY)
        for place in range(len(signature.parameters))
    ]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # what `inspect.signature` looks for
    return call


def _from_duckdb(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return value


def _to_duckdb(span: Interval) -> dt.timedelta:
    return dt.timedelta(days=span.months * 30 + span.days, microseconds=span.micros)
