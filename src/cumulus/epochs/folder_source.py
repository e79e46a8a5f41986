"""A source: the files of one table in a folder, a single file, or a place in an object store; how they are read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Relation
from cumulus.durable.folders import file_name
from cumulus.durable.store import NO_STORAGE, Storage
from cumulus.errors import InputError

FORMATS = ("auto", "parquet", "csv", "json", "debezium")
SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
"""Endings of packed files of text, behind one of `SUFFIXES`."""
TIMES = ("seconds", "millis", "micros", "nanos")
NONE = "none"
"""For `op`, `order` and `unavailable`: there is no such column or value."""
_OP, _ORDER = "op", "seq"
BY_NAME, BY_TIME = "name", "time"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}


def packing_of(name: str) -> str | None:
    """Return how the file called `name` is packed."""
    return PACKED.get(Path(name).suffix.lower())


def suffix_of(name: str) -> str:
    """Return the ending that tells the format, without that of packing.

    Examples
    --------
    >>> suffix_of("1.CSV.gz"), suffix_of("1.parquet"), suffix_of("1")
    ('.csv', '.parquet', '')
    """
    path = Path(name)
    return Path(path.stem if packing_of(name) else path.name).suffix.lower()


@dataclass(frozen=True, slots=True)
class FolderSource:
    """One table's files, in a folder or a single one.

    Parameters
    ----------
    format
        "auto" goes by each file's ending; "debezium" means JSON lines or Parquet with `before`, `after` and `op`.
    op
        The column that says insert, delete or update; "none" for none. If empty, `op`, but no column of the table.
    order
        The column with the source's own order inside a primary key, in change logs with dots for nested ones
        (`source.lsn`); "none" for none. If empty, `seq`, but no column of the table, and only where it has a key.
    key
        A primary key for tables that declare none.
    whole
        All files belong to one epoch, whatever the limit.
    delimiter
        What stands between the cells of CSV; if not given, a tab in ``.tsv`` and a comma elsewhere.
    header
        Whether the first line of CSV names the columns; without, they are the table's in its order.
    times
        What numbers for times mean: seconds, millis, micros or nanos since 1970; empty if they are none.
    decimals
        "base64": texts for a DECIMAL are bytes, as Debezium writes them, with the scale of the column.
    unavailable
        What stands for a value that the source has left out, in any form of `formats.unavailable`; "none" for nothing.
        If empty, what Debezium writes by default, in change logs only.
    files
        "name" or "time": by what files are taken, see `cumulus.epochs.arrivals`. If empty, by time in a folder that
        Spark has written, else by name.
    storage
        How an object store is reached, if the path is an address.
    view
        A view of the output folder at the path, whose changes are the rows (`cumulus.epochs.view_source`); empty for
        files.
    """

    relation: str
    path: str
    format: str = "auto"
    op: str = ""
    order: str = ""
    key: tuple[str, ...] = ()
    whole: bool = False
    delimiter: str = ""
    header: bool = True
    encoding: str = "utf-8"
    times: str = ""
    decimals: str = ""
    unavailable: str = ""
    files: str = ""
    storage: Storage = NO_STORAGE
    view: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the options of a folder as plain values, which `FolderSource` takes again."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "storage"}

    def format_of(self, name: str) -> str:
        """Return "parquet", "csv" or "json": how the file called `name` is to be read.

        Raises
        ------
        InputError
            If the source does not say it, and the ending is none that does.
        """
        if self.format in ("parquet", "csv", "json"):
            return self.format
        found = SUFFIXES.get(suffix_of(name))
        if self.format == "debezium":
            return "parquet" if found == "parquet" else "json"
        if found is None or (found == "parquet" and packing_of(name)):
            endings, ending = ", ".join(SUFFIXES), "".join(Path(name).suffixes[-2:])
            raise InputError(
                f"{name}: the ending {ending!r} is of no known format" if ending else f"{name}: the name has no ending",
                hint=f"Endings: {endings}, those of text also with {', '.join(PACKED)}. Rename the file, or "
                "say format= if all files of the table have one.",
            )
        return found

    def is_parquet(self, name: str) -> bool:
        """Whether the file called `name` is read as Parquet."""
        if self.view:
            return False
        return self.format == "parquet" or (self.format in ("auto", "debezium") and suffix_of(name) == ".parquet")

    def operation_column(self, relation: Relation) -> str | None:
        """Return the name of the column with the operations of a table's rows, which a file need not have."""
        return _control_column(self.op, _OP, relation)

    def order_column(self, relation: Relation) -> str | None:
        """Return the name of the column with the source's order of a table's rows, which a file need not have."""
        return _control_column(self.order, _ORDER, relation) if self.order or relation.key else None

    def placeholder(self) -> str:
        """Return what stands for a value that the source has left out; empty if nothing does."""
        usual = "__debezium_unavailable_value" if self.format == "debezium" else ""
        return usual if not self.unavailable else "" if self.unavailable == NONE else self.unavailable

    def order_path(self) -> list[str]:
        """Return where the messages of a change log have the source's order; empty if they have none."""
        return [] if self.order == NONE else (self.order or _ORDER).split(".")

    def delimiter_of(self, name: str) -> str:
        """Return what stands between the cells of the CSV file called `name`."""
        return self.delimiter or ("\t" if suffix_of(name) == ".tsv" else ",")


def _control_column(given: str, default: str, relation: Relation) -> str | None:
    """Return the column that is declared, or else the usual one if the table has none of that name: that is data."""
    if given:
        return None if given == NONE else given
    return None if find_name(default, relation.column_names) else default


def is_left_alone(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith((".tmp", ".crc"))


def file_label(relation: str, name: str) -> str:
    """Return what the rows of a file are labelled with; no table's name makes it look like another label.

    Examples
    --------
    >>> file_label("orders", "1.csv"), file_label(" a/b", "1.csv")
    ('orders/1.csv', '%20a%2Fb/1.csv')
    """
    return f"{file_name(relation)}/{name}"
