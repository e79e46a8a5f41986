"""A file of JSON: one object a line, or one array of objects."""

from __future__ import annotations

from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.columns import PlainColumns
from cumulus.epochs.formats.content import read_text
from cumulus.epochs.formats.debezium import EnvelopeRecords
from cumulus.epochs.formats.debezium_columns import EnvelopeColumns
from cumulus.epochs.formats.json_values import parse
from cumulus.epochs.formats.lines import LineReader, PlainRecords
from cumulus.epochs.formats.parsed_rows import Content


def read_json(source: FolderSource, relation: Relation, path: str, *, careful: bool = False) -> Content:
    """Return what a file of JSON says; `careful` looks at each line alone, for comparison."""
    data = read_text(source, path)
    is_log = source.format == "debezium"
    records = EnvelopeRecords(source, relation) if is_log else PlainRecords(source, relation)
    columns = None if careful else EnvelopeColumns(source, relation) if is_log else PlainColumns(source, relation)
    reader = LineReader(records, columns, relation)
    elements = _elements(data)
    return reader.read(data) if elements is None else reader.read_records(elements)


def _elements(data: bytes) -> list[Any] | None:
    """Return the elements of a file that is one array, of objects if it has any; None if it is to be read by lines."""
    if data.lstrip()[:1] != b"[":
        return None
    try:
        found = parse(data.decode())
    except ValueError:
        return None
    is_rows = isinstance(found, list) and (not found or any(isinstance(each, dict) for each in found))
    return found if is_rows else None
