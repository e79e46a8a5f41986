"""DuckDB's protocol for scans of what Python has: the only module that knows it.

The protocol is DuckDB's own and not public; `tests/nodes/test_scan.py` holds every line that we rely on. A table
occurrence is registered on a cursor as one source. When DuckDB plans, it asks for the number of rows and offers
predicates: all are declined, so the engine filters by itself and copies nothing, but they are kept, for row groups
that need not come. When it runs, it opens one stream for each scan and names the columns that it wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import duckdb
import pyarrow as pa
from duckdb._sources.arrow import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix

from cumulus_ring.chunks.predicates import (
    AllOf,
    AnyOf,
    ColumnAmong,
    ColumnCompared,
    ColumnNull,
    Constant,
    NotPrunable,
    Predicate,
    Sign,
)
from cumulus_ring.nodes.feed import Feed

OpenFeed = Callable[[tuple[str, ...]], Feed]
"""What opens the feed of a scan that wants some columns."""


class OccurrenceSource(ArrowScanSource):
    """One occurrence of a table in a query, as DuckDB scans it.

    Parameters
    ----------
    number
        Of the occurrence: DuckDB knows its columns as ``number.column``, so that its plans say whose a column is.
    schema
        The table's columns.
    row_count
        What DuckDB orders joins by.
    open_feed
        None where nothing runs, only plans; may be set later.
    """

    schema_is_stable = True

    def __init__(self, number: int, schema: pa.Schema, row_count: int, open_feed: OpenFeed | None = None) -> None:
        super().__init__(None)
        self.offered: list[Predicate] = []
        """What was declined: true of every row that the query looks at in a scan of this occurrence."""
        self._columns = tuple(schema.names)
        self._schema = pa.schema([each.with_name(f"{number}.{each.name}") for each in schema])
        self._row_count = row_count
        self.open_feed = open_feed

    def __arrow_c_schema__(self) -> object:
        """Names and types, without opening a stream."""
        return self._schema.__arrow_c_schema__()

    def rows(self) -> int:
        """The number of rows."""
        return self._row_count

    def accepts(self, predicate: Node) -> bool:
        """Keep a predicate, and leave it to the engine."""
        self.offered.append(read_predicate(predicate))
        return False

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Open the feed of one scan; batches are pulled one after the other, and released by the engine."""
        assert not filters, "every predicate was declined"
        assert self.open_feed is not None, "what is only planned is not run"
        places = range(len(self._columns)) if columns is None else columns
        schema = pa.schema([self._schema.field(place) for place in places])
        feed = self.open_feed(tuple(self._columns[place] for place in places))
        return pa.RecordBatchReader.from_batches(schema, _batches(feed, schema)).__arrow_c_stream__(), True


def _batches(feed: Feed, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield what a feed gives and keep none of it: a batch that this frame knows is a buffer that is not free."""
    try:
        while pulled := _pulled(feed, schema):
            yield pulled.pop()
    finally:
        feed.close()  # also when the engine wants no more: a LIMIT is reached


def _pulled(feed: Feed, schema: pa.Schema) -> list[pa.RecordBatch]:
    batch = feed.pull()
    return [] if batch is None else [pa.RecordBatch.from_arrays(batch.columns, schema=schema)]


@contextmanager
def registered(
    cursor: duckdb.DuckDBPyConnection, sources: Mapping[str, OccurrenceSource]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Let a cursor, and no other, know some sources by name in the block; results must be read out in it."""
    known = []
    try:
        for name, source in sources.items():
            cast(Any, cursor)._register_arrow_source(name, source)
            known.append(name)
        yield cursor
    finally:
        for name in known:
            cursor.unregister(name)


_SIGNS: tuple[Sign, ...] = ("=", "!=", "<", "<=", ">", ">=")
_DEPTH = 50
"""Of predicates inside predicates: what is nested deeper rules nothing out."""


def read_predicate(node: Node, depth: int = 0) -> Predicate:
    """Return what DuckDB says of some columns in classes of our own."""
    match node:
        case Binary("AND" | "OR" as word, _, _) if depth < _DEPTH:
            parts = tuple(read_predicate(each, depth + 1) for each in _chain(node, word))
            return AllOf(parts) if word == "AND" else AnyOf(parts)
        case Binary(sign, Col((column,)), Lit() as literal) if sign in _SIGNS:
            return ColumnCompared(_plain(column), sign, _constant(literal))
        case In(Col((column,)), values) if all(isinstance(each, Lit) for each in values):
            return ColumnAmong(_plain(column), tuple(_constant(cast(Lit, each)) for each in values))
        case Postfix("IS NULL" | "IS NOT NULL" as word, Col((column,))):
            return ColumnNull(_plain(column), word == "IS NULL")
        case _:
            return NotPrunable(_NUMBER.sub('"', node.fragment()))


_NUMBER = re.compile(r'"\d+\.')


def _plain(column: str) -> str:
    """Return the name of a column in its table."""
    return column.partition(".")[2]


def _chain(node: Binary, word: str) -> list[Node]:
    """Return the operands of ANDs of ANDs, or ORs of ORs, in their order: DuckDB nests them as deep as there are."""
    operands: list[Node] = []
    pending: list[Node] = [node]
    while pending:
        last = pending.pop()
        if isinstance(last, Binary) and last.op == word:
            pending += [last.right, last.left]
        else:
            operands.append(last)
    return operands


def _constant(literal: Lit) -> Constant:
    return Constant(literal.value, literal.type, literal.fragment())
