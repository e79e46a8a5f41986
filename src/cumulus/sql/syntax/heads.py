"""The first words of a statement: what it declares, how, and which of its clauses are ours or nobody's.

`WITH (…)` behind CREATE TABLE and VIEW, `STRICT`, and CREATE CUBE with its clauses are additions to DuckDB's SQL: they
are read here and taken out before sqlglot sees the words. DIMENSION and KEEP of a cube stand behind its name, in front
of WITH and AS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.names import Name
from cumulus.errors import SqlSyntaxError, UnsupportedError
from cumulus.sql.ast import ColumnRef, CubeClauses, DimensionClause, KeepEntry
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.advice import KINDS, MODIFIERS, STATEMENTS, did_you_mean
from cumulus.sql.syntax.words import RESERVED, is_name, outside_brackets, reserved_word_error

Options = Mapping[str, tuple[str, int]]
"""Options of WITH: name → value, and where the name stands."""
_CONSTRAINTS = frozenset(("primary", "foreign", "unique", "check", "constraint"))


@dataclass(frozen=True, slots=True)
class StatementHead:
    """What a statement is.

    Parameters
    ----------
    kind
        "CREATE TABLE", "CREATE VIEW", "CREATE CUBE", "DROP VIEW" or "DROP CUBE".
    tokens
        The statement's words for sqlglot, without clauses of our own; a cube is a view to it.
    at
        Where the name stands.
    """

    kind: str
    tokens: tuple[Token, ...]
    at: int
    is_strict: bool = False
    replaces: bool = False
    unless_there: bool = False
    options: Options = field(default_factory=dict)
    cube: CubeClauses | None = None


def head_of(source: SqlText, words: Sequence[Token]) -> StatementHead:
    """Return what a statement is.

    Raises
    ------
    UnsupportedError
        For a statement or a clause that has no place in a script.
    SqlSyntaxError
        If it is no statement at all.
    """
    first = words[0].text.upper()
    if first == "DROP":
        return _drop(source, words)
    if first == "CREATE":
        return _create(source, words)
    told = " ".join(source.text[words[0].start : words[-1].end + 1].split()[:3])
    if first in STATEMENTS or words[0].token_type is TokenType.L_PAREN:
        raise _no_declaration(source, words, told, STATEMENTS.get(first, STATEMENTS["SELECT"]))
    close = did_you_mean(first, [*STATEMENTS, "CREATE", "DROP"], cutoff=0.7)
    raise source.syntax_error(
        f"no statement begins with {words[0].text}",
        words[0].start,
        hint=close or "A script is made of CREATE TABLE, CREATE VIEW, CREATE CUBE, DROP VIEW and DROP CUBE.",
    )


def _no_declaration(source: SqlText, words: Sequence[Token], told: str, hint: str) -> UnsupportedError:
    return source.unsupported(
        f"a script declares tables and views; this is {told!r}", words[0].start, feature=told, hint=hint
    )


def _drop(source: SqlText, words: Sequence[Token]) -> StatementHead:
    kind = 2 if len(words) > 2 and words[1].text.upper() == "MATERIALIZED" else 1
    what = words[kind].text.upper() if kind < len(words) else ""
    if what not in ("VIEW", "CUBE") or (what == "CUBE" and kind == 2):
        told = " ".join(word.text for word in words[:3])
        raise _no_declaration(
            source,
            words,
            told,
            "Only views and cubes are dropped: DROP VIEW name. A table stays as long as its warehouse.",
        )
    name = kind + 1 + 2 * (_texts(words[kind + 1 : kind + 3]) == ["IF", "EXISTS"])
    if len(words) <= name:
        told = f"the name of a {what.lower()} is missing"
        raise source.syntax_error(told, words[kind].start, hint=f"DROP {what} name.")
    if any(word.token_type is TokenType.COMMA for word in words[name:]):
        raise source.unsupported(
            f"DROP {what} of several {what.lower()}s",
            words[0].start,
            feature=f"DROP {what} a, b",
            hint=f"One statement drops one {what.lower()}.",
        )
    _check_schema(source, words[name:], what.lower())
    tokens = (*words[:kind], _as_view(words[kind]), *words[kind + 1 :])
    return StatementHead(f"DROP {what}", tokens, words[name].start)


def _as_view(word: Token) -> Token:
    """Return CUBE as the word that sqlglot knows for it, at its place."""
    if word.text.upper() != "CUBE":
        return word
    return Token(TokenType.VIEW, "VIEW", word.line, word.col, word.start, word.end)


def _texts(words: Sequence[Token]) -> list[str]:
    return [word.text.upper() for word in words]


def _create(source: SqlText, words: Sequence[Token]) -> StatementHead:
    at, replaces, is_strict, before = 1, False, False, []
    if _texts(words[1:3]) == ["OR", "REPLACE"]:
        at, replaces = 3, True
    while at < len(words) and words[at].text.upper() in (*MODIFIERS, "STRICT", "MATERIALIZED"):
        before.append(words[at])
        at += 1
    kind = words[at].text.upper() if at < len(words) else ""
    if kind not in ("TABLE", "VIEW", "CUBE"):
        raise _unknown_kind(source, words, at)
    for word in before:
        text = word.text.upper()
        if text in MODIFIERS or kind == "TABLE":
            raise source.unsupported(
                f"{text} is not supported in CREATE {text} {kind}",
                word.start,
                feature=f"{text} {kind}",
                hint=MODIFIERS.get(text, f"{text} belongs to views: leave it out."),
            )
        is_strict = is_strict or text == "STRICT"
    rest = list(words[at + 1 :])
    unless_there = _texts(rest[:3]) == ["IF", "NOT", "EXISTS"]
    rest = rest[3:] if unless_there else rest
    if unless_there and replaces:
        raise source.unsupported(
            "OR REPLACE and IF NOT EXISTS in one statement",
            words[1].start,
            feature="OR REPLACE … IF NOT EXISTS",
            hint="Write one of them.",
        )
    _check_name(source, kind, words[at], rest)
    cube = None
    if kind == "CUBE":
        begin, end, cube = cube_clauses(source, rest[: _as_of(rest)])
        rest = [*rest[:begin], *rest[end:]]
    end = len(rest) if kind == "TABLE" else _as_of(rest)
    begin, end, options = _with_clause(source, rest[:end])
    rest = [*rest[:begin], *rest[end:]]
    _check_columns(source, kind, rest)
    head = [_as_view(word) for word in words[: at + 1] if word.text.upper() != "STRICT"]
    tokens = (*head, *(words[at + 1 : at + 4] if unless_there else ()), *rest)
    return StatementHead(f"CREATE {kind}", tokens, rest[0].start, is_strict, replaces, unless_there, options, cube)


def _unknown_kind(source: SqlText, words: Sequence[Token], at: int) -> SqlSyntaxError | UnsupportedError:
    """Return the error of a CREATE of what is no table, view or cube."""
    told = words[at].text if at < len(words) else ""
    if told.upper() in KINDS:
        return _no_declaration(source, words, " ".join(word.text for word in words[: at + 2]), KINDS[told.upper()])
    close = did_you_mean(told.upper(), ["TABLE", "VIEW", "CUBE", "STRICT", "OR REPLACE", *MODIFIERS])
    return source.syntax_error(
        f"CREATE {told}".rstrip() + " is no statement",
        words[min(at, len(words) - 1)].start,
        hint=close or "A script takes CREATE TABLE, CREATE VIEW and CREATE CUBE.",
    )


def _check_name(source: SqlText, kind: str, word: Token, rest: Sequence[Token]) -> None:
    """Refuse a declaration without a name, with a reserved one, or with one that has a schema."""
    nameless = not rest or rest[0].token_type in (TokenType.L_PAREN, TokenType.NUMBER, TokenType.STRING)
    if nameless or (rest[0].text.upper() == "AS" and len(rest) > 1 and rest[1].text.upper() in _QUERIES):
        raise source.syntax_error(
            f"the name of the {kind.lower()} is missing", word.start, hint=f"CREATE {kind} name …"
        )
    if is_name(rest[0]) and rest[0].text.lower() in RESERVED:
        raise reserved_word_error(source, rest[0].text, rest[0].start)
    _check_schema(source, rest, kind.lower())


def _check_schema(source: SqlText, rest: Sequence[Token], what: str) -> None:
    if len(rest) > 2 and rest[1].token_type is TokenType.DOT:
        raise source.unsupported(
            f"a schema in front of the name of a {what} is not supported",
            rest[0].start,
            feature=f"{rest[0].text}.{rest[2].text}",
            hint=f"There are no schemas: write {rest[2].text}.",
        )


def _check_columns(source: SqlText, kind: str, rest: Sequence[Token]) -> None:
    """Refuse what does not follow a name: no columns, no AS; and reserved words as names of columns.

    sqlglot takes some of these words as names. DuckDB takes none.
    """
    following = rest[1] if len(rest) > 1 else None
    opens = following is not None and following.token_type is TokenType.L_PAREN
    inner = rest[2].text.upper() if opens and len(rest) > 2 else ""
    if kind == "TABLE" and (following is None or inner == ")"):
        raise source.syntax_error(
            f"{rest[0].text} has no columns",
            rest[0].start,
            hint="List them with their types: CREATE TABLE t (a INTEGER, …).",
        )
    if kind != "TABLE" and (following is None or following.text.upper() in _QUERIES or inner in _QUERIES):
        raise source.syntax_error(
            f"AS is missing behind {rest[0].text}", rest[0].start, hint=f"CREATE {kind} name AS SELECT …"
        )
    depth = 0
    for before, token in pairwise(rest):
        if depth == 1 and before.token_type in (TokenType.L_PAREN, TokenType.COMMA) and is_name(token):
            word = token.text.lower()
            if word in RESERVED and not (kind == "TABLE" and word in _CONSTRAINTS):
                raise reserved_word_error(source, token.text, token.start)
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return


_QUERIES = frozenset(("SELECT", "FROM", "WITH", "VALUES"))


def _as_of(words: Sequence[Token]) -> int:
    """Return the number of the AS before a query, outside all brackets; of the words in all if there is none."""
    return next((index for index, word in outside_brackets(words) if word.text.upper() == "AS"), len(words))


def _with_clause(source: SqlText, words: Sequence[Token]) -> tuple[int, int, Options]:
    """Return which words are a WITH (…) behind the name or the columns, and its options."""
    begin = next((index for index, word in outside_brackets(words) if word.text.upper() == "WITH" and index), 0)
    if not begin:
        return 0, 0, {}
    inside = words[begin + 1 :]
    is_whole = len(inside) > 1 and inside[0].token_type is TokenType.L_PAREN
    if not is_whole or inside[-1].token_type is not TokenType.R_PAREN:
        raise source.syntax_error("WITH must be followed by (option = value, …)", words[begin].start)
    values: dict[str, tuple[str, int]] = {}
    rest = inside[1:-1]
    while rest:
        if len(rest) < 3 or rest[1].text != "=":
            raise source.syntax_error("an option is written name = value", rest[0].start)
        values[rest[0].text.lower()] = (rest[2].text.lower(), rest[0].start)
        if len(rest) > 3 and rest[3].token_type is not TokenType.COMMA:
            raise source.syntax_error("options are separated by commas", rest[3].start)
        rest = rest[4:]
    return begin, len(words), values


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
