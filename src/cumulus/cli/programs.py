"""From a file named on the command line to a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.errors import InputError
from cumulus.m3.program import Program

if TYPE_CHECKING:
    from cumulus.epochs.output.origin import Origin


def program_in(file: Path, **options: Any) -> Program:
    """Return the program of a `.sql` or `.m3` file.

    The options are those of `cumulus.compile`; an M3 program is taken as it is, and declares its own functions.

    Raises
    ------
    InputError, SqlError, M3Error
        With place and way out.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(f"cannot read {file}: {reason}", hint="Give the path of a .sql or .m3 file.") from None
    if file.suffix == ".m3":
        from cumulus.m3 import parse

        return parse(text, name=str(file))
    from cumulus.compiler import compile_sql

    return compile_sql(text, name=str(file), **options)


def program_of(origin: Origin) -> Program:
    """Return the program that a run was started with, compiled again as the run did: without trusted keys."""
    if origin.name.endswith(".m3"):
        from cumulus.m3 import parse

        return parse(origin.script, name=origin.name)
    from cumulus.compiler import compile_sql
    from cumulus.epochs.layouts import counts_on_unchecked

    program = compile_sql(origin.script, name=origin.name, rely=False)
    if counts_on_unchecked(program, origin.partitioned):
        program = compile_sql(origin.script, name=origin.name, rely=False, enforced=False)
    return program
