"""SQL text to words: where statements begin and end, what never closes, and which words no name can be.

Some names Cumulus takes as they are, and DuckDB only in double quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.names import NAME_RULE, name_fault, shown_name
from cumulus.catalog.utf8 import half_character
from cumulus.errors import SqlSyntaxError, UnsupportedError
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.dialect import CumulusSql

MAX_NESTING = 32
"""How deep brackets and CASE may stand in each other; what reads expressions afterwards recurses."""
RESERVED = frozenset((
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "both", "case", "cast", "check",
    "collate", "column", "constraint", "create", "default", "deferrable", "desc", "describe", "distinct", "do", "else",
    "end", "except", "false", "fetch", "for", "foreign", "from", "group", "having", "in", "initially", "intersect",
    "into", "lambda", "lateral", "leading", "limit", "not", "null", "offset", "on", "only", "or", "order", "pivot",
    "pivot_longer", "pivot_wider", "placing", "primary", "qualify", "references", "returning", "select", "show", "some",
    "summarize", "symmetric", "table", "then", "to", "trailing", "true", "union", "unique", "unpivot", "using",
    "variadic", "when", "where", "window", "with",
))  # fmt: skip
"""DuckDB's reserved words, in lower case: as a name each stands in double quotes."""
WORDS_OF_CLAUSES = frozenset((
    "between", "cross", "glob", "ilike", "inner", "join", "like", "notnull", "outer", "positional", "tablesample",
))  # fmt: skip
"""Words that DuckDB takes for a name in some places, and sqlglot in none."""


def words_of(source: SqlText) -> list[Token]:
    """Return the words of a text.

    Raises
    ------
    SqlSyntaxError
        If a quote or a comment does not end, or the text holds half a character.
    """
    text = source.text
    half = half_character(text)
    if half >= 0:
        raise source.syntax_error(
            f"{text[half]!r} is half a character (a lone surrogate)",
            half,
            hint="Decode the text as a whole: bytes.decode(), not piece by piece.",
        )
    try:
        return list(sqlglot.tokenize(text, read=CumulusSql))
    except TokenError:
        what, at = find_unterminated(text)
        if at >= 0:
            raise source.syntax_error(
                f"this {what} does not end", at, hint=f"Close it with {_CLOSED_BY[what]}."
            ) from None
        # What sqlglot splits otherwise than `find_unterminated` is a dollar sign inside a name.
        raise source.syntax_error(
            "cannot split the text into words",
            max(text.find("$", source.begin), source.begin),
            hint="Look for a quote that is not closed.",
        ) from None


def check_names(source: SqlText, words: Iterable[Token]) -> None:
    """Raise SqlSyntaxError at a name that no table, view, cube or column may have; see `catalog.names.name_fault`."""
    for word in words:
        if word.token_type in (TokenType.IDENTIFIER, TokenType.VAR):
            fault = name_fault(word.text)
            if fault:
                raise source.syntax_error(f"the name {shown_name(word.text)} {fault}", word.start, hint=NAME_RULE)


_CLOSED_BY = {
    "string": "'",
    "quoted name": '"',
    "comment": "*/",
    "dollar-quoted string": "the dollar signs it opens with",
}


def find_unterminated(text: str) -> tuple[str, int]:
    """Return what opens and never closes, and where; ("", -1) if nothing does.

    Examples
    --------
    >>> find_unterminated("SELECT 'it''s' -- isn't\\n/* here"), find_unterminated("SELECT 'a")
    (('comment', 24), ('string', 7))
    """
    at, end = 0, len(text)
    while at < end:
        char, opened = text[at], at
        if char in "'\"":
            at = text.find(char, at + 1)
            kind = "string" if char == "'" else "quoted name"
        elif text.startswith("--", at):
            at = text.find("\n", at)
            if at < 0:
                break
            kind = ""
        elif text.startswith("/*", at):
            kind, at = "comment", _comment_end(text, at)
        elif char == "$" and (mark := _dollar_quote(text, at)):
            at = text.find(mark, at + len(mark))
            kind = "dollar-quoted string"
            at += len(mark) - 1 if at >= 0 else 0
        else:
            kind = ""
        if at < 0:
            return kind, opened
        at += 1
    return "", -1


def _comment_end(text: str, at: int) -> int:
    """Return where the last character of a comment is, -1 if it never ends; comments nest."""
    depth, at = 1, at + 2
    while depth:
        close, again = text.find("*/", at), text.find("/*", at)
        if close < 0:
            return -1
        depth, at = (depth + 1, again + 2) if 0 <= again < close else (depth - 1, close + 2)
    return at - 1


def _dollar_quote(text: str, at: int) -> str:
    end = text.find("$", at + 1)
    tag = text[at + 1 : end] if end >= 0 else "1"
    return text[at : end + 1] if not tag or tag.isidentifier() else ""


def statements_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the words of each statement that has any."""
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def check_nesting(source: SqlText, statement: Sequence[Token]) -> None:
    """Refuse what is nested more deeply than anything here can read."""
    depth = 0
    for token in statement:
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth -= 1
        if depth > MAX_NESTING:
            raise too_deep(**source.place(token.start))


def too_deep(**place: Any) -> UnsupportedError:
    """Return the error of an expression that is nested more deeply than anything here can read."""
    return UnsupportedError(
        "this is nested too deeply",
        feature="deep nesting",
        hint=f"Brackets, CASE and operators may stand {MAX_NESTING} deep in each other. A long chain of operators or "
        f"of UNION counts, too: put brackets around {MAX_NESTING} links of it at a time.",
        **place,
    )


def outside_brackets(words: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Give the words that no bracket encloses, each with its number; a closing bracket is one of them."""
    depth = 0
    for index, word in enumerate(words):
        depth += (word.token_type is TokenType.L_PAREN) - (word.token_type is TokenType.R_PAREN)
        if depth == 0:
            yield index, word


def is_name(token: Token) -> bool:
    """Whether a word is written as a name without quotes."""
    return token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING) and token.text.isidentifier()


def reserved_word_error(source: SqlText, word: str, at: int) -> SqlSyntaxError:
    """Return the error of a reserved word where a name is wanted."""
    return source.syntax_error(f"{word} is a reserved word", at, hint=f'As a name it is quoted: "{word}".')


_WORDS = frozenset((
    "anti", "asof", "at", "authorization", "binary", "by", "collation", "concurrently", "freeze", "full", "is",
    "isnull", "left", "natural", "overlaps", "right", "semi", "similar", "unpack", "verbose",
))  # fmt: skip
"""Words that DuckDB takes as the name of a function or type, and of a column only in quotes or behind a dot."""


def for_duckdb(query: str) -> str:
    """Return a query of a view, which has been read before, as DuckDB takes it.

    Examples
    --------
    >>> for_duckdb("SELECT left(name, 1) AS l, MAX(at) AS last FROM clicks")
    'SELECT left(name, 1) AS l, MAX("at") AS last FROM clicks'
    """
    if not any(word in query.lower() for word in _WORDS):
        return query
    names = {
        (name.meta["start"], name.meta["end"] + 1)
        for name in sqlglot.parse_one(query, read=CumulusSql).find_all(exp.Identifier)
        if not name.quoted and "start" in name.meta and name.name.lower() in _WORDS
    }
    for start, end in sorted(names, reverse=True):
        query = f'{query[:start]}"{query[start:end]}"{query[end:]}'
    return query
