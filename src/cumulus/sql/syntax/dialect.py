"""The SQL that sqlglot reads for us: DuckDB's, with function calls left as they are written.

sqlglot knows hundreds of functions of many systems and turns a call into what it means to it, which loses the name, the
order of the arguments and now and then an argument. Here only aggregates and calls with words inside (`CAST(a AS b)`)
are its business; all others are a name with arguments, and ours to understand (`cumulus.sql.syntax.functions`).

sqlglot says of names where they stand, and of little else. Calls, types and parameters are given their places here:
`meta` has `start`, and `word` is how a call's function or a type is written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.sql.syntax.operators import OperatorParser

_WITH_WORDS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "OVERLAY")


def _is_aggregate(name: str, build: object) -> bool:
    kind = getattr(build, "__self__", None)
    return name in ("COUNT", "ARRAY_AGG", "ANY_VALUE") or (isinstance(kind, type) and issubclass(kind, exp.AggFunc))


_DuckDBTokenizer = DuckDB.Tokenizer
_ALWAYS_NAMES = frozenset((
    "alter", "drop", "force", "function", "grant", "insert", "install", "lock", "macro", "revoke", "rollback",
))  # fmt: skip
"""Words that sqlglot takes for keywords wherever they stand, and DuckDB only where a statement begins."""
_NAMES_WITHOUT_BRACKETS = frozenset(("cube", "map", "rollup"))
"""Words that are keywords in front of brackets only."""
_BEFORE_CUBE = frozenset(("create", "drop", "replace", "strict", "temp", "temporary", "with"))


def _is_name(before: Token, word: Token, after: Token | None) -> bool:
    """Whether a word behind another one of its statement is a name in DuckDB, though a keyword in sqlglot."""
    text, previous = word.text.lower(), before.text.lower()
    if before.token_type is TokenType.SEMICOLON or word.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return False
    if text in _NAMES_WITHOUT_BRACKETS:
        brackets = (TokenType.L_PAREN, TokenType.L_BRACE, TokenType.L_BRACKET)
        return previous not in _BEFORE_CUBE and (after is None or after.token_type not in brackets)
    return text in _ALWAYS_NAMES or (text == "exclude" and before.token_type is not TokenType.STAR)


_AROUND_A_CALL = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


class CumulusSql(DuckDB):
    """DuckDB's dialect with plain function calls."""

    class Tokenizer(_DuckDBTokenizer):
        """The tokenizer, which takes words for names where DuckDB does."""

        def tokenize(self, sql: str) -> list[Token]:
            tokens: list[Token] = super().tokenize(sql)
            for (before, word), after in zip(pairwise(tokens), [*tokens[2:], None], strict=False):
                if _is_name(before, word, after):
                    # sqlglot matches some keywords by their text, never those in quotes.
                    word.token_type = TokenType.IDENTIFIER
            return tokens

    class Parser(OperatorParser):
        """The parser, which knows aggregates and calls with words inside."""

        FUNCTIONS = {name: build for name, build in OperatorParser.FUNCTIONS.items() if _is_aggregate(name, build)}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in OperatorParser.FUNCTION_PARSERS.items()
            if name in _WITH_WORDS or _is_aggregate(name, OperatorParser.FUNCTIONS.get(name)) or name.endswith("AGG")
        }

        # It would tell its log; whoever reads a statement that it gives up on makes an error of that.

        def _warn_unsupported(self) -> None:
            pass

        # Units in the string are ours to read: of '1 day 01:00:00' sqlglot would keep the day.

        def _parse_interval_span(self, this: exp.Expression, parse_function_unit: bool = True) -> exp.Interval:
            index = self._index
            found = super()._parse_interval_span(this, parse_function_unit)
            if this.is_string and self._index == index:
                found = self.expression(exp.Interval(this=this))
            elif isinstance(found.this, exp.Literal):
                found.this.meta.update(this.meta)
            return cast("exp.Interval", found)

        # The keys of grouping sets may be any expressions; sqlglot's own parser stops before comparisons.

        def _parse_grouping_set(self) -> exp.Expression | None:
            found = self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
            return cast("exp.Expression | None", found)

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            kinds = {TokenType.CUBE: exp.Cube, TokenType.ROLLUP: exp.Rollup}
            kind = next((kind for token, kind in kinds.items() if self._match(token)), None)
            if kind is None:
                return None
            parts = [] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction)
            return cast("exp.Cube | exp.Rollup", self.expression(kind(expressions=parts)))

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expression | None:
            token = self._curr
            found = super()._parse_function_call(*args, **kwargs)
            node = found
            while isinstance(node, exp.Expression):
                node.meta.setdefault("start", token.start)
                node.meta.setdefault("word", token.text)
                node = node.this if isinstance(node, _AROUND_A_CALL) else None
            return cast("exp.Expression | None", found)

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expression | None:
            token = self._curr
            found = super()._parse_types(*args, **kwargs)
            if isinstance(found, exp.DataType) and token is not None:
                found.meta.setdefault("start", token.start)
                found.meta["word"] = self.sql[token.start : self._prev.end + 1]
            return cast("exp.Expression | None", found)

        def _parse_placeholder(self) -> exp.Expression | None:
            token = self._curr
            found = super()._parse_placeholder()
            if isinstance(found, exp.Expression) and token is not None:
                found.meta.setdefault("start", token.start)
            return cast("exp.Expression | None", found)


TAKEN = frozenset(name.lower() for name in (*CumulusSql.Parser.FUNCTIONS, *CumulusSql.Parser.FUNCTION_PARSERS))
"""The names that no other function can have."""
