"""The prompt on a terminal: lines until a semicolon, a history that stays, names that complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from cumulus.cli.shell.commands import COMMANDS
from cumulus.cli.shell.statements import take_line
from cumulus.cli.shell.targets import Target

WORDS = tuple(
    each
    for line in (
        "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT FULL USING ON AS AND OR NOT IN BETWEEN",
        "LIKE CASE WHEN THEN ELSE END NULL DISTINCT UNION ALL EXISTS WITH VALUES INSERT INTO DELETE UPDATE SET CREATE",
        "TABLE VIEW DROP COUNT SUM AVG MIN MAX CAST INTERVAL TRUE FALSE",
    )
    for each in line.split()
)


class WordCompleter(Completer):
    """Completes words with a dot at the start of a line, and words of SQL, tables, views and columns elsewhere."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the word before the cursor may become."""
        line = document.current_line_before_cursor
        if re.fullmatch(r"\.\w*", line):
            yield from (Completion(each, -len(line)) for each in COMMANDS if each.startswith(line))
            return
        word = document.get_word_before_cursor()
        if word:
            seen = dict.fromkeys(each for each in self._known(line) if each.lower().startswith(word.lower()))
            yield from (Completion(each, -len(word)) for each in seen)

    def _known(self, line: str) -> Iterator[str]:
        views, tables = self._target.views(), self._target.tables()
        yield from views
        if line.startswith((".explain", ".watch")):
            return
        yield from tables
        for columns in (*views.values(), *tables.values()):
            yield from (each.split(" ", 1)[0] for each in columns.split(", "))
        yield from WORDS


def lines(target: Target) -> Iterator[str]:
    """Yield what is typed: whole statements, without their semicolon, and words with a dot; end with Ctrl-D.

    Ctrl-C takes back what stands there, as in any shell.
    """
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=WordCompleter(target),
        auto_suggest=AutoSuggestFromHistory(),
        complete_while_typing=False,
    )
    begun = ""
    while True:
        try:
            typed = session.prompt("     ...> " if begun else "cumulus> ")
        except KeyboardInterrupt:
            begun = ""
            continue
        except EOFError:
            return
        statements, begun = take_line(begun, typed)
        yield from statements


def _history() -> History:
    """Return the history of this user's shells; none on a disk that cannot be written."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "cumulus"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "history").touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(folder / "history"))
