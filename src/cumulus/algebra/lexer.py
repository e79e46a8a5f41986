"""Tokens of M3 text, with their places, and the names and types in it.

Layout means nothing but where a line begins (the papers separate statements by line breaks); `--` starts a comment.
Words are kept as written: a name is case-sensitive, a keyword is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from cumulus.algebra.printing import CALL_WORDS, HARD_WORDS
from cumulus.catalog.types import SqlType, type_named
from cumulus.catalog.utf8 import half_character
from cumulus.errors import M3SyntaxError

T = TypeVar("T")


class TokenKind(Enum):
    """What a token is."""

    NAME = "name"
    QUOTED = "quoted name"
    NUMBER = "number"
    STRING = "string"
    SIGN = "sign"
    END = "end of the text"


class Token(NamedTuple):
    """A token: `text` without quotes, and its 1-based place."""

    kind: TokenKind
    text: str
    line: int
    column: int

    @property
    def is_name(self) -> bool:
        """Whether it can be a name, quoted or not."""
        return self.kind in (TokenKind.NAME, TokenKind.QUOTED)

    def is_sign(self, *signs: str) -> bool:
        """Whether it is one of `signs`."""
        return self.kind is TokenKind.SIGN and self.text in signs

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the keywords `words` (given in upper case), in any case."""
        return self.kind is TokenKind.NAME and self.text.upper() in words

    def describe(self) -> str:
        """Return the token as an error message names it."""
        match self.kind:
            case TokenKind.END:
                return "the end of the text"
            case TokenKind.STRING:
                return f"the string '{self.text}'"
            case _:
                return f"'{self.text}'"


_TOKEN = re.compile(
    r"""
      (?P<space>[^\S\n]+|--[^\n]*|\ufeff)
    | (?P<line>\n)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<string>'(?:[^']|'')*')
    | (?P<sign>\.\.\.|\.\.|\+=|:=|<=|>=|<>|!=|==|\|\||//|[-+*/%<>=()\[\]{},;:.])
    """,
    re.VERBOSE,
)

_KINDS = {
    "number": TokenKind.NUMBER,
    "name": TokenKind.NAME,
    "quoted": TokenKind.QUOTED,
    "string": TokenKind.STRING,
    "sign": TokenKind.SIGN,
}

_SYNONYMS = {"!=": "<>", "==": "="}


def tokenize(text: str, name: str = "") -> list[Token]:
    """Return the tokens of `text`, the last one of kind END.

    Raises
    ------
    M3SyntaxError
        At a character that begins no token, or a string that never ends.

    Examples
    --------
    >>> [token.text for token in tokenize("q[x] += 2 -- a comment")]
    ['q', '[', 'x', ']', '+=', '2', '']
    """
    half = half_character(text)
    if half >= 0:
        raise M3SyntaxError(
            f"{text[half]!r} is half a character (a lone surrogate): no UTF-8 says it",
            line=text.count("\n", 0, half) + 1,
            column=half - text.rfind("\n", 0, half),
            text=text,
            name=name,
            hint="Write the whole character.",
        )
    tokens: list[Token] = []
    at, line, line_start = 0, 1, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            what = "a string or quoted name that never ends" if text[at] in "'\"" else f"the character {text[at]!r}"
            raise M3SyntaxError(
                f"{what} cannot stand here",
                line=line,
                column=at - line_start + 1,
                text=text,
                name=name,
                hint="A quote inside quotes is doubled." if text[at] in "'\"" else "Put odd names in double quotes.",
            )
        kind, raw = token.lastgroup, token.group()
        if kind in _KINDS:
            tokens.append(Token(_KINDS[kind], _content(kind, raw), line, at - line_start + 1))
        if "\n" in raw:
            line += raw.count("\n")
            line_start = at + raw.rindex("\n") + 1
        at = token.end()
    tokens.append(Token(TokenKind.END, "", line, at - line_start + 1))
    return tokens


def _content(kind: str, raw: str) -> str:
    if kind == "string":
        return raw[1:-1].replace("''", "'")
    if kind == "quoted":
        return raw[1:-1].replace('""', '"')
    return _SYNONYMS.get(raw, raw)


class TokenStream:
    """The tokens of a text, read from left to right with as much look-ahead as wanted; `position` is the next one's."""

    def __init__(self, text: str, name: str = "") -> None:
        self.text = text
        self.name = name
        self.tokens = tokenize(text, name)
        self.position = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or one further ahead, without taking it."""
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self.position += 1
        return token

    def next_is(self, *signs: str) -> bool:
        """Whether one of `signs` comes next."""
        return self.peek().is_sign(*signs)

    def at_word(self, *words: str) -> bool:
        """Whether one of the keywords `words` comes next."""
        return self.peek().is_word(*words)

    def accept(self, *signs: str) -> bool:
        """Take the next token if it is one of `signs`; say whether it was."""
        if self.peek().is_sign(*signs):
            self.position += 1
            return True
        return False

    def accept_word(self, *words: str) -> bool:
        """Take the next token if it is one of the keywords `words`; say whether it was."""
        if self.peek().is_word(*words):
            self.position += 1
            return True
        return False

    def expect(self, sign: str, where: str = "") -> Token:
        """Take `sign`, or fail."""
        if not self.peek().is_sign(sign):
            self.fail(f"expected '{sign}'{f' {where}' if where else ''}")
        return self.take()

    def expect_word(self, word: str) -> Token:
        """Take the keyword `word`, or fail."""
        if not self.peek().is_word(word):
            self.fail(f"expected {word}")
        return self.take()

    def listed(self, opening: str, closing: str, read: Callable[[], T], where: str = "") -> list[T]:
        """Take two brackets and the list between them, whose items `read` takes and commas separate."""
        self.expect(opening)
        items: list[T] = []
        while not self.accept(closing):
            if items:
                self.expect(",", where or f"or '{closing}'")
            items.append(read())
        return items

    def separated(self, read: Callable[[], T]) -> list[T]:
        """Take one item or more, which `read` takes and commas separate."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return items

    def expect_end(self) -> None:
        """Fail unless all is read."""
        if self.peek().kind is not TokenKind.END:
            self.fail("expected the end of the text")

    def fail(self, message: str, token: Token | None = None, hint: str = "") -> NoReturn:
        """Raise `M3SyntaxError` at the next token, or at `token`, saying what was found there."""
        found = token or self.peek()
        self.raise_syntax_error(f"{message}, found {found.describe()}", found, hint)

    def raise_syntax_error(self, message: str, token: Token, hint: str = "") -> NoReturn:
        """Raise `M3SyntaxError` at `token`."""
        raise M3SyntaxError(
            message,
            line=token.line,
            column=token.column,
            text=self.text,
            name=self.name,
            hint=hint,
        )


def read_variable(tokens: TokenStream, what: str = "a variable") -> str:
    """Read the name of a variable or column; `a.b` is one name."""
    token = tokens.peek()
    if not token.is_name:
        tokens.fail(f"expected {what}")
    refuse_word(tokens, token, HARD_WORDS)
    words = [tokens.take().text]
    while tokens.next_is(".") and tokens.peek(1).is_name:
        tokens.take()
        words.append(tokens.take().text)
    return ".".join(words)


def read_variables(tokens: TokenStream, opening: str, closing: str) -> tuple[str, ...]:
    """Read a bracketed list of variables."""
    return tuple(tokens.listed(opening, closing, lambda: read_variable(tokens)))


def read_value_column(tokens: TokenStream) -> str:
    """Read the `.v` behind a map's keys, or nothing."""
    if tokens.next_is(".") and tokens.peek(1).is_name:
        tokens.take()
        return tokens.take().text
    return ""


def read_call_name(tokens: TokenStream, what: str) -> str:
    """Read the name of a map, relation or function."""
    token = tokens.peek()
    if not token.is_name:
        tokens.fail(f"expected the name of {what}")
    refuse_word(tokens, token, CALL_WORDS)
    return tokens.take().text


def refuse_word(tokens: TokenStream, token: Token, reserved: frozenset[str]) -> None:
    """Fail if `token` is a keyword where a name must stand."""
    if token.kind is TokenKind.NAME and token.text.upper() in reserved:
        tokens.fail("expected a name", token, hint=f'A name that is a keyword is quoted: "{token.text}".')


def read_count(tokens: TokenStream) -> int:
    """Read a whole number without a sign."""
    if tokens.peek().kind is not TokenKind.NUMBER or not tokens.peek().text.isdigit():
        tokens.fail("expected a whole number")
    return int(tokens.take().text)


def read_type(tokens: TokenStream) -> SqlType:
    """Read a type, with its parameters."""
    token = tokens.peek()
    if not token.is_name:
        tokens.fail("expected a type")
    tokens.take()
    parameters = tokens.listed("(", ")", lambda: read_count(tokens)) if tokens.next_is("(") else []
    found = type_named(token.text, tuple(parameters))
    if found is None:
        tokens.fail("expected a type", token, hint="Types have DuckDB's names, such as BIGINT, DECIMAL(15,2).")
    return found
