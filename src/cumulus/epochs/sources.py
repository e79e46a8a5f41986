"""Where rows come from: a folder of files per table, read in the order of their names.

`sources_from` turns `--from` texts into `FolderSource`s; `next_files` says which files make the next epoch. Both hosts
use them: the embedded one directly, Spark through a Python data source.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cumulus.catalog.names import find_name, folded
from cumulus.durable.folders import file_name, refuse_remote
from cumulus.durable.store import NO_STORAGE, Storage, address_of, is_address
from cumulus.epochs.folder_source import (
    BY_NAME,
    BY_TIME,
    DELIMITERS,
    FORMATS,
    PACKED,
    SUFFIXES,
    TIMES,
    FolderSource,
    is_left_alone,
)
from cumulus.epochs.view_source import check_view, split_place
from cumulus.errors import InputError, UsageError
from cumulus.m3.program import Program


def sources_from(
    texts: Sequence[str],
    program: Program,
    *,
    whole: bool = True,
    storage: Storage | None = None,
    elsewhere: Collection[str] = (),
) -> tuple[FolderSource, ...]:
    """Return one source per table from `--from` texts.

    Parameters
    ----------
    texts
        Each is `DIR` (a folder or a file per table inside it), `NAME=PATH[,OPTION=…]` (fields of `FolderSource`), or
        `NAME=view:OUT/VIEW`, the changes of a view of another run, without a name for the table of the view's; a later
        one wins. Paths may be addresses.
    program
        Which tables there are.
    whole
        Whether each table must have one.
    storage
        How object stores are reached; addresses are refused if it is not given.
    elsewhere
        Tables whose files another host reads: nobody looks here whether they are there.

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
        place = split_place(head)
        if place is not None:  # without a name it is for the table of the view's
            name, equals = place[1], "="
        else:
            place = split_place(path)
        if not equals:
            later = {find_name(each.partition("=")[0], tables) for each in texts[at:] if "=" in each.split(",")[0]}
            if storage is not None and is_address(text):
                found |= _objects_in(text, program, storage)
            else:
                found |= _folders_in(text, program, later, elsewhere)
            continue
        table = find_name(name, tables)
        if table is None:
            way = f" Say which: --from TABLE={head}." if split_place(head) else ""
            raise UsageError(f"--from {text}: there is no table {name!r}", hint=f"Tables: {_names(program)}.{way}")
        if place is not None:
            if not all(place):
                raise UsageError(f"--from {text}: it names no view", hint="Write view:OUT/VIEW.")
            if options:
                raise UsageError(f"--from {text}: a view has no options", hint=f"Leave out {','.join(options)}.")
            found[table] = FolderSource(table, place[0], view=place[1])
            continue
        if is_address(path) and storage is not None:
            path = address_of(path)
        found[table] = replace(_with_options(FolderSource(table, path), options, text), storage=storage or NO_STORAGE)
    missing = [relation.name for relation in program.relations if relation.name not in found]
    if missing and whole:
        raise InputError(
            f"no source for table {missing[0]!r}",
            hint=f"Give one: --from {missing[0]}=PATH, or --from DIR with a folder of that name.",
        )
    for name, source in found.items():
        if name in elsewhere:
            found[name] = _absolute(source)
        elif source.view:
            found[name] = check_view(source)
        else:
            check_readable(source, takes_addresses=storage is not None)
    return tuple(found[relation.name] for relation in program.relations if relation.name in found)


def _absolute(source: FolderSource) -> FolderSource:
    """Return a source as another host finds it; UsageError if it is one that only this host can read."""
    if source.view or is_address(source.path):
        raise UsageError(
            f"--from {source.relation}={source.path}: another host reads folders and files alone",
            hint=f"Leave out --read-at for {source.relation}.",
        )
    return replace(source, path=str(Path(source.path).absolute()))


def _names(program: Program) -> str:
    return ", ".join(relation.name for relation in program.relations)


def _folders_in(
    text: str, program: Program, named: Collection[str | None], elsewhere: Collection[str] = ()
) -> dict[str, FolderSource]:
    """Return the sources in a folder of folders.

    Parameters
    ----------
    named
        The tables for which it does not count.
    elsewhere
        Those of which another host has a folder there, of the table's name.
    """
    refuse_remote(text, "--from")
    root = Path(text)
    if not root.is_dir() and not elsewhere:
        raise InputError(
            f"{text}: there is no such folder", hint="--from takes a folder with one folder per table, or NAME=PATH."
        )
    found: dict[str, FolderSource] = {}
    packed = [suffix + packing for suffix in SUFFIXES if suffix != ".parquet" for packing in PACKED]
    there = sorted(os.listdir(root)) if root.is_dir() else []
    for relation in program.relations:
        if relation.name in elsewhere:
            found[relation.name] = FolderSource(relation.name, str(root / file_name(relation.name)))
            continue
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
        from cumulus.epochs.source_files import check_objects

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
