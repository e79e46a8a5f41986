"""Fenced code blocks of a Markdown page, and what is promised about each.

The word after the fence is the language; a second word changes what the test does:

    ```python             run; the blocks of a page share their names
    ```output             what the python block before it prints
    ```console            lines after `$ ` are commands, the others what they print; a line `…` is any number of
                          lines, `…` inside a line any text
    ```sql                compiled, run on random rows with deletions, and compared with DuckDB; a block without
                          CREATE TABLE uses the tables of the one before
    ```sql refused        what stands between lines of `;` is refused; the words after its `-- ` are in the message
    ```m3                 parsed
    ```javascript         run by Node.js, if it is there, against the server whose address is in the file `address`
    ```python elsewhere   run by tests of tests/spark: tables of others, hosted clusters, hosted rings
    ```… ignore           not run; for what needs the network, a Spark cluster or two terminals
    ```text               not code
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fence:
    """One block: its language, the words after it, its text, and the line that its text begins at."""

    language: str
    options: tuple[str, ...]
    text: str
    line: int


def fences(page: Path) -> list[Fence]:
    """Return the fenced blocks of a page in order."""
    found: list[Fence] = []
    opened: list[str] | None = None
    start = 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            if opened is not None:
                opened.append(line)
        elif opened is None:
            words, opened, start = line[3:].split(), [], number + 1
        else:
            language = words[0] if words else ""
            found.append(Fence(language, tuple(words[1:]), "\n".join(opened) + "\n", start))
            opened = None
    assert opened is None, f"{page.name}: the block at line {start} is not closed"
    return found


def matches(expected: str, actual: str) -> bool:
    """Whether `actual` is `expected`, where `…` stands for anything."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in expected.strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == ".*" else line + r"\n" for line in lines)
    found = "".join(line.rstrip() + "\n" for line in actual.strip("\n").splitlines())
    return re.fullmatch(pattern, found) is not None
