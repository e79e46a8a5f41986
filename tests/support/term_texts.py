"""Single terms from text."""

from cumulus.algebra.lexer import TokenStream
from cumulus.algebra.parser import TermReader


def parse_term(text, relations=None, *, name=""):
    """Read one term in value context; without `relations` every call on nothing but variables is a relation."""
    tokens = TokenStream(text, name)
    term = TermReader(tokens, (lambda _: True) if relations is None else relations.__contains__).value()
    tokens.expect_end()
    return term


def parse_scalar(text):
    """Read one term in scalar context."""
    tokens = TokenStream(text)
    scalar = TermReader(tokens, lambda _: False).scalar()
    tokens.expect_end()
    return scalar
