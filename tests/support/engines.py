"""The engine that a test is run on: the same tests for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.kernel.lanes import NotNativeError
from cumulus.engine.protocol import Indexes
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

KINDS = ("interpreter", "native")
_chosen = "interpreter"


def choose(kind: str) -> None:
    """Make `engine_of` return engines of a kind, one of KINDS."""
    global _chosen
    _chosen = kind


def chosen() -> str:
    """Return the kind of engine that is tested."""
    return _chosen


def engine_of(program: Program, functions: Functions | None = None, indexes: Indexes = ()) -> Any:
    """Return an engine of the kind that is tested; a program that it cannot run is passed over."""
    if _chosen == "interpreter":
        return Interpreter(program, functions, indexes=indexes)
    try:
        return NativeEngine(program, functions, indexes=indexes)
    except NotNativeError as problem:
        pytest.skip(f"only interpreted: {problem.why}")
