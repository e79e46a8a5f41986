"""Tiered compilation: after 20,000 events a child process compiles a program at -O2, and the engine takes that.

A child process, since LLVM in one process works behind one lock. It leaves what it makes in the user's cache of machine
code, so the next process finds it there. ``python -m cumulus.engine.native.tiering`` is the child.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from cumulus.catalog.functions import FunctionSignature
from cumulus.engine.native.build import Indexes, build, cached, name_of
from cumulus.engine.native.kernel.loaded_code import Loaded
from cumulus.engine.native.program import CodePlan
from cumulus.m3.parser import parse
from cumulus.m3.program import Program
from cumulus.scalars.user import UserFunction

BEST = 2
WARM = 20_000
"""After so many events a program is worth it."""
_NEVER = -(1 << 62)


class Tier:
    """The best code of a program, when somebody has made it."""

    def __init__(self, program: Program, functions: Mapping[str, UserFunction], indexes: Indexes) -> None:
        self._what = (program, functions, indexes)
        self._child: subprocess.Popen[bytes] | None = None
        self._events = 0

    def after(self, events: int) -> tuple[CodePlan, Loaded] | None:
        """Count events; return the best code if it is there now, and start making it if that is worth it."""
        self._events += events
        if self._events < WARM:
            return None
        if self._child is None:
            self._start()
            return None
        if self._child.poll() is None:
            return None
        self._events = _NEVER  # once is enough, if it failed, too
        return cached(name_of(*self._what), BEST)

    def _start(self) -> None:
        """Start the child. Where there can be none, for want of processes or of disk, the code stays as it is."""
        program, functions, indexes = self._what
        signatures = {name: each.signature for name, each in functions.items()}
        wanted = {name: list(places) for name, places in indexes.items()}
        try:
            with tempfile.TemporaryFile() as request:
                pickle.dump((name_of(*self._what), str(program), signatures, wanted), request)
                request.seek(0)
                self._child = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    stdin=request,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is not for it
                )
        except OSError:
            self._events = _NEVER


def _child() -> None:
    """Compile what comes in, and leave it in the cache."""
    os.nice(10)
    name, text, signatures, indexes = pickle.load(sys.stdin.buffer)
    build(name, parse(text), {key: _declared(each) for key, each in signatures.items()}, indexes, BEST)


def _declared(signature: FunctionSignature) -> UserFunction:
    def implement(*arguments: Any) -> Any:
        raise AssertionError(f"{signature.name}{arguments} is called by nobody here")

    return UserFunction(signature, implement)


if __name__ == "__main__":
    _child()
