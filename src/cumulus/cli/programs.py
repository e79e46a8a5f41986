"""From a file named on the command line to a program."""

from __future__ import annotations

from pathlib import Path

from cumulus.errors import InputError
from cumulus.m3.program import Program


def program_in(file: Path, *, rely: bool = True, keep: str = "auto", form: str = "") -> Program:
    """Return the program of a `.sql` or `.m3` file.

    Parameters
    ----------
    file
        A SQL script, unless its name ends in `.m3`.
    rely, keep, form
        As of `cumulus.compile`; an M3 program is taken as it is.

    Raises
    ------
    InputError, SqlError, M3Error
        With place and way out.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(f"cannot read {file}: {reason}", hint="Give the path of a .sql or .m3 file.") from None
    if file.suffix == ".m3":
        from cumulus.m3 import parse

        return parse(text, name=str(file))
    from cumulus.compiler import compile_sql

    return compile_sql(text, name=str(file), rely=rely, keep=keep, form=form)
