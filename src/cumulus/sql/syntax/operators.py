"""Operator precedence and associativity, as in DuckDB's grammar.

From loose to tight: OR, AND, NOT; IS; IS DISTINCT FROM; one comparison; one of LIKE, IN, BETWEEN, SIMILAR TO and ~;
|| and ^@; bitwise & | << >>; + -; * / // %; ^ **; AT TIME ZONE; signs; ::. The prefix operators ~ and @ take a whole
sum: ``~a + b`` is ``~(a + b)``. An arithmetic operator directly in front of ~ belongs to the level of ||, so that
``a + b * ~c`` is ``(a + b) * (~c)``. sqlglot's own parser differs in these places.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any, cast

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.sql.source import SqlText

_DuckDBParser = DuckDB.Parser
_PREFIXES_OF_SUMS = ("~", "@")
CHAINED = "Comparisons do not chain"
"""How the error begins of a comparison, LIKE, IN or BETWEEN whose left side is another one without brackets."""
_NEGATED_MATCHES = frozenset(("!~", "!~~", "!~~*", "!~*"))
_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|`]+")
_JOINING = re.compile(r"[~!@#%^&|`]")
"""Characters that join an operator with the signs + and - behind it: ``a=-b`` has two operators, ``a|-b`` has one."""


class OperatorParser(_DuckDBParser):  # type: ignore[misc, valid-type]  # an attribute of the dialect, made by its metaclass
    """sqlglot's parser of DuckDB's dialect, with the precedence of DuckDB's operators."""

    COMPARED = {  # noqa: RUF012
        token: kind
        for token, kind in (*_DuckDBParser.EQUALITY.items(), *_DuckDBParser.COMPARISON.items())
        if token is not TokenType.NULLSAFE_EQ  # <=> is a distance of vectors
    }
    ARITHMETIC: dict[TokenType, Any] = {**_DuckDBParser.TERM, **_DuckDBParser.FACTOR, **_DuckDBParser.EXPONENT}  # noqa: RUF012
    UNARY_PARSERS = {  # noqa: RUF012
        **{token: parse for token, parse in _DuckDBParser.UNARY_PARSERS.items() if token is not TokenType.NOT},
        TokenType.TILDE: lambda self: self.expression(exp.BitwiseNot(this=self._parse_term())),
    }
    NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
        **_DuckDBParser.NO_PAREN_FUNCTION_PARSERS,
        "@": lambda self: self.expression(exp.Abs(this=self._parse_term())),
    }
    RANGE_PARSERS = {  # noqa: RUF012
        token: parse
        for token, parse in _DuckDBParser.RANGE_PARSERS.items()
        if token not in (TokenType.CARET_AT, TokenType.IS, TokenType.RLIKE)
    }

    def _parse_equality(self, parse_is: bool = True) -> exp.Expression | None:
        """Parse [NOT] comparison [IS …]; without `parse_is` a comparison alone, the right side of IS DISTINCT FROM."""
        if parse_is and self._is_not_ahead():
            self._advance()
            return cast("exp.Expression", self.expression(exp.Not(this=self._parse_equality())))
        this = self._parse_comparison()
        while parse_is and this is not None and self._is_predicate_ahead():
            index = self._index
            this = self._parse_comparison(self._parse_is_predicate(this))
            if self._index == index:
                break
        return this

    def _parse_comparison(self, this: exp.Expression | None = None) -> exp.Expression | None:
        this = this or self._parse_range()
        if this is None or not self._match_set(self.COMPARED):
            return this
        kind = self.COMPARED[self._prev.token_type]
        right = self._parse_equality() if self._is_not_ahead() else self._parse_range()
        compared = self._build_predicate(kind, this, right)
        if self._curr.token_type in self.COMPARED:
            self.raise_error(CHAINED)
        return cast("exp.Expression", compared)

    def _is_not_ahead(self) -> bool:
        return self._curr.token_type is TokenType.NOT and self._curr.text != "!"

    def _parse_is_predicate(self, this: exp.Expression) -> exp.Expression | None:
        """Parse IS …, ISNULL, NOTNULL or NOT NULL behind `this`."""
        if self._match(TokenType.IS):
            distinct = isinstance(this, (exp.NullSafeEQ, exp.NullSafeNEQ))
            found = self._parse_is(this)
            if found is None:
                self.raise_error("Expecting NULL")
            if distinct and isinstance(found, (exp.NullSafeEQ, exp.NullSafeNEQ)):
                self.raise_error(CHAINED)
            return cast("exp.Expression | None", found)
        absent = self._match(TokenType.ISNULL)
        if not absent and not self._match(TokenType.NOTNULL):
            self._match_pair(TokenType.NOT, TokenType.NULL)
        found = self._build_predicate(exp.Is, this, exp.Null())
        return cast("exp.Expression", found if absent else self.expression(exp.Not(this=found)))

    def _parse_range(self, this: exp.Expression | None = None, parse_is: bool = False) -> exp.Expression | None:
        """Parse an operand with at most one of [NOT] LIKE, IN, BETWEEN, SIMILAR TO and ~ behind it."""
        this = this or self._parse_bitwise()
        if this is None or not self._is_range_ahead():
            return this
        negated = self._match(TokenType.NOT)
        parse = self.RANGE_PARSERS[self._curr.token_type]
        self._advance()
        found = parse(self, this)
        if found is None or (isinstance(found, exp.In) and not any(map(found.args.get, ("expressions", "query")))):
            self.raise_error("Expecting (")
        if negated:
            found = self._negate_range(found)
        if self._is_range_ahead():
            self.raise_error(CHAINED)
        return cast("exp.Expression", found)

    def _is_range_ahead(self) -> bool:
        token = self._next if self._curr.token_type is TokenType.NOT else self._curr
        return token is not None and token.token_type in self.RANGE_PARSERS

    def _parse_bitwise(self) -> exp.Expression | None:
        """Parse || and ^@, and what Cumulus refuses at their level."""
        this = self._parse_bits()
        while this is not None:
            if self._match(TokenType.DPIPE):
                this = self.expression(exp.DPipe(this=this, expression=self._parse_bits(), safe=True))
            elif self._match(TokenType.CARET_AT):
                this = self.expression(exp.StartsWith(this=this, expression=self._parse_bits()))
            elif self._curr.token_type in self.ARITHMETIC and self._next.token_type is TokenType.TILDE:
                kind = self.ARITHMETIC[self._curr.token_type]
                self._advance()
                this = self.expression(kind(this=this, expression=self._parse_bits()))
            elif self._match_set(self.JSON_OPERATORS):
                this = self.JSON_OPERATORS[self._prev.token_type](self, this, self._parse_bits())
            else:
                break
        return this

    def _parse_bits(self) -> exp.Expression | None:
        this = self._parse_term()
        while this is not None:
            if self._match_set(self.BITWISE):
                kind = self.BITWISE[self._prev.token_type]
            elif self._match_pair(TokenType.LT, TokenType.LT):
                kind = exp.BitwiseLeftShift
            elif self._match_pair(TokenType.GT, TokenType.GT):
                kind = exp.BitwiseRightShift
            else:
                break
            this = self.expression(kind(this=this, expression=self._parse_term()))
        return this

    def _is_arithmetic_ahead(self, kinds: Container[TokenType]) -> bool:
        """Whether the next operator is one of `kinds`, at its own level."""
        token = self._curr
        # DIV is an operator of other systems, and a name here.
        return (
            token.token_type in kinds and self._next.token_type is not TokenType.TILDE and token.text.upper() != "DIV"
        )

    def _parse_term(self, parse_mod: bool = True) -> exp.Expression | None:
        this = self._parse_factor(parse_mod)
        while this is not None and self._is_arithmetic_ahead(self.TERM):
            kind = self.TERM[self._curr.token_type]
            self._advance()
            this = self.expression(kind(this=this, expression=self._parse_factor(parse_mod)))
        return this

    def _parse_factor(self, parse_mod: bool = True) -> exp.Expression | None:
        this = self._parse_exponent()
        while this is not None and self._is_arithmetic_ahead(self.FACTOR):
            if not parse_mod and self._curr.token_type is TokenType.MOD:
                break
            kind = self.FACTOR[self._curr.token_type]
            self._advance()
            this = self.expression(kind(this=this, expression=self._parse_exponent()))
        return this

    def _parse_exponent(self) -> exp.Expression | None:
        this = self._parse_at_time_zone(self._parse_unary())
        while this is not None and self._is_arithmetic_ahead(self.EXPONENT):
            kind = self.EXPONENT[self._curr.token_type]
            self._advance()
            right = self._parse_at_time_zone(self._parse_unary())
            this = self.expression(kind(this=this, expression=right))
        return this

    def _parse_at_time_zone(self, this: exp.Expression | None) -> exp.Expression | None:
        while self._match_text_seq("AT", "TIME", "ZONE"):
            if self._curr.text in _PREFIXES_OF_SUMS:
                self.raise_error("Expecting a zone")
            this = self.expression(exp.AtTimeZone(this=this, zone=self._parse_unary()))
        return this


def check_operators(source: SqlText, words: Sequence[Token]) -> None:
    """Refuse operators that DuckDB splits otherwise than sqlglot, or does not know.

    Raises
    ------
    SqlSyntaxError
        Operators without a space between them that DuckDB takes for one (``a*~b``), or ``!`` that stands for NOT.
    """
    for word, after in pairwise((*words, None)):
        assert word is not None
        if not _OPERATOR.fullmatch(word.text) or word.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        glued = after is not None and after.start == word.end + 1 and _OPERATOR.fullmatch(after.text) is not None
        both = f"{word.text}{after.text}" if after is not None and glued else word.text
        if both in _NEGATED_MATCHES:
            continue
        if word.text == "!":
            raise source.syntax_error("! is not supported", word.start, hint="Write NOT for a negation.")
        if glued and (_JOINING.search(both) or (after is not None and after.text not in ("+", "-"))):
            raise source.syntax_error(
                f"{both} without a space is one operator in DuckDB",
                word.start,
                hint=f"Write a space behind {word.text}.",
            )
