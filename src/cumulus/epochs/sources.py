"""Where rows come from: a folder of files per table, read in the order of their names.

`sources_from` turns `--from` texts into `FolderSource`s; `next_files` says which files make the next epoch. Both hosts
use them: the embedded one directly, Spark through a Python data source.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cumulus.catalog.names import find_name, folded
from cumulus.catalog.schema import Relation
from cumulus.durable.folders import file_name, refuse_remote
from cumulus.durable.store import NO_STORAGE, Storage, address_of, is_address
from cumulus.errors import InputError, UsageError
from cumulus.m3.program import Program

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


def sources_from(
    texts: Sequence[str], program: Program, *, whole: bool = True, storage: Storage | None = None
) -> tuple[FolderSource, ...]:
    """Return one source per table from `--from` texts.

    Parameters
    ----------
    texts
        Each is `DIR` (a folder or a file per table inside it) or `NAME=PATH[,OPTION=…]` (fields of `FolderSource`); a
        later one wins. Paths may be addresses.
    program
        Which tables there are.
    whole
        Whether each table must have one.
    storage
        How object stores are reached; addresses are refused if it is not given.

    Raises
    ------
    InputError, UsageError
        For a folder that is not there, an unknown table or option, a table without a source.
    """
    found: dict[str, FolderSource] = {}
    tables = [relation.name for relation in program.relations]
    for at, text in enumerate(texts, 1):
        head, *options = text.split(",")
        name, equals, path = head.partition("=")
        if not equals:
            later = {find_name(each.partition("=")[0], tables) for each in texts[at:] if "=" in each.split(",")[0]}
            if storage is not None and is_address(text):
                found |= _objects_in(text, program, storage)
            else:
                found |= _folders_in(text, program, later)
            continue
        table = find_name(name, tables)
        if table is None:
            raise UsageError(f"--from {text}: there is no table {name!r}", hint=f"Tables: {_names(program)}.")
        if is_address(path) and storage is not None:
            path = address_of(path)
        found[table] = replace(_with_options(FolderSource(table, path), options, text), storage=storage or NO_STORAGE)
    missing = [relation.name for relation in program.relations if relation.name not in found]
    if missing and whole:
        raise InputError(
            f"no source for table {missing[0]!r}",
            hint=f"Give one: --from {missing[0]}=PATH, or --from DIR with a folder of that name.",
        )
    for source in found.values():
        check_readable(source, takes_addresses=storage is not None)
    return tuple(found[relation.name] for relation in program.relations if relation.name in found)


def _names(program: Program) -> str:
    return ", ".join(relation.name for relation in program.relations)


def _folders_in(text: str, program: Program, named: Collection[str | None]) -> dict[str, FolderSource]:
    """Return the sources in a folder of folders; `named` are the tables for which it does not count."""
    refuse_remote(text, "--from")
    root = Path(text)
    if not root.is_dir():
        raise InputError(
            f"{text}: there is no such folder", hint="--from takes a folder with one folder per table, or NAME=PATH."
        )
    found: dict[str, FolderSource] = {}
    packed = [suffix + packing for suffix in SUFFIXES if suffix != ".parquet" for packing in PACKED]
    there = sorted(os.listdir(root))
    for relation in program.relations:
        encoded = {each.name: folded(file_name(each.name)) for each in program.relations}
        mine = encoded.pop(relation.name)
        names = {mine, *({folded(relation.name)} - set(encoded.values()))}
        wanted = {folded(name + ending) for name in names for ending in ("", *SUFFIXES, *packed)}
        candidates = [name for name in there if folded(name) in wanted]
        if len(candidates) > 1 and relation.name not in named:
            raise InputError(
                f"{text}: table {relation.name!r} could be {' or '.join(candidates)}",
                hint=f"Leave one of them there, or say which: --from {text} --from "
                f"{relation.name}={root / candidates[0]}.",
            )
        if candidates:
            found[relation.name] = FolderSource(relation.name, str(root / candidates[0]))
    if not found:
        raise InputError(
            f"{text}: no folder for any of the tables", hint=f"Expected {text}/<table>/ for: {_names(program)}."
        )
    return found


def _objects_in(address: str, program: Program, storage: Storage) -> dict[str, FolderSource]:
    """Return the sources below an address: a folder per table."""
    from cumulus.durable.store import store_of

    root = address_of(address)
    try:
        there = {file.name.split("/")[0] for file in store_of(root, storage).list()}
    except OSError as problem:
        raise InputError(f"{root}: cannot be listed: {problem.strerror}") from None
    found = {}
    for relation in program.relations:
        wanted = {folded(file_name(relation.name)), folded(relation.name)}
        wanted |= {name + ending for name in tuple(wanted) for ending in SUFFIXES}
        candidates = sorted(name for name in there if folded(name) in wanted)
        if len(candidates) > 1:
            raise InputError(
                f"{root}: table {relation.name!r} could be {' or '.join(candidates)}",
                hint=f"Say which: --from {relation.name}={root}/{candidates[0]}.",
            )
        if candidates:
            found[relation.name] = FolderSource(relation.name, f"{root}/{candidates[0]}", storage=storage)
    if not found:
        raise InputError(
            f"{root}: no folder for any of the tables", hint=f"Expected {root}/<table>/ for: {_names(program)}."
        )
    return found


def _with_options(source: FolderSource, options: Iterable[str], text: str) -> FolderSource:
    settings: dict[str, Any] = asdict(source)
    for option in options:
        name, _, value = option.partition("=")
        name = {"sep": "delimiter"}.get(name, name)
        if name not in _OPTIONS or not value:
            known = ", ".join(f"{each}=" for each in _OPTIONS)
            raise UsageError(f"--from {text}: unknown option {option!r}", hint=f"Options: {known}.")
        try:
            settings[name] = _OPTIONS[name](value)
        except ValueError as problem:
            raise UsageError(f"--from {text}: unknown {name} {value!r}", hint=str(problem)) from None
    return FolderSource(**settings)


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def chosen(value: str) -> str:
        if value not in words:
            raise ValueError(f"One of: {', '.join(words)}.")
        return value

    return chosen


def _delimiter(value: str) -> str:
    mark = DELIMITERS.get(value.lower(), "\t" if value == "\\t" else value)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n':
        raise ValueError(f"One character, or one of: {', '.join(DELIMITERS)}.")
    return mark


def _header(value: str) -> bool:
    return _one_of(("true", "false"))(value.lower()) == "true"


def _encoding(value: str) -> str:
    try:
        "".encode(value)
        return codecs.lookup(value).name
    except LookupError:
        raise ValueError("Such as utf-8, latin-1, cp1252, utf-16.") from None


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "format": _one_of(FORMATS),
    "op": str,
    "key": lambda value: tuple(value.split("+")),
    "order": str,
    "delimiter": _delimiter,
    "header": _header,
    "encoding": _encoding,
    "times": _one_of(TIMES),
    "decimals": _one_of(("base64",)),
    "unavailable": str,
    "files": _one_of((BY_NAME, BY_TIME)),
}
"""What `--from` takes behind a path, and how."""


def check_readable(source: FolderSource, *, takes_addresses: bool = False) -> None:
    """Raise InputError if the folder or file of `source` is missing or cannot be listed."""
    if takes_addresses and is_address(source.path):
        from cumulus.epochs.source_objects import check_objects

        check_objects(source)
        return
    refuse_remote(source.path, f"--from {source.relation}=")
    path = Path(source.path)
    if not path.exists():
        raise InputError(
            f"{source.path}: the source of table {source.relation!r} is not there",
            hint="Create the folder (it may be empty), or correct the path.",
        )
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"{source.path}: not allowed to read the source of table {source.relation!r}")


def check_apart(sources: Iterable[FolderSource], *written: str | Path) -> None:
    """Raise UsageError if what a run writes would lie among the files of a table, as rows that it cannot read."""
    for folder in written:
        for source in sources:
            if is_address(folder) or is_address(source.path):
                place, read = address_of(folder), address_of(source.path)
                if place == read or f"{place}/".startswith(f"{read}/"):
                    raise UsageError(
                        f"{place} is in {read}, the folder of table {source.relation!r}",
                        hint="Keep what is written apart from what is read: choose another --out or --checkpoint.",
                    )
                continue
            path, table = Path(folder).resolve(), Path(source.path).resolve()
            if not folder or not path.is_relative_to(table):
                continue
            if path == table or not is_left_alone(path.relative_to(table).parts[0]):
                raise UsageError(
                    f"{folder} is in {source.path}, the folder of table {source.relation!r}",
                    hint="Keep what is written apart from what is read: choose another --out or --checkpoint.",
                )


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


def file_path(source: FolderSource, name: str) -> str:
    """Return the path of the file of `source` called `name`."""
    if is_address(source.path):
        from cumulus.epochs.source_objects import is_one_object

        return source.path if is_one_object(source) else f"{source.path}/{name}"
    path = Path(source.path)
    return str(path if path.is_file() else path / name)
