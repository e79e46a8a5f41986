"""Calculus terms to M3 programs."""

from cumulus.compiler.options import Options
from cumulus.compiler.pipeline import compile_sql, extend_sql

__all__ = ["Options", "compile_sql", "extend_sql"]
