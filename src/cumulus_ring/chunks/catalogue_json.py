"""A catalogue as JSON: for the nodes, which know of their source what they were told, and for the keeper's next life.

Paths are not in it. Whoever reads it says where the source is on its own machine, and where links to its files are.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus_ring.chunks.catalogue import Catalogue, ChunkedTable, DataFile, FileRowGroup, PublishedTable
from cumulus_ring.chunks.zone_maps import ColumnBounds, Key


def catalogue_said(catalogue: Catalogue) -> dict[str, Any]:
    """Return a catalogue for JSON, as `catalogue_of` takes it.

    Examples
    --------
    >>> catalogue_of(catalogue_said(Catalogue(3, ())), Path("tpch")).version
    3
    """
    published = [
        [each.name, _schema_said(each.schema), each.rows, each.select, [part.name for part in each.parts]]
        for each in catalogue.published
    ]
    tables = [_table_said(table) for table in catalogue.tables]
    return {"version": catalogue.version, "tables": tables, "published": published, "output": catalogue.output}


def catalogue_of(said: dict[str, Any], source: Path, links: Path | None = None) -> Catalogue:
    """Return the catalogue that `catalogue_said` has said.

    Parameters
    ----------
    source
        Where the files of the source are on this machine.
    links
        Where links to files are (`cumulus_ring.chunks.version_retention`); None: files are read where they are.
    """
    tables = tuple(_table(each, source, links) for each in said["tables"])
    known = {table.name: table for table in tables}
    published = tuple(
        PublishedTable(name, _schema(schema), rows, select, tuple(known[part] for part in parts))
        for name, schema, rows, select, parts in said.get("published", ())  # a keeper of before has none
    )
    return Catalogue(said["version"], tables, published, said.get("output", ""))


def link_name(stamp: tuple[int, ...]) -> str:
    """Return what the link to a file is called.

    Examples
    --------
    >>> link_name((10, 255))
    'a-ff'
    """
    return "-".join(f"{number:x}" for number in stamp)


def _table_said(table: ChunkedTable) -> dict[str, Any]:
    schemas: list[pa.Schema] = [table.schema]
    for file in table.files:
        if not any(file.schema.equals(each) for each in schemas):
            schemas.append(file.schema)
    said = [_schema_said(each) for each in schemas]
    return {"name": table.name, "schemas": said, "files": [_file_said(file, schemas) for file in table.files]}


def _table(said: dict[str, Any], source: Path, links: Path | None) -> ChunkedTable:
    schemas = [_schema(each) for each in said["schemas"]]
    files = tuple(_file(each, schemas[each["schema"]], source, links) for each in said["files"])
    return ChunkedTable(said["name"], schemas[0], files)


def _schema_said(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema(said: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said)))


def _file_said(file: DataFile, schemas: list[pa.Schema]) -> dict[str, Any]:
    return {
        "name": file.name,
        "digest": file.digest.hex(),
        "schema": next(number for number, each in enumerate(schemas) if file.schema.equals(each)),
        "stamp": file.stamp,
        "linked": file.link is not None,
        "groups": [_group_said(group, file.schema.names) for group in file.row_groups],
    }


def _file(said: dict[str, Any], schema: pa.Schema, source: Path, links: Path | None) -> DataFile:
    stamp = tuple(said["stamp"])
    return DataFile(
        said["name"],
        source / said["name"],
        bytes.fromhex(said["digest"]),
        schema,
        tuple(_group(each, schema.names) for each in said["groups"]),
        stamp,
        links / link_name(stamp) if said["linked"] and links is not None else None,
    )


def _group_said(group: FileRowGroup, columns: list[str]) -> list[Any]:
    bounds = {
        place: [known.kind, _key_said(known.low), _key_said(known.high), known.nulls, known.rows]
        for place, column in enumerate(columns)
        if (known := group.bounds.get(column)) is not None
    }
    return [group.number, group.rows, [group.sizes[column] for column in columns], list(bounds.items())]


def _group(said: list[Any], columns: list[str]) -> FileRowGroup:
    number, rows, sizes, bounds = said
    known = {
        columns[place]: ColumnBounds(kind, _key(low), _key(high), nulls, count)
        for place, (kind, low, high, nulls, count) in bounds
    }
    return FileRowGroup(number, rows, dict(zip(columns, sizes, strict=True)), known)


def _key_said(key: Key | None) -> Any:
    match key:
        case float():
            return ["f", key.hex()]
        case Decimal():
            return ["d", str(key)]
        case bytes():
            return ["b", base64.b64encode(key).decode()]
        case _:
            return key


def _key(said: Any) -> Key | None:
    match said:
        case ["f", digits]:
            return float.fromhex(digits)
        case ["d", digits]:
            return Decimal(digits)
        case ["b", text]:
            return base64.b64decode(text)
        case _:
            found: int | None = said
            return found
