"""Names and types in M3 text: variables, maps, relations, functions, SQL types."""

from __future__ import annotations

from cumulus.algebra.lexer import Token, TokenKind, TokenStream
from cumulus.algebra.printing import CALL_WORDS, HARD_WORDS
from cumulus.catalog.types import SqlType, type_named


class NameReader:
    """Reads names and types from `tokens`, which it shares with whoever reads what stands around them."""

    def __init__(self, tokens: TokenStream) -> None:
        self.tokens = tokens

    def variable(self, what: str = "a variable") -> str:
        """Read the name of a variable or column; `a.b` is one name."""
        token = self.tokens.peek()
        if not token.is_name:
            self.tokens.fail(f"expected {what}")
        self.refuse_word(token, HARD_WORDS)
        words = [self.tokens.take().text]
        while self.tokens.at_sign(".") and self.tokens.peek(1).is_name:
            self.tokens.take()
            words.append(self.tokens.take().text)
        return ".".join(words)

    def variables(self, opening: str, closing: str) -> tuple[str, ...]:
        """Read a bracketed list of variables."""
        self.tokens.expect(opening)
        names: list[str] = []
        while not self.tokens.accept(closing):
            if names:
                self.tokens.expect(",", f"or '{closing}'")
            names.append(self.variable())
        return tuple(names)

    def call_name(self, what: str) -> str:
        """Read the name of a map, relation or function."""
        token = self.tokens.peek()
        if not token.is_name:
            self.tokens.fail(f"expected the name of {what}")
        self.refuse_word(token, CALL_WORDS)
        return self.tokens.take().text

    def refuse_word(self, token: Token, reserved: frozenset[str]) -> None:
        """Fail if `token` is a keyword where a name must stand."""
        if token.kind is TokenKind.NAME and token.text.upper() in reserved:
            self.tokens.fail("expected a name", token, hint=f'A name that is a keyword is quoted: "{token.text}".')

    def type(self) -> SqlType:
        """Read a type, with its parameters."""
        token = self.tokens.peek()
        if not token.is_name:
            self.tokens.fail("expected a type")
        self.tokens.take()
        parameters: list[int] = []
        if self.tokens.accept("("):
            while not self.tokens.accept(")"):
                if parameters:
                    self.tokens.expect(",", "or ')'")
                if self.tokens.peek().kind is not TokenKind.NUMBER or not self.tokens.peek().text.isdigit():
                    self.tokens.fail("expected a whole number")
                parameters.append(int(self.tokens.take().text))
        found = type_named(token.text, tuple(parameters))
        if found is None:
            self.tokens.fail("expected a type", token, hint="Types have DuckDB's names, such as BIGINT, DECIMAL(15,2).")
        return found
