"""A statement's words to sqlglot's tree; where it cannot be read, to an error that says what is likely wrong.

sqlglot tells the word that it stopped at. The mistake is often before it: a keyword with two letters swapped was taken
for a name. So words are changed one by one, and the change with which the statement can be read further is the advice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.errors import SqlSyntaxError, UnsupportedError
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.advice import QUERIES
from cumulus.sql.syntax.dialect import CumulusSql
from cumulus.sql.syntax.operators import CHAINED
from cumulus.sql.syntax.words import RESERVED, WORDS_OF_CLAUSES, is_name, outside_brackets, reserved_word_error

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT",
    "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "NATURAL", "USING", "ON", "AS", "DISTINCT", "BETWEEN",
    "CASE", "WHEN", "THEN", "ELSE", "END", "AND", "OR", "NOT", "NULL", "LIKE", "ILIKE", "EXISTS", "FILTER", "INTERVAL",
    "PRIMARY", "KEY", "REFERENCES", "FOREIGN", "CONSTRAINT", "RELY", "CASCADE", "RESTRICT", "ALL", "ASC", "DESC",
    "NULLS", "FIRST", "LAST",
)  # fmt: skip
_TRIES = 24
"""How many changes of a statement are tried."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of a statement: its tree, or the offset of the word where reading stopped, and what sqlglot says."""

    tree: exp.Expression | None
    at: int = -1
    told: str = ""


def tree_of(source: SqlText, words: Sequence[Token]) -> exp.Expression:
    """Return the tree of a statement.

    Raises
    ------
    SqlSyntaxError
        With the likely mistake.
    UnsupportedError
        If it is SQL that only DuckDB reads.
    """
    attempt = _attempt(source.text, words)
    if attempt.tree is not None:
        return attempt.tree
    raise _mistake(source, words, attempt)


def _attempt(text: str, words: Sequence[Token]) -> Attempt:
    try:
        (parsed,) = CumulusSql().parser().parse(list(words), text)
        tree = cast("exp.Expression | None", parsed)
    except ParseError as problem:
        first = problem.errors[0]
        line, column = int(first["line"] or 0), int(first["col"] or 0)
        stopped = next((word for word in words if (word.line, word.col) == (line, column)), None)
        at = words[-1].end + 1 if stopped is None else stopped.start
        return Attempt(None, at, str(first["description"]))
    return _given_up(text, words) if tree is None or isinstance(tree, exp.Command) else Attempt(tree)


def _given_up(text: str, words: Sequence[Token]) -> Attempt:
    """Return where a statement stops that sqlglot gave up on as a whole: it reads what is inside once more."""
    is_view = any(word.text.upper() == "VIEW" for word in words[:6])
    for index, word in outside_brackets(words):
        if is_view and word.text.upper() == "AS" and index + 1 < len(words):
            if words[index + 1].text.upper() in QUERIES:
                return Attempt(None, words[index + 1].start)
            inside = _attempt(text, words[index + 1 :])
            return Attempt(None, words[index + 1].start) if inside.tree is not None else inside
        if not is_view and word.token_type is TokenType.R_PAREN and index + 1 < len(words):
            return Attempt(None, words[index + 1].start)
    return Attempt(None, words[-1].end + 1)


def _mistake(source: SqlText, words: Sequence[Token], attempt: Attempt) -> SqlSyntaxError | UnsupportedError:
    """Return the error of a statement that cannot be read."""
    stopped = next((index for index, word in enumerate(words) if word.start >= attempt.at), len(words))
    if stopped < len(words) and words[stopped].text.upper() in QUERIES:
        word = words[stopped].text.upper()
        if stopped and words[stopped - 1].text.upper() in ("TABLE", "VIEW"):
            return reserved_word_error(source, words[stopped].text, attempt.at)
        return source.unsupported(f"{word} is not supported in a view", attempt.at, feature=word, hint=QUERIES[word])
    if attempt.told.startswith(CHAINED) and stopped < len(words):
        return source.syntax_error(
            f"{words[stopped].text} cannot stand behind another comparison",
            attempt.at,
            hint="Put brackets around one of them, or connect them with AND.",
        )
    bracket = _open_bracket(words)
    change = _helpful_change(source.text, words, stopped, attempt.at)
    if change is not None:
        wrong, better = change
        if better.startswith('"'):
            return reserved_word_error(source, wrong.text, wrong.start)
        return source.syntax_error(f"not valid SQL near {wrong.text!r}", wrong.start, hint=f"Did you mean {better}?")
    before = words[stopped - 1].text.upper() if stopped else ""
    if before in ("GROUP", "ORDER"):
        return source.syntax_error(
            f"BY is missing behind {before}", words[stopped - 1].start, hint=f"Write {before} BY."
        )
    if bracket is not None:
        return source.syntax_error(
            "this bracket is not closed" if bracket.token_type is TokenType.L_PAREN else "this bracket closes nothing",
            bracket.start,
            hint="Each ( has its ).",
        )
    return _unexpected(source, words, stopped, attempt.told)


def _unexpected(source: SqlText, words: Sequence[Token], stopped: int, told: str) -> SqlSyntaxError:
    """Return the error of a word that cannot follow those before it."""
    last = words[min(stopped, len(words) - 1)]
    if stopped >= len(words) or told.startswith("Required keyword"):
        return source.syntax_error(
            f"not valid SQL: something is missing behind {last.text}",
            last.start,
            hint="Complete it, or leave the clause out.",
        )
    if last.text == "`":
        return source.syntax_error("backticks mean nothing here", last.start, hint='A name is quoted with ".')
    before = f" behind {words[stopped - 1].text}" if stopped else ""
    expected = told.removeprefix("Expecting ") if told.startswith("Expecting ") and len(told) < 20 else ""
    hint = f"Expected is {expected}." if expected else f"Look at what stands before {last.text}: is a word missing?"
    return source.syntax_error(f"not valid SQL: {last.text!r} cannot stand here{before}", last.start, hint=hint)


def _open_bracket(words: Sequence[Token]) -> Token | None:
    """Return the innermost bracket without its other half, None if there is none."""
    opened: list[Token] = []
    for word in words:
        if word.token_type is TokenType.L_PAREN:
            opened.append(word)
        elif word.token_type is TokenType.R_PAREN:
            if not opened:
                return word
            opened.pop()
    return opened[-1] if opened else None


def _helpful_change(text: str, words: Sequence[Token], stopped: int, at: int) -> tuple[Token, str] | None:
    """Return the word, and what to write in its place, with which a statement can be read further."""
    whole = _blanked(text, words)
    best: tuple[int, Token, str] | None = None
    for word, better in _changes(words, stopped):
        changed = f"{whole[: word.start]}{better}{whole[word.end + 1 :]}"
        try:
            attempt = _attempt(changed, sqlglot.tokenize(changed, read=CumulusSql))
        except TokenError:
            continue
        if attempt.tree is not None:
            return word, better
        reached = attempt.at - (len(better) - (word.end + 1 - word.start))
        if reached > max(at, best[0] if best else 0, word.end + 1):
            best = (reached, word, better)
    return best[1:] if best else None


def _blanked(text: str, words: Sequence[Token]) -> str:
    """Return a text of which only some words are left, each where it was."""
    kept = [char if char == "\n" else " " for char in text[: words[-1].end + 1]]
    for word in words:
        kept[word.start : word.end + 1] = text[word.start : word.end + 1]
    return "".join(kept)


def _changes(words: Sequence[Token], stopped: int) -> Iterator[tuple[Token, str]]:
    """Give changes to try: words before the place in question, the nearest first."""
    count = 0
    for index in range(min(stopped + 1, len(words) - 1), -1, -1):
        word, before = words[index], words[index - 1].text.upper() if index else ""
        if not is_name(word):
            continue
        of_clause = word.text.lower() in WORDS_OF_CLAUSES
        if of_clause or word.text.lower() in RESERVED:
            if before in _BEFORE_NAMES or (of_clause and not before[-1:].isalnum()):
                yield word, f'"{word.text}"'
                count += 1
            continue
        if len(word.text) < 2 or word.text.upper() in _KEYWORDS:
            continue
        for close in difflib.get_close_matches(word.text.upper(), _KEYWORDS, n=2, cutoff=0.66):
            yield word, close
            count += 1
        if count > _TRIES:
            return


_BEFORE_NAMES = frozenset((
    "SELECT", "DISTINCT", ",", ".", "(", "AS", "BY", "FROM", "JOIN", "TABLE", "VIEW", "CUBE", "WHERE",
))  # fmt: skip
