"""What is known of tables, from the options of a command: `--rows`, `--distinct`, and `--from` to count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.durable.store import Storage
    from cumulus.explain.sizes import Statistics
    from cumulus.m3.program import Program


def statistics_given(
    program: Program, rows: Sequence[str], distinct: Sequence[str], source: Sequence[str] = ()
) -> Statistics:
    """Return the counts that options give; what is said there wins over what is counted.

    Parameters
    ----------
    rows, distinct
        Such as ``orders=1000`` and ``orders.cid=10``.
    source
        Sources whose rows are counted.

    Raises
    ------
    UsageError
        If an option names no table or column of the program, or no number.
    """
    from cumulus.catalog.names import find_name
    from cumulus.explain.sizes import Statistics

    counted = Statistics()
    if source:
        from cumulus.cli.source_counts import count_sources

        counted = count_sources(program, list(source))
    tables = {relation.name: relation for relation in program.relations}
    given_rows, given_distinct = dict(counted.rows), dict(counted.distinct)
    for text in rows:
        name, number = _count("--rows", text)
        found = find_name(name, tables)
        if found is None:
            raise UsageError(f"--rows {text}: no table {name!r}", hint=f"Tables: {', '.join(tables)}.")
        given_rows[found] = number
    for text in distinct:
        name, number = _count("--distinct", text)
        before, _, behind = name.partition(".")
        table = find_name(before, tables)
        column = find_name(behind, tables[table].column_names) if table is not None else None
        if table is None or column is None:
            raise UsageError(f"--distinct {text}: no column {name!r}", hint="Write TABLE.COLUMN=N.")
        given_distinct[table, column] = number
    return Statistics(given_rows, given_distinct)


def counts_of_sources(
    program: Program,
    layout: str,
    buckets: int,
    known: tuple[Sequence[str], Sequence[str], Sequence[str]],
    storage: Storage | None = None,
) -> Statistics:
    """Return what a layout is chosen by: what options say, and what the first files of sources tell.

    Parameters
    ----------
    layout, buckets
        What is asked for; where nothing is to be chosen, no file is read.
    known
        `--rows`, `--distinct` and `--from`.
    storage
        How object stores are reached.
    """
    from cumulus.durable.store import NO_STORAGE
    from cumulus.epochs.first_counts import counts_for
    from cumulus.epochs.sources import sources_from

    rows, distinct, source = known
    sources = sources_from(list(source), program, storage=storage or NO_STORAGE) if source else ()
    return counts_for(program, sources, layout, buckets, statistics_given(program, rows, distinct))


def _count(option: str, text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    plain = number.replace("_", "")
    if not name or not plain.isdigit():
        raise UsageError(f"{option} {text}: not a name with a count", hint="Write NAME=N, such as orders=1000000.")
    return name, int(plain)
