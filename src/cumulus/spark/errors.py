"""Our errors on their way through Spark: marked in the worker, found again in the driver.

A task's exception reaches the driver as text inside a Java exception; a mark in that text carries the class and the
message.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import cumulus.errors
from cumulus.errors import CumulusError

_MARK = re.compile(r"<cumulus-error ([A-Za-z0-9+/=]+)>")


class _Carried(Exception):  # noqa: N818 (it is an envelope, not an error)
    """Carries an error of ours through Spark."""


@contextmanager
def carry_errors_through_spark() -> Iterator[None]:
    """Mark errors of ours that leave the block."""
    try:
        yield
    except CumulusError as problem:
        data = json.dumps([type(problem).__name__, str(problem)]).encode()
        raise _Carried(f"{problem} <cumulus-error {base64.b64encode(data).decode()}>") from None


def carried_error(problem: BaseException) -> CumulusError | None:
    """Return the error of ours that caused `problem`, None if another did."""
    found = _MARK.search(str(problem))
    if found is None:
        return None
    name, message = json.loads(base64.b64decode(found[1]))
    kind = getattr(cumulus.errors, name)
    assert issubclass(kind, CumulusError), name
    error: CumulusError = kind(message)
    return error
