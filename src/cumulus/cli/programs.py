"""From a file named on the command line to a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cumulus.errors import InputError
from cumulus.m3.program import Program
from cumulus.scalars.user import UserFunction

if TYPE_CHECKING:
    from cumulus.epochs.output.origin import Origin


def program_in(
    file: Path,
    *,
    rely: bool = True,
    keep: str = "auto",
    form: str = "",
    functions: Sequence[UserFunction] = (),
    order: int | None = None,
    size: int = 1,
    trace: Callable[[str], None] | None = None,
) -> Program:
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

    return compile_sql(
        text,
        name=str(file),
        rely=rely,
        keep=keep,
        form=form,
        functions=functions,
        order=order,
        size=size,
        trace=trace,
    )


def program_of(origin: Origin) -> Program:
    """Return the program that a run was started with, compiled again as the run did: without trusted keys."""
    if origin.name.endswith(".m3"):
        from cumulus.m3 import parse

        return parse(origin.script, name=origin.name)
    from cumulus.compiler import compile_sql

    return compile_sql(origin.script, name=origin.name, rely=False)
