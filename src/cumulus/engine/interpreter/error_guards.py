"""Error guards: `try` around the smallest piece of generated code that may fail, and that a failure makes zero.

The meaning of a factor that cannot be evaluated (a division by zero, a failed cast, a user's function that raises) is
0: the combination of rows that it belongs to counts as nothing, here and when the same rows are deleted, and everything
else goes on. Each failure is reported with its site, so that the views concerned can be told. Code that cannot fail is
written as if there were no failures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cumulus.algebra import float_sums
from cumulus.engine.interpreter.numbers import NumberKind, Value
from cumulus.engine.interpreter.writer import Writer
from cumulus.scalars import python_code
from cumulus.scalars.python_code import NamePool

FAILED = "_failed"
"""What generated code calls with a site, an exception and, where it is known, the row of the batch."""
PROBLEM = "problem"
"""The local variable of an exception."""

_CALLED = re.compile(r"\b(_\w+)\(")
_TOTAL = (python_code.canonical, *python_code.TOTAL_COMPARISONS)


def can_fail(text: str, pool: NamePool, *, typed: bool = True) -> bool:
    """Whether evaluating an expression may raise: it calls something that is not total.

    An order comparison is total only where the types of all variables are known.
    """
    total = (*_TOTAL, *python_code.ORDER_COMPARISONS) if typed else _TOTAL
    return any(pool.names.get(name) not in total for name in _CALLED.findall(text))


def report(writer: Writer, problem: str = PROBLEM) -> str:
    """Return the call that reports a failure here; it gives None."""
    row = f", {writer.row}" if writer.row else ""
    return f"{FAILED}({writer.site}, {problem}{row})"


@contextmanager
def assigned(writer: Writer, pool: NamePool, name: str, text: str) -> Iterator[None]:
    """Write `name = text`; what is written inside runs if that did not fail."""
    if not can_fail(text, pool):
        writer.line(f"{name} = {text}")
        yield
        return
    writer.line(f"try: {name} = {text}")
    writer.line(f"except Exception as {PROBLEM}: {report(writer)}")
    with writer.block("else:"):
        yield


@contextmanager
def holding(writer: Writer, pool: NamePool, text: str, *, name: str = "", typed: bool = True) -> Iterator[None]:
    """Write an expression whose block runs if it neither failed nor is false, 0 or NULL.

    Its value gets the `name`, if one is given; else it has one only if it needs one.
    """
    if can_fail(text, pool, typed=typed):
        name = name or writer.fresh("holds")
        writer.line(f"try: {name} = {text}")
        writer.line(f"except Exception as {PROBLEM}: {name} = {report(writer)}")
        text = name
    elif name and name != text:
        writer.line(f"{name} = {text}")
        text = name
    with writer.block(f"if {text}:"):
        yield


@contextmanager
def summand(writer: Writer, pool: NamePool, value: Value) -> Iterator[Value]:
    """Write the number of a combination; what is written inside adds it. A DOUBLE that is no sum must be finite."""
    if can_fail(value.text, pool):
        name = writer.fresh("value")
        with assigned(writer, pool, name, value.text):
            yield value._replace(text=name)
    elif value.kind is NumberKind.FLOAT and not value.is_sum:
        name = value.text
        if not name.isidentifier():
            name = writer.fresh("value")
            writer.line(f"{name} = {value.text}")
        with writer.block(f"if {bounded(name, pool)}:"):
            yield value._replace(text=name)
        writer.line(f"else: {report(writer, pool.bind(float_sums.NOT_FINITE, 'not_finite'))}")
    else:
        yield value


def bounded(name: str, pool: NamePool) -> str:
    """Return the condition that a float is finite."""
    pool.names.setdefault("_INF", float_sums.INF)
    return f"-_INF < {name} < _INF"
