"""Calculus terms to M3 programs."""

from cumulus.compiler.options import CompilerOptions
from cumulus.compiler.pipeline import compile_sql, extend_sql

__all__ = ["CompilerOptions", "compile_sql", "extend_sql"]
