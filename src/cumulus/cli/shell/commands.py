"""The words with a dot: what the shell does that is no SQL."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from cumulus.catalog.names import known_name
from cumulus.cli.shell.statements import is_empty, split_statements
from cumulus.cli.shell.targets import Target
from cumulus.cli.shell.warehouse_target import LiveTarget
from cumulus.errors import InputError, UsageError


class LeaveError(Exception):
    """`.quit` was typed."""


@dataclass
class Shell:
    """What one shell has at hand: what statements are about, and the values of `$name` in them, as `.set` gave them.

    It neither reads nor prints.
    """

    target: Target
    parameters: dict[str, Any] = field(default_factory=dict)

    def run(self, text: str) -> Iterator[pa.Table | str]:
        """Run one statement or one word with a dot; yield the tables and lines to show.

        Raises
        ------
        CumulusError
            With a way out; the shell goes on.
        LeaveError
            For `.quit`.
        """
        if text.startswith("."):
            word, _, rest = text.strip().rstrip(";").partition(" ")
            if word not in COMMANDS:
                raise UsageError(f"there is no {word}", hint=f"There are {', '.join(COMMANDS)}.")
            yield from COMMANDS[word].run(self, rest.strip())
        else:
            yield self.target.run(text, self._mentioned(text))
        yield from self.target.news()

    def _mentioned(self, statement: str) -> dict[str, Any]:
        """Return the parameters that a statement names: DuckDB takes no others."""
        return {name: value for name, value in self.parameters.items() if f"${name}" in statement}


@dataclass(frozen=True)
class Command:
    """A word with a dot."""

    usage: str
    summary: str
    run: Callable[[Shell, str], Iterable[pa.Table | str]]


def _help(shell: Shell, _: str) -> Iterator[str]:
    yield "SELECT …; INSERT INTO …; DELETE FROM …; UPDATE …; CREATE VIEW …; DROP VIEW …; CREATE TABLE …;"
    width = max(len(each.usage) for each in COMMANDS.values())
    yield from (f"{each.usage:{width}}  {each.summary}" for each in COMMANDS.values())


def _listed(tables: Mapping[str, str]) -> Iterable[str]:
    return (f"{name} ({columns})" for name, columns in tables.items())


def _set(shell: Shell, text: str) -> Iterator[str]:
    name, _, value = text.partition(" ")
    if not name:
        yield from (f"${name} = {value!r}" for name, value in shell.parameters.items())
        return
    if not name.isidentifier() or not value.strip():
        raise UsageError(f".set {text}", hint="Write .set NAME VALUE, such as .set nation 'Kenya'; then $nation.")
    try:
        shell.parameters[name] = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        shell.parameters[name] = value.strip()  # a word without quotes is a text
    yield f"${name} = {shell.parameters[name]!r}"


def _read(shell: Shell, path: str) -> Iterator[pa.Table | str]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read {path}: {problem}", hint="Give the path of a UTF-8 text.") from None
    statements, rest = split_statements(text)
    for statement in [*statements, rest]:
        if not is_empty(statement):
            yield from shell.run(statement)


def _load(shell: Shell, text: str) -> Iterator[str]:
    table, _, path = text.partition(" ")
    if not path.strip():
        raise UsageError(f".load {text}", hint="Write .load TABLE FILE, with a Parquet or CSV file.")
    yield f"{_warehouse(shell).insert(table, Path(path.strip())):,} rows in"


def _save(shell: Shell, path: str) -> Iterator[str]:
    if not path:
        raise UsageError(".save needs a folder", hint="Write .save FOLDER; cumulus shell FOLDER opens it again.")
    _warehouse(shell).save(path)
    yield f"saved in {path}"


def _cube(shell: Shell, text: str) -> Iterator[pa.Table | str]:
    """Tell of cubes: all of them, one of them, or what a selection of one says."""
    from cumulus import Cube
    from cumulus.cli.cube.command import described
    from cumulus.cli.cube.options import options_in

    source = shell.target.cubes()
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError(f".cube {text}: {problem}", hint="Close what you open.") from None
    if not words:
        yield from source.names()
        return
    cube = Cube(source, words[0])
    if len(words) == 1:
        yield from described(cube)
    else:
        yield options_in(words[1:]).selection(cube).arrow()


def _quit(shell: Shell, _: str) -> NoReturn:
    raise LeaveError


def _view(shell: Shell, name: str) -> str:
    return known_name(name.strip('"'), shell.target.views(), "view")


def _warehouse(shell: Shell) -> Any:
    if not isinstance(shell.target, LiveTarget):
        raise UsageError("the output of a run can be read, not changed", hint="Open a script or a saved warehouse.")
    return shell.target.warehouse


COMMANDS = {
    ".help": Command(".help", "this", _help),
    ".tables": Command(".tables", "the base tables, with columns", lambda shell, _: _listed(shell.target.tables())),
    ".views": Command(".views", "the views, with columns", lambda shell, _: _listed(shell.target.views())),
    ".explain": Command(
        ".explain VIEW",
        "what keeping a view costs",
        lambda shell, view: [shell.target.explain(_view(shell, view))],
    ),
    ".cube": Command(
        ".cube [NAME [--by LEVELS …]]", "cubes; one of them; or a selection, as of cumulus cube query", _cube
    ),
    ".watch": Command(
        ".watch VIEW", "show what changes in a view", lambda shell, view: shell.target.watch(_view(shell, view))
    ),
    ".set": Command(".set NAME VALUE", "a parameter: statements name it $NAME; without a name, all of them", _set),
    ".m3": Command(".m3", "the program that keeps the views", lambda shell, _: [shell.target.program()]),
    ".stats": Command(".stats", "rows, entries, bytes", lambda shell, _: [shell.target.stats()]),
    ".read": Command(".read FILE", "run the statements of a file", _read),
    ".load": Command(".load TABLE FILE", "insert the rows of a Parquet or CSV file", _load),
    ".save": Command(".save FOLDER", "keep this warehouse", _save),
    ".quit": Command(".quit", "leave; so does Ctrl-D", _quit),
}
