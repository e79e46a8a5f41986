"""Single terms from text."""

from cumulus.algebra.lexer import TokenStream
from cumulus.algebra.parser import TermReader


def parse_scalar(text):
    """Read one term in scalar context."""
    tokens = TokenStream(text)
    scalar = TermReader(tokens, lambda _: False).scalar()
    tokens.expect_end()
    return scalar
