"""From a file named on the command line to a program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.errors import InputError
from cumulus.m3.program import Program

if TYPE_CHECKING:
    from cumulus.epochs.output.origin import Origin
    from cumulus.explain.layout.co_partitioning import Partitioned
    from cumulus.explain.sizes import Statistics


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
    return _compiled(text, str(file), **options)


def program_of(origin: Origin) -> Program:
    """Return the program that a run was started with, compiled again as the run did."""
    return program_in_buckets(partial(_compiled, origin.script, origin.name), lambda program: origin.partitioned)


def program_of_cluster(origin: Origin) -> Program:
    """Return the program of a run on a cluster, which enforces no references."""
    return _compiled(origin.script, origin.name, rely=False, enforced=False)


def program_in_buckets(compiled: Callable[..., Program], partitioned: Callable[[Program], Partitioned]) -> Program:
    """Return a program without trusted keys, and without enforced ones if nobody would check them in its layout.

    Parameters
    ----------
    compiled
        Takes options of `cumulus.compile`.
    partitioned
        Takes the program with enforced keys; returns the tables in several buckets, and by which columns.
    """
    from cumulus.epochs.layouts import counts_on_unchecked

    program = compiled(rely=False)
    return compiled(rely=False, enforced=False) if counts_on_unchecked(program, partitioned(program)) else program


def program_of_run(
    compiled: Callable[..., Program],
    layout: str,
    buckets: int,
    counts: Callable[[Program], Statistics],
) -> tuple[Program, Statistics]:
    """Return the program of a run in epochs, and by what its layout is chosen.

    Parameters
    ----------
    compiled
        As in `program_in_buckets`.
    layout, buckets
        What is asked for.
    counts
        Tells of the tables of a program.
    """
    from cumulus.epochs.plan_choice import partitioned_by

    known = counts(compiled(rely=False))
    program = program_in_buckets(compiled, partial(partitioned_by, layout=layout, buckets=buckets, statistics=known))
    return program, known


def _compiled(text: str, name: str, **options: Any) -> Program:
    if name.endswith(".m3"):
        from cumulus.m3 import parse

        return parse(text, name=name)
    from cumulus.compiler import compile_sql

    return compile_sql(text, name=name, **options)
