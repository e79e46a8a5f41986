"""Names and types in M3 text: variables, columns, maps, relations, functions, SQL types."""

from __future__ import annotations

from cumulus.algebra.lexer import Token, TokenKind, TokenStream
from cumulus.algebra.printing import CALL_WORDS, HARD_WORDS
from cumulus.catalog.types import SqlType, type_named


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
