"""M3, the language between the compiler and every host.

`parse` reads a program, `str(program)` prints it, docs/m3.md is the reference.
"""

from cumulus.m3.infer import canonical
from cumulus.m3.parser import parse, parse_with_places
from cumulus.m3.printer import print_program, print_statement
from cumulus.m3.program import (
    CubeDef,
    DimensionDef,
    LevelDef,
    MapDef,
    On,
    OrderItem,
    Program,
    Statement,
    Trigger,
    ViewDef,
)
from cumulus.m3.source_map import Places
from cumulus.m3.validate import ProgramReport, problems, read, validate

__all__ = [
    "CubeDef",
    "DimensionDef",
    "LevelDef",
    "MapDef",
    "On",
    "OrderItem",
    "Places",
    "Program",
    "ProgramReport",
    "Statement",
    "Trigger",
    "ViewDef",
    "canonical",
    "parse",
    "parse_with_places",
    "print_program",
    "print_statement",
    "problems",
    "read",
    "validate",
]
