"""Scalars over the variables of an environment as Python source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.algebra.terms import Term
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import NamePool, PythonCode, ScalarCoder

Env: TypeAlias = dict[str, PythonCode]
"""Variables, and the code of their values."""


@dataclass(frozen=True, slots=True)
class EnvScalars:
    """Writes scalars; `leaf` writes a node of value context inside one."""

    pool: NamePool
    leaf: Callable[[Term, Env], PythonCode]

    def code(self, term: Term, env: Env) -> PythonCode:
        """Return the code of a scalar; what must be computed before is written."""
        return self.coder(env).code(term)

    def compare(self, op: str, left: PythonCode, right: PythonCode) -> str:
        """Return the comparison of two scalars that are written already."""
        return self.coder({}).compare(op, left, right)

    def coder(self, env: Env) -> ScalarCoder:
        """Return what writes scalars over the variables of `env`."""

        def lookup(name: str) -> PythonCode:
            if name not in env:
                raise ValidationError(f"{name} is not bound", hint="Bind it in the trigger or by a factor to the left.")
            return env[name]

        return ScalarCoder(self.pool, lookup, lambda term: self.leaf(term, env))
