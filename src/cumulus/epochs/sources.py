"""Where rows come from: a folder of files per table, read in the order of their names.

`sources_from` turns `--from` texts into `FolderSource`s; `next_files` says which files make the next epoch. Both hosts
use them: the embedded one directly, Spark through a Python data source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cumulus.errors import InputError, UsageError
from cumulus.m3.program import Program

FORMATS = ("auto", "parquet", "csv", "json", "debezium")
SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


@dataclass(frozen=True, slots=True)
class FolderSource:
    """One table's files.

    Parameters
    ----------
    relation
        The table that the rows belong to.
    path
        A folder, or a single file.
    format
        "auto" goes by each file's suffix; "debezium" means JSON lines or Parquet with `before`, `after` and `op`.
    op
        The column that says insert, delete or update. The default name counts only where a file has such a column.
    order
        The column with the source's own order inside a primary key; with dots for nested ones (`source.lsn`).
    key
        A primary key for tables that declare none.
    whole
        All files belong to one epoch, whatever the limit.
    """

    relation: str
    path: str
    format: str = "auto"
    op: str = "op"
    order: str = "seq"
    key: tuple[str, ...] = ()
    whole: bool = False

    def format_of(self, name: str) -> str:
        """Return "parquet", "csv" or "json": how the file called `name` is to be read."""
        if self.format in ("parquet", "csv", "json"):
            return self.format
        return SUFFIXES.get(Path(name).suffix.lower(), "parquet")


def sources_from(texts: Sequence[str], program: Program) -> tuple[FolderSource, ...]:
    """Return one source per table from `--from` texts.

    Parameters
    ----------
    texts
        `DIR` (a folder or a file per table inside it) or `NAME=PATH[,format=…][,op=…][,key=a+b][,order=…]`; a later
        one wins.
    program
        Says which tables there are.

    Raises
    ------
    InputError, UsageError
        For a folder that is not there, an unknown table or option, a table without a source.
    """
    found: dict[str, FolderSource] = {}
    for text in texts:
        head, *options = text.split(",")
        name, equals, path = head.partition("=")
        if not equals:
            found |= _folders_in(text, program)
            continue
        if name not in {relation.name for relation in program.relations}:
            raise UsageError(f"--from {text}: there is no table {name!r}", hint=f"Tables: {_names(program)}.")
        found[name] = _with_options(FolderSource(name, path), options, text)
    missing = [relation.name for relation in program.relations if relation.name not in found]
    if missing:
        raise InputError(
            f"no source for table {missing[0]!r}",
            hint=f"Give one: --from {missing[0]}=PATH, or --from DIR with a folder of that name.",
        )
    for source in found.values():
        check_readable(source)
    return tuple(found[relation.name] for relation in program.relations)


def _names(program: Program) -> str:
    return ", ".join(relation.name for relation in program.relations)


def _folders_in(text: str, program: Program) -> dict[str, FolderSource]:
    root = Path(text)
    if not root.is_dir():
        raise InputError(
            f"{text}: there is no such folder", hint="--from takes a folder with one folder per table, or NAME=PATH."
        )
    found: dict[str, FolderSource] = {}
    for relation in program.relations:
        candidates = [root / relation.name, *(root / (relation.name + suffix) for suffix in SUFFIXES)]
        path = next((candidate for candidate in candidates if candidate.exists()), None)
        if path is not None:
            found[relation.name] = FolderSource(relation.name, str(path))
    if not found:
        raise InputError(
            f"{text}: no folder for any of the tables", hint=f"Expected {text}/<table>/ for: {_names(program)}."
        )
    return found


def _with_options(source: FolderSource, options: Iterable[str], text: str) -> FolderSource:
    settings: dict[str, Any] = asdict(source)
    for option in options:
        name, _, value = option.partition("=")
        if name not in ("format", "op", "order", "key") or not value:
            raise UsageError(
                f"--from {text}: unknown option {option!r}", hint="Options: format=, op=, key=a+b, order=."
            )
        if name == "format" and value not in FORMATS:
            raise UsageError(f"--from {text}: unknown format {value!r}", hint=f"Formats: {', '.join(FORMATS)}.")
        settings[name] = tuple(value.split("+")) if name == "key" else value
    return FolderSource(**settings)


def check_readable(source: FolderSource) -> None:
    """Raise InputError if the folder or file of `source` is missing or cannot be listed."""
    path = Path(source.path)
    if not path.exists():
        raise InputError(
            f"{source.path}: the source of table {source.relation!r} is not there",
            hint="Create the folder (it may be empty), or correct the path.",
        )
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"{source.path}: not allowed to read the source of table {source.relation!r}")


def list_files(source: FolderSource) -> list[str]:
    """Return the names of the data files of `source`, in order; hidden and unfinished ones are left out."""
    path = Path(source.path)
    if path.is_file():
        return [path.name]
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_file()]
    except OSError as problem:
        raise InputError(
            f"{source.path}: the source of table {source.relation!r} cannot be listed: {problem.strerror}"
        ) from None
    return sorted(name for name in names if not name.startswith((".", "_")) and not name.endswith((".tmp", ".crc")))


def file_path(source: FolderSource, name: str) -> str:
    """Return the path of the file of `source` called `name`."""
    path = Path(source.path)
    return str(path if path.is_file() else path / name)


Progress = dict[str, dict[str, Any]]
"""Table → {"last": name of the last file taken, "count": files taken so far}: JSON, part of every offset."""


def next_files(
    sources: Iterable[FolderSource],
    done: Mapping[str, Mapping[str, Any]],
    limit: int,
    target: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[dict[str, list[str]], Progress]:
    """Return the files of the next epoch and the progress after it.

    Parameters
    ----------
    sources
        One per table.
    done
        The progress so far; empty at the start.
    limit
        Files of one table an epoch, at most; 0 means all there are.
    target
        A progress not to go beyond, or None.

    Returns
    -------
    tuple
        Table → names in order (tables without new files are left out), and the new progress.

    Raises
    ------
    InputError
        If a file appeared whose name sorts before one already taken: its rows would be lost.
    """
    files: dict[str, list[str]] = {}
    after: Progress = {}
    for source in sources:
        state = done.get(source.relation, {"last": "", "count": 0})
        names = list_files(source)
        taken = [name for name in names if name <= state["last"]]
        if len(taken) > state["count"]:
            raise InputError(
                f"{source.path}: {len(taken)} files sort up to {state['last']!r}, but only {state['count']} are in: "
                f"a file came late under an earlier name",
                hint="Files are read in the order of their names; rename the late one to sort after the last.",
            )
        new = names[len(taken) :][: None if source.whole else limit or None]
        if target is not None:
            new = [name for name in new if name <= target.get(source.relation, {"last": ""})["last"]]
        if new:
            files[source.relation] = new
        after[source.relation] = {"last": new[-1], "count": state["count"] + len(new)} if new else dict(state)
    return files, after


def files_left(sources: Iterable[FolderSource], done: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many files are there beyond the progress `done`."""
    files, _ = next_files(sources, done, 0)
    return sum(map(len, files.values()))
