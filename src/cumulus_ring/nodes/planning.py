"""What a query needs, known before it runs, from DuckDB's own plan.

`plan_query` parses one SELECT, tells the mentions of its tables apart (`occurrences`), and asks for EXPLAIN with
sources that can only be planned. Each scan in the plan names its occurrence and its columns; what the occurrence was
offered in predicates can rule row groups out. So all requests are known at once and go out before the first pin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from cumulus.catalog.names import folded
from cumulus.errors import BindError, SqlError, UnsupportedError
from cumulus_ring.chunks.predicates import Predicate
from cumulus_ring.nodes.occurrences import Occurrence, RewrittenQuery, RingTable, TablesByName, first_paragraph, rewrite
from cumulus_ring.nodes.scan import OccurrenceSource, registered

__all__ = ["PlanOperator", "QueryPlan", "RingTable", "ScanNeed", "plan_query", "planned_query"]


@dataclass(frozen=True, slots=True)
class ScanNeed:
    """What one scan of a plan reads.

    Parameters
    ----------
    columns
        Names in the table, in the order in which the engine wants them.
    predicates
        Each is true of every row that the query looks at in this scan.
    """

    occurrence: Occurrence
    columns: tuple[str, ...]
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class PlanOperator:
    """An operator of DuckDB's plan: its name, what it says of itself, and what it reads from.

    Parameters
    ----------
    scan
        Place of the scan in `QueryPlan.scans`; None for all other operators.
    """

    name: str
    details: tuple[tuple[str, str], ...]
    children: tuple[PlanOperator, ...]
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query and what it needs.

    Parameters
    ----------
    sql
        The rewritten text, which names occurrences.
    """

    sql: str
    occurrences: tuple[Occurrence, ...]
    scans: tuple[ScanNeed, ...]
    root: PlanOperator


def plan_query(cursor: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName) -> QueryPlan:
    """Return what a query needs, without running it.

    Parameters
    ----------
    cursor
        Of what `open_engine` gives, for one query at a time: whoever interrupts it ends the planning.
    tables
        Folded name → table.

    Raises
    ------
    SqlError
        For all that cannot be asked; the message names the place, and names that are like an unknown one.
    duckdb.InterruptException
        Somebody has interrupted it.
    """
    with planned_query(cursor, sql, tables) as (plan, _):
        return plan


@contextmanager
def planned_query(
    cursor: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName
) -> Iterator[tuple[QueryPlan, tuple[OccurrenceSource, ...]]]:
    """Give what a query needs, as `plan_query`, and the source of each occurrence, which the cursor knows in the block.

    With their `open_feed` set, the text of the plan can be run there: to make them known twice takes CPU time, too.
    """
    try:
        query = rewrite(cursor, sql, tables)
    except RecursionError:
        raise _too_deep() from None
    sources = {
        each.name: OccurrenceSource(each.number, each.table.schema, each.table.rows) for each in query.occurrences
    }
    with registered(cursor, sources):
        yield _planned(cursor, sql, query, sources), tuple(sources[each.name] for each in query.occurrences)


def _planned(
    cursor: duckdb.DuckDBPyConnection, sql: str, query: RewrittenQuery, sources: Mapping[str, OccurrenceSource]
) -> QueryPlan:
    try:
        said = cursor.execute(f"EXPLAIN (FORMAT json) {query.sql}").fetchall()[0][1]
    except duckdb.InterruptException:
        raise
    except duckdb.Error as problem:
        raise _refusal(problem, sql, query) from None
    offered = {each.number: tuple(sources[each.name].offered) for each in query.occurrences}
    scans: list[ScanNeed] = []
    try:
        roots = [_operator(each, query.occurrences, scans) for each in json.loads(said)]
    except RecursionError:
        raise _too_deep() from None
    assert len(roots) == 1, "one statement has one plan"
    return QueryPlan(query.sql, query.occurrences, tuple(_with_predicates(scans, offered)), roots[0])


def _too_deep() -> UnsupportedError:
    return UnsupportedError(
        "the query is nested too deeply: each JOIN, operator and pair of parentheses is a level",
        hint="Join fewer tables at once, or put parts of the query into a WITH.",
        feature="depth",
    )


def _operator(said: Mapping[str, Any], occurrences: tuple[Occurrence, ...], scans: list[ScanNeed]) -> PlanOperator:
    details = tuple((key, _text(value)) for key, value in said["extra_info"].items())
    place = None
    if said["name"] == "PYTHON_ARROW_SCAN":
        place = len(scans)
        scans.append(_scan(said["extra_info"]["Projections"], occurrences))
    children = tuple(_operator(each, occurrences, scans) for each in said["children"])
    return PlanOperator(said["name"], details, children, place)


def _scan(projections: str | list[str], occurrences: tuple[Occurrence, ...]) -> ScanNeed:
    names = [projections] if isinstance(projections, str) else projections
    split = [name.partition(".") for name in names]
    (number,) = {int(number) for number, _, _ in split}
    occurrence = occurrences[number]
    found = dict.fromkeys(_column(path, occurrence.table.schema.names) for _, _, path in split)
    return ScanNeed(occurrence, tuple(found), ())


def _column(path: str, columns: list[str]) -> str:
    """Return the column that a projection names, by itself or with the field of a struct that is read of it."""
    if path in columns:
        return path
    (column,) = (each for each in columns if path.startswith(f"{each}."))
    return column


def _with_predicates(scans: list[ScanNeed], offered: Mapping[int, tuple[Predicate, ...]]) -> Iterator[ScanNeed]:
    """Yield scans with their predicates, where it is certain whose they are.

    An occurrence that is scanned twice was offered the conditions of both scans, and does not know whose is which.
    """
    numbers = [each.occurrence.number for each in scans]
    for each in scans:
        certain = numbers.count(each.occurrence.number) == 1 and not each.occurrence.is_shared
        found = {str(predicate): predicate for predicate in offered[each.occurrence.number] if certain}
        yield ScanNeed(each.occurrence, each.columns, tuple(found.values()))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_COLUMN = re.compile(r'column(?: named)? "([^"]+)"')


def _refusal(problem: duckdb.Error, sql: str, query: RewrittenQuery) -> SqlError:
    """Return DuckDB's refusal as an error of ours, with the place in the user's own text, if a column tells it."""
    message = first_paragraph(problem)
    column = _COLUMN.search(message)
    line, place = query.locations.get(folded(column[1]), (0, 0)) if column else (0, 0)
    kind, _, rest = message.partition(": ")
    candidates = [f"{each.alias} ({', '.join(each.table.schema.names)})" for each in query.occurrences]
    known = "; ".join(dict.fromkeys(candidates))
    if isinstance(problem, duckdb.BinderException):
        return BindError(rest or kind, line=line, column=place, text=sql, hint=f"Columns: {known}." if column else "")
    return UnsupportedError(rest or message, text=sql, feature=kind, hint="DuckDB, which answers, does not take it.")
