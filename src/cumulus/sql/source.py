"""The text behind a parsed tree: places of nodes, the words around them, and names as SQL folds them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.names import Name
from cumulus.errors import BindError, SqlSyntaxError, UnsupportedError

EARLIER = "(a statement given earlier)"
"""What errors call the statements that stand before the text that the user gives now."""


class Words:
    """The words of a script in order, as sqlglot splits them, and where they are."""

    def __init__(self, tokens: Sequence[Token] = ()) -> None:
        self.tokens = tuple(tokens)

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    @cached_property
    def _semicolons(self) -> list[int]:
        return [token.start for token in self.tokens if token.token_type is TokenType.SEMICOLON]

    @cached_property
    def starts_of_as(self) -> list[int]:
        """Where each AS starts."""
        return [token.start for token in self.tokens if token.text.upper() == "AS"]

    def statement(self, at: int) -> tuple[int, int]:
        """Return where the statement around `at` starts, and where its semicolon is, -1 if it has none."""
        after = bisect_left(self._semicolons, at)
        before = self._semicolons[after - 1] if after else -1
        first = bisect_right(self._starts, before)
        start = self._starts[first] if first < len(self._starts) else at
        return start, self._semicolons[after] if after < len(self._semicolons) else -1


@dataclass(frozen=True, slots=True)
class SqlText:
    """A SQL text, what errors call it, its words, and the user's functions that it may call, by names in lower case.

    Parameters
    ----------
    begin
        Where the text starts that the user gives now; what stands before it was given earlier.
    first
        Where the statement starts that is being read: the place of what has no other.
    """

    text: str
    name: str = ""
    words: Words = field(default_factory=Words)
    functions: Mapping[str, FunctionSignature] = field(default_factory=dict)
    begin: int = 0
    first: int = -1

    def place(self, at: int) -> dict[str, Any]:
        """Return line, column, text and name of an offset, as the keywords of a `SqlError`."""
        at = self.first if at < 0 else at
        if at < 0:
            return {"text": self.text[self.begin :], "name": self.name}
        start, end, name = self.begin, len(self.text), self.name
        if at < self.begin:
            start, end = self.words.statement(at)
            name, end = EARLIER, end if end >= 0 else self.begin
        line = self.text.count("\n", start, at) + 1
        column = at - max(self.text.rfind("\n", start, at), start - 1)
        return {"line": line, "column": column, "text": self.text[start:end], "name": name}

    def syntax_error(self, message: str, at: int, *, hint: str = "") -> SqlSyntaxError:
        """Return the error of what is no SQL, told with its place."""
        return SqlSyntaxError(message, hint=hint, **self.place(at))

    def bind_error(self, message: str, at: int, *, hint: str = "") -> BindError:
        """Return the error of a wrong name, type or number of things, told with its place."""
        return BindError(message, hint=hint, **self.place(at))

    def unsupported(self, message: str, at: int, *, feature: str, hint: str = "") -> UnsupportedError:
        """Return the error of a construct that does not compile, told with its place."""
        return UnsupportedError(message, feature=feature, hint=hint, **self.place(at))

    def statement_end(self, start: int) -> int:
        """Return the offset of the semicolon that ends the statement around `start`, or the text's end."""
        end = self.words.statement(start)[1]
        return end if end >= 0 else len(self.text)

    def after_as(self, start: int) -> int:
        """Return the offset behind the first AS after `start`, or the text's end."""
        after = bisect_left(self.words.starts_of_as, start)
        return next((found + 2 for found in self.words.starts_of_as[after:]), len(self.text))


def identifier(node: Any) -> Name:
    """Return a name, which DuckDB finds in any case, also in double quotes."""
    if isinstance(node, exp.Expression) and isinstance(node.this, (exp.Expression, str)):
        return Name(node.this) if isinstance(node, exp.Identifier) else identifier(node.this)
    return Name(node)


def offset_of(node: exp.Expression) -> int:
    """Return the offset of the first placed thing in a tree, -1 if there is none."""
    # The star of `FROM r` without SELECT is nobody's, and stands at 0.
    starts = [
        child.meta["start"]
        for child in node.walk()
        if child.meta and "start" in child.meta and not (isinstance(child, exp.Star) and child.meta["start"] == 0)
    ]
    return min(starts, default=-1)
