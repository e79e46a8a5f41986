"""The catalogue: tables, their files, and the row groups and chunks of these. Pure data, the same at every node.

A row group is cut into slices of the same rows for all of its columns, so that none of them has more than 16 MB in a
slice as far as the footer tells, and a slice whose columns have less than 1 MB together is one chunk; else each column
is one. All of this depends on the file alone, so a chunk stays what it is while the table changes around it. Sizes are
estimates: what is encoded is known only then.

A table of a catalogue is what it was at one version of the source, such as an epoch; a later version is another
catalogue, which shares the files that have not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from cumulus.catalog.names import folded, known_name
from cumulus.errors import InputError
from cumulus_ring.chunks.ids import chunk_id, file_name
from cumulus_ring.chunks.predicates import AllOf, Predicate
from cumulus_ring.chunks.rendezvous import holders
from cumulus_ring.chunks.zone_maps import ColumnBounds, may_touch

SLICE_BYTES = 16 << 20
WHOLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FileRowGroup:
    """A row group as its footer tells it; it has rows.

    Parameters
    ----------
    number
        Which of its file's it is.
    sizes
        Column → bytes when encoded, about.
    bounds
        Column → what is known of its values.
    """

    number: int
    rows: int
    sizes: Mapping[str, int]
    bounds: Mapping[str, ColumnBounds]

    @property
    def slices(self) -> list[tuple[int, int]]:
        """First row and rows of each slice."""
        count = min(self.rows, -(-max(self.sizes.values()) // SLICE_BYTES)) or 1
        firsts = [self.rows * place // count for place in range(count + 1)]
        return [(first, after - first) for first, after in pairwise(firsts)]

    def size(self, column: str, rows: int) -> int:
        """Return about how many bytes a column has in some of the rows."""
        return -(-self.sizes[column] * rows // self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class DataFile:
    """An immutable Parquet file.

    Parameters
    ----------
    name
        Its path relative to the source, with slashes.
    path, stamp
        Where it is on this machine, and by what it is seen there that it is written anew.
    digest
        What it is known by everywhere (`cumulus_ring.chunks.ids`).
    schema
        Its columns, as they are decoded (`cumulus_ring.chunks.encoding.plain_type`).
    row_groups
        Those that have rows.
    link
        A hard link of the ring's own to the file, which stays when the source lets it go (`version_retention`).
    """

    name: str
    path: Path
    digest: bytes
    schema: pa.Schema
    row_groups: tuple[FileRowGroup, ...]
    stamp: tuple[int, ...]
    link: Path | None = None

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(group.rows for group in self.row_groups)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some columns of some rows of a file.

    Parameters
    ----------
    id
        Its number (`cumulus_ring.chunks.ids`).
    table
        The table that it belongs to, to be told.
    row_group, first_row, rows
        Where its rows are.
    size
        About how many bytes it has when encoded.
    """

    id: int
    table: str
    file: DataFile
    row_group: FileRowGroup
    first_row: int
    rows: int
    columns: tuple[str, ...]
    size: int

    def __str__(self) -> str:
        rows = f"rows {self.first_row} to {self.first_row + self.rows - 1} of row group {self.row_group.number}"
        columns = f"column {self.columns[0]}" if len(self.columns) == 1 else f"{len(self.columns)} columns"
        return f"chunk {file_name(self.id)}: table {self.table}, {columns}, {rows} of {self.file.name}"


@dataclass(frozen=True, slots=True)
class ChunkGroup:
    """What a scan needs for one batch: all chunks of one slice that have a column that it wants."""

    file: DataFile
    row_group: FileRowGroup
    first_row: int
    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class ChunkedTable:
    """A table at one version of its source.

    Parameters
    ----------
    schema
        What scans give: as `DataFile.schema`, but for texts of few values, which are dictionaries.
    files
        In the order of their names; they agree in their columns.
    """

    name: str
    schema: pa.Schema
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)

    def chunks(self) -> list[Chunk]:
        """Return all chunks of the table."""
        return [chunk for group in self.groups(self.schema.names) for chunk in group.chunks]

    def groups(self, columns: Sequence[str], predicates: Iterable[Predicate] = ()) -> list[ChunkGroup]:
        """Return what a scan of some columns reads: no row group of which `predicates`, taken together, rule all out.

        Parameters
        ----------
        columns
            As the table has them, at least one.
        """
        wanted = frozenset(columns)
        assert wanted, f"a scan of no column of {self.name}"
        assert wanted <= {*self.schema.names}, f"{self.name} has no columns {columns}"
        every = AllOf(tuple(predicates))
        return [
            ChunkGroup(file, group, first, rows, self._chunks(file, group, first, rows, wanted))
            for file in self.files
            for group in file.row_groups
            if may_touch(every, group.bounds)
            for first, rows in group.slices
        ]

    def _chunks(
        self, file: DataFile, group: FileRowGroup, first: int, rows: int, wanted: frozenset[str]
    ) -> tuple[Chunk, ...]:
        names = tuple(file.schema.names)
        sizes = {name: group.size(name, rows) for name in names}
        together = [names] if sum(sizes.values()) < WHOLE_BYTES else [(name,) for name in names]
        return tuple(
            Chunk(
                chunk_id(file.digest, group.number, first, rows, some),
                self.name,
                file,
                group,
                first,
                rows,
                some,
                sum(sizes[name] for name in some),
            )
            for some in together
            if not wanted.isdisjoint(some)
        )


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a run whose rows are told by others: those that came, and those that went.

    Parameters
    ----------
    schema
        Its columns.
    rows
        How many rows it has.
    select
        What it is, as a query over its parts.
    parts
        They are tables of the catalogue, too, that nobody asks for by name.
    """

    name: str
    schema: pa.Schema
    rows: int
    select: str
    parts: tuple[ChunkedTable, ...]


@dataclass(frozen=True)
class Catalogue:
    """All tables of a source at one version; no two chunks have one number.

    Parameters
    ----------
    version
        The committed epoch, or the number of the state of a folder, counted from 1.
    tables
        No two have one name in any case of letters.
    published
        Those that are told by others of `tables`.
    output
        The checkpoint of the run whose output it is; "" for another folder.

    Raises
    ------
    InputError
        If two tables have one name, or two chunks one number.
    """

    version: int
    tables: tuple[ChunkedTable, ...]
    published: tuple[PublishedTable, ...] = ()
    output: str = ""
    chunks: Mapping[int, Chunk] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_name: dict[str, ChunkedTable] = {}
        chunks: dict[int, Chunk] = {}
        for table in self.tables:
            twin = by_name.setdefault(folded(table.name), table)
            if twin is not table:
                places = " and ".join(each.files[0].name for each in (twin, table))
                raise InputError(
                    f"two tables have the name {table.name}, in {places}",
                    hint="Case does not tell tables apart in SQL: rename or move one of them.",
                )
            for chunk in table.chunks():
                other = chunks.setdefault(chunk.id, chunk)
                if other is not chunk:
                    raise InputError(
                        f"{other} and {chunk} have the same number", hint="Rename one of the files: it gets another."
                    )
        object.__setattr__(self, "chunks", chunks)

    @property
    def by_name(self) -> dict[str, ChunkedTable | PublishedTable]:
        """The tables that queries may name, by their folded names."""
        parts = {part.name for each in self.published for part in each.parts}
        plain = {folded(table.name): table for table in self.tables if table.name not in parts}
        return {**plain, **{folded(table.name): table for table in self.published}}

    def with_tables(self, version: int, tables: Iterable[ChunkedTable]) -> Catalogue:
        """Return it under another version, with tables of the same names in the place of its own."""
        found = tuple(tables)
        known = {table.name: table for table in found}
        told = (replace(each, parts=tuple(known[part.name] for part in each.parts)) for each in self.published)
        return Catalogue(version, found, tuple(told), self.output)

    def table(self, name: str) -> ChunkedTable:
        """Return the table with a name, in any case of letters.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        known = {table.name: table for table in self.tables}
        return known[known_name(name, known, "table")]

    def share(self, member: str, members: Collection[str], copies: int = 1) -> list[Chunk]:
        """Return the chunks that a member of a ring keeps if so many do; of one it is the owner.

        See `cumulus_ring.chunks.rendezvous`.
        """
        return [
            chunk
            for chunk in self.chunks.values()
            if member in holders(chunk.file.digest, chunk.row_group.number, members, copies)
        ]
