"""`cumulus shell`: the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.shell.statements import is_empty, take_line
from cumulus.errors import CumulusError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 40
"""So many rows of a result are shown on a terminal; elsewhere all are."""


def shell(
    target: Path | None = typer.Argument(
        None, help="A .sql or .m3 file, a folder of save(), or the --out of a run; left out: nothing yet."
    ),
    command: list[str] = typer.Option([], "--command", "-c", help="Statements to run instead of asking; repeatable."),
    engine: str = typer.Option("auto", help="auto, native or interpreter."),
    keep: str = typer.Option("all", help="Which tables keep their rows: auto, all or none. Kept rows can be queried."),
    functions: FunctionPlaces = None,
    as_json: bool = typer.Option(False, "--json", help="Rows as JSON, one object a line."),
) -> None:
    """Ask views, and change rows to see them follow. Without a terminal, statements are read from the input.

    Example: cumulus shell views.sql
    """
    # Imported here, for `cumulus --help` needs no engine.
    from cumulus.cli.shell.commands import LeaveError, Shell
    from cumulus.cli.shell.targets import open_target
    from cumulus.cli.terminal.consoles import plain_console

    shown = Shell(open_target(target, engine=engine, keep=keep, functions=functions_in(functions)))
    if command or not sys.stdin.isatty():
        # What is run without anybody there ends with its first error, like any program.
        for text in _given(command or [_input()]):
            try:
                _show(shown.run(text), as_json)
            except LeaveError:
                return
        return
    from cumulus.cli.shell.prompt import lines

    console = plain_console()
    console.print(f"{shown.target.title}. Statements end with a semicolon; .help says what else there is.")
    for text in lines(shown.target):
        try:
            _show(shown.run(text), as_json)
        except LeaveError:
            return
        except CumulusError as problem:
            console.print(f"error: {problem}", soft_wrap=True)
        except KeyboardInterrupt:
            console.print("interrupted")


def _input() -> str:
    """Return what stands in the input.

    Raises
    ------
    InputError
        If it is not text.
    """
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError(f"the input is not UTF-8: {problem}", hint="Give SQL as UTF-8 text.") from None
    if "\0" in text:
        raise InputError("the input has NUL characters: it is no text", hint="Give SQL as UTF-8 text.")
    return text


def _given(texts: Iterable[str]) -> Iterator[str]:
    """Yield the statements of texts, and lines that begin with a dot where a statement may begin."""
    for text in texts:
        begun = ""
        for line in text.splitlines():
            statements, begun = take_line(begun, line)
            yield from statements
        if not is_empty(begun):
            yield begun


def _show(results: Iterable[pa.Table | str], as_json: bool) -> None:
    from cumulus.cli.terminal.consoles import plain_console
    from cumulus.cli.terminal.tables import print_rows

    for result in results:
        if isinstance(result, str):
            plain_console().print(result, soft_wrap=True)
        elif as_json:
            for row in result.to_pylist():
                print(json.dumps(row, default=str, ensure_ascii=False))
        else:
            print_rows(plain_console(), result, most=MOST if sys.stdout.isatty() else None)
