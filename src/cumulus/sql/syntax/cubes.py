"""The clauses of CREATE CUBE that no other SQL has: DIMENSION and KEEP.

They stand behind the name, in front of WITH and AS, and are taken out before sqlglot sees the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.names import Name
from cumulus.sql.ast import ColumnRef, CubeClauses, DimensionClause, KeepEntry
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.words import is_name, outside_brackets

_HINT = "DIMENSION name (column, …) … KEEP (column, …), (…) AS SELECT …"


def cube_clauses(source: SqlText, words: Sequence[Token]) -> tuple[int, int, CubeClauses]:
    """Return which words are clauses of a cube, and what they say.

    Parameters
    ----------
    words
        The name and what stands behind it, up to AS.
    """
    outside = [(index, word.text.upper()) for index, word in outside_brackets(words) if index]
    begin = next((index for index, text in outside if text in ("DIMENSION", "KEEP")), len(words))
    end = next((index for index, text in outside if text == "WITH" and index > begin), len(words))
    return begin, end, _ClauseReader(source, words[begin:end]).read()


class _ClauseReader:
    """Reads the clauses word by word."""

    def __init__(self, source: SqlText, words: Sequence[Token]) -> None:
        self._source = source
        self._words = words
        self._next = 0

    def read(self) -> CubeClauses:
        """Return what all words say."""
        dimensions: list[DimensionClause] = []
        keep: list[KeepEntry] = []
        keep_all, keep_at = False, -1
        while self._next < len(self._words):
            at = self._words[self._next].start
            if self._accept("DIMENSION"):
                dimensions.append(self._dimension())
            elif self._accept("KEEP"):
                if keep_at >= 0:
                    hint = "List all levels behind one KEEP: KEEP (a, b), (c), ()."
                    raise self._source.syntax_error("KEEP stands here a second time", at, hint=hint)
                keep_at = at
                keep_all = self._accept("ALL")
                while not keep_all:
                    at = self._place()
                    keep.append(KeepEntry(self._levels(), at))
                    if not self._accept(","):
                        break
            else:
                self._fail("cannot stand here")
        return CubeClauses(tuple(dimensions), tuple(keep), keep_all, keep_at)

    def _dimension(self) -> DimensionClause:
        at = self._place()
        name = self._name("the name of a dimension")
        if not self._opens():
            return DimensionClause(name, (ColumnRef(name, at=at),), at)
        levels = self._levels()
        if not levels:
            hint = f"DIMENSION {name} (column, …), or DIMENSION {name} where the column has that name."
            raise self._source.syntax_error(f"dimension {name} has no levels", at, hint=hint)
        return DimensionClause(name, levels, at)

    def _levels(self) -> tuple[ColumnRef, ...]:
        """Read columns in brackets."""
        if not self._opens():
            self._fail("is no list of levels in brackets")
        self._next += 1
        levels: list[ColumnRef] = []
        while not self._accept(")"):
            if levels and not self._accept(","):
                self._fail("is neither a comma nor a closing bracket")
            at = self._place()
            name, table = self._name("a level"), ""
            if self._accept("."):
                name, table = self._name("a level"), name
            levels.append(ColumnRef(name, table, at))
        return tuple(levels)

    def _opens(self) -> bool:
        return self._next < len(self._words) and self._words[self._next].token_type is TokenType.L_PAREN

    def _accept(self, text: str) -> bool:
        """Go on if a word, which is not quoted, is next."""
        if self._next < len(self._words):
            word = self._words[self._next]
            if word.text.upper() == text and word.token_type is not TokenType.IDENTIFIER:
                self._next += 1
                return True
        return False

    def _name(self, what: str) -> Name:
        if self._next < len(self._words):
            word = self._words[self._next]
            if is_name(word) or word.token_type is TokenType.IDENTIFIER:
                self._next += 1
                return Name(word.text)
        self._fail(f"stands where {what} is wanted")

    def _place(self) -> int:
        return self._words[min(self._next, len(self._words) - 1)].start

    def _fail(self, what: str) -> NoReturn:
        if self._next >= len(self._words):
            last = self._words[-1]
            raise self._source.syntax_error(f"something is missing behind {last.text}", last.start, hint=_HINT)
        word = self._words[self._next]
        raise self._source.syntax_error(f"{word.text!r} {what}", word.start, hint=_HINT)
