"""Terms from text: the term part of the M3 language, read back.

`TermReader` reads terms from a token stream; `cumulus.m3.parser` is built of it. The grammar is that of
`cumulus.algebra.printing`, and a little more: `IF`, the words in any case, and parentheses anywhere.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from decimal import Decimal

from cumulus.algebra.lexer import (
    Token,
    TokenKind,
    TokenStream,
    read_call_name,
    read_type,
    read_value_column,
    read_variable,
    read_variables,
    refuse_word,
)
from cumulus.algebra.printing import CALL_WORDS, COMPARISONS, typed_literal
from cumulus.algebra.terms import (
    FALSE,
    NULL_VALUE,
    ONE,
    TRUE,
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Range,
    Scalar,
    Term,
    Var,
    negate,
    number,
    product_of,
    sum_of,
)
from cumulus.catalog.text_values import parse_span
from cumulus.catalog.types import DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ, VARCHAR, coerce
from cumulus.errors import EvaluationError

_COMPARISON_OF = {sign: name for name, sign in COMPARISONS.items()}
_OPERATORS = {
    "||": (0, "concat"),
    "+": (1, "add"),
    "-": (1, "sub"),
    "*": (2, "mul"),
    "/": (2, "div"),
    "//": (2, "intdiv"),
    "%": (2, "mod"),
}
"""The operators between scalars: how strongly each binds, and the function that it is."""


def parse_term(text: str, relations: Collection[str] | None = None, *, name: str = "") -> Term:
    """Read one term in value context.

    Parameters
    ----------
    relations
        The names that are relations: ``r(x, y)`` is an `Atom` of them and a function call of all others. None: every
        call on nothing but variables is a relation.
    name
        What to call the text in errors.

    Raises
    ------
    M3SyntaxError
        With line, column, and what was expected.

    Examples
    --------
    >>> [str(part) for part in parse_term("r(x, y) * 2 * y").parts]
    ['2', 'r(x, y)', 'y']
    """
    tokens = TokenStream(text, name)
    term = TermReader(tokens, (lambda _: True) if relations is None else relations.__contains__).value()
    tokens.expect_end()
    return term


class TermReader:
    """Reads terms from `tokens`, shared with whoever reads what stands around them.

    In value context a call of a name that `is_relation`, on variables, is an `Atom`.

    Examples
    --------
    >>> TermReader(TokenStream("r(x, y) * 2 * y"), {"r"}.__contains__).value().parts[1:]
    (Atom(name='r', variables=('x', 'y')), Var(name='y'))
    """

    def __init__(self, tokens: TokenStream, is_relation: Callable[[str], bool]) -> None:
        self.tokens = tokens
        self.is_relation = is_relation

    # ---------------------------------------------------------------- value context

    def value(self) -> Term:
        """Read a term in value context."""
        parts = [self._product(negative=False)]
        while self.tokens.next_is("+", "-"):
            parts.append(self._product(negative=self.tokens.take().text == "-"))
        return parts[0] if len(parts) == 1 else sum_of(parts)

    def _product(self, *, negative: bool) -> Term:
        factors: list[Term] = [number(-1)] if negative else []
        factors.append(self._factor())
        while self.tokens.accept("*"):
            factors.append(self._factor())
        if self.tokens.next_is("/", "//", "%", "||"):
            self.tokens.fail(
                "expected +, - or * between numbers",
                hint="Division and the like are functions of scalars: write div(a, b), intdiv(a, b), mod(a, b).",
            )
        return factors[0] if len(factors) == 1 else product_of(factors)

    def _factor(self) -> Term:
        if self.tokens.accept("-"):
            if self.tokens.peek().kind is TokenKind.NUMBER:
                return _read_number(self.tokens, negative=True)
            return negate(self._factor())
        if self.tokens.next_is("("):
            return self._parenthesised(self.value)
        if self.tokens.at_word("IF"):
            return self._conditional()
        return self._closed("a term", self._call_in_value)

    def _conditional(self) -> Term:
        """IF c THEN a ELSE b: the product of the conditions and a, plus the product of their negation and b."""
        condition, then = self._if_then(self.value)
        conditions = [_compare(part) for part in _conjuncts(condition)]
        self.tokens.expect_word("ELSE")
        return sum_of([product_of([*conditions, then]), product_of([_negated(conditions), self.value()])])

    def _if_then(self, branch: Callable[[], Term]) -> tuple[Scalar, Term]:
        self.tokens.expect_word("IF")
        condition = self.scalar()
        self.tokens.expect_word("THEN")
        return condition, branch()

    def _call_in_value(self, name: Token) -> Term:
        args = self._arguments()
        if self.is_relation(name.text) and all(isinstance(arg, Var) for arg in args):
            return Atom(name.text, tuple(arg.name for arg in args if isinstance(arg, Var)))
        return Apply(name.text, args)

    # ---------------------------------------------------------------- scalar context

    def scalar(self) -> Scalar:
        """Read a term in scalar context."""
        left = self._and()
        while self.tokens.accept_word("OR"):
            left = Apply("or", (left, self._and()))
        return left

    def _and(self) -> Scalar:
        left = self._not()
        while self.tokens.accept_word("AND"):
            left = Apply("and", (left, self._not()))
        return left

    def _not(self) -> Scalar:
        if self.tokens.accept_word("NOT"):
            return Apply("not", (self._not(),))
        return self._comparison()

    def _comparison(self) -> Scalar:
        left, compared = self._operation(), False
        while True:
            if self.tokens.next_is(*_COMPARISON_OF):
                if compared:
                    self.tokens.fail("expected the end of a comparison", hint="Join comparisons with AND.")
                left = Apply(_COMPARISON_OF[self.tokens.take().text], (left, self._operation()))
                compared = True
            elif self.tokens.accept_word("IS"):
                negated = self.tokens.accept_word("NOT")
                self.tokens.expect_word("NULL")
                left = Apply("is_null", (left,))
                left = Apply("not", (left,)) if negated else left
            else:
                return left

    def _operation(self, weakest: int = 0) -> Scalar:
        """Read scalars between operators that bind at least as strongly as `weakest` (precedence climbing)."""
        left = self._signed()
        while self.tokens.next_is(*_OPERATORS) and _OPERATORS[self.tokens.peek().text][0] >= weakest:
            strength, function = _OPERATORS[self.tokens.take().text]
            left = Apply(function, (left, self._operation(strength + 1)))
        return left

    def _signed(self) -> Scalar:
        if self.tokens.accept("-"):
            if self.tokens.peek().kind is TokenKind.NUMBER:
                return _read_number(self.tokens, negative=True)
            return Apply("neg", (self._signed(),))
        if self.tokens.next_is("("):
            return self._parenthesised(self.scalar)
        if self.tokens.at_word("IF"):
            condition, then = self._if_then(self.scalar)
            self.tokens.expect_word("ELSE")
            return Apply("case", (condition, then, self.scalar()))
        return self._closed("a scalar", lambda name: Apply(name.text, self._arguments()))

    # ---------------------------------------------------------------- both contexts

    def _parenthesised(self, inside: Callable[[], Term]) -> Term:
        self.tokens.expect("(")
        if self.tokens.peek().is_name and _lift_ahead(self.tokens):
            variable = read_variable(self.tokens)
            self.tokens.expect(":=")
            term: Term = Lift(variable, self.value())
        else:
            term = inside()
        self.tokens.expect(")", "to close the parenthesis")
        return term

    def _closed(self, what: str, call: Callable[[Token], Term]) -> Term:
        """Read a term that looks the same in both contexts, or a call of a function."""
        tokens, token = self.tokens, self.tokens.peek()
        if token.kind is TokenKind.NUMBER:
            return _read_number(tokens)
        if token.kind is TokenKind.STRING:
            return Const(tokens.take().text, VARCHAR)
        if tokens.accept("{"):
            condition = _compare(self.scalar())
            tokens.expect("}", "to close the condition")
            return condition
        if not token.is_name:
            tokens.fail(f"expected {what}")
        special = self._special(token) if token.kind is TokenKind.NAME else None
        if special is not None:
            return special
        if tokens.peek(1).is_sign("["):
            return self._map_read()
        if tokens.peek(1).is_sign("(") and tokens.peek(1).line == token.line:
            refuse_word(tokens, token, CALL_WORDS)
            return call(tokens.take())
        return Var(read_variable(tokens))

    def _special(self, token: Token) -> Term | None:
        """Read what begins with a keyword; None if `token` is not one here."""
        tokens, after = self.tokens, self.tokens.peek(1)
        match token.text.upper():
            case "TRUE" | "FALSE" | "NULL" as word:
                tokens.take()
                return {"TRUE": TRUE, "FALSE": FALSE, "NULL": NULL_VALUE}[word]
            case "CASE":
                return self._case()
            case "CAST":
                return self._cast()
            case "EXISTS" | "VALUE" as word if after.is_sign("("):
                tokens.take()
                tokens.expect("(")
                inner = self.value()
                tokens.expect(")", f"to close {word}")
                return Exists(inner) if word == "EXISTS" else inner
            case "SUM" if after.is_sign("["):
                tokens.take()
                group = read_variables(tokens, "[", "]")
                tokens.expect("(", "before the summed term")
                return self._summed(group)
            case "AGGSUM" if after.is_sign("("):
                tokens.take()
                tokens.take()
                group = read_variables(tokens, "[", "]")
                tokens.expect(",", "after the group")
                return self._summed(group)
            case "BATCH" if after.is_name and tokens.peek(2).is_sign("("):
                tokens.take()
                name = tokens.take().text
                return Batch(name, read_variables(tokens, "(", ")"))
            case "NEW" | "CHANGED" as state if after.is_name and tokens.peek(2).is_sign("["):
                tokens.take()
                return self._map_read(state)
            case "MIN" | "MAX" as end if after.is_name and tokens.peek(2).is_sign("["):
                tokens.take()
                return self._map_end(end)
            case "MIN" | "MAX" as end if after.is_sign("[") and _end_ahead(tokens):
                tokens.take()
                return self._end(end)
            case "DATE" | "TIMESTAMP" | "TIMESTAMPTZ" | "INTERVAL" as word if after.kind is TokenKind.STRING:
                tokens.take()
                return _read_temporal(tokens, word)
            case _:
                return None

    def _end(self, end: str) -> Term:
        tokens = self.tokens
        tokens.expect("[")
        variable = read_variable(tokens)
        tokens.expect("]")
        tokens.expect("(")
        inner = self.value()
        tokens.expect(")", f"to close {end}")
        return Extremum(end, variable, inner)

    def _summed(self, group: tuple[str, ...]) -> Term:
        inner = self.value()
        self.tokens.expect(")", "to close the sum")
        return AggSum(group, inner)

    def _case(self) -> Scalar:
        tokens, args = self.tokens, list[Term]()
        tokens.expect_word("CASE")
        while tokens.accept_word("WHEN"):
            args.append(self.scalar())
            tokens.expect_word("THEN")
            args.append(self.scalar())
        if not args:
            tokens.fail("expected WHEN")
        args.append(self.scalar() if tokens.accept_word("ELSE") else NULL_VALUE)
        tokens.expect_word("END")
        return Apply("case", tuple(args))

    def _cast(self) -> Scalar:
        tokens = self.tokens
        tokens.expect_word("CAST")
        tokens.expect("(")
        bare = not tokens.next_is("(")
        arg = self.scalar()
        tokens.expect_word("AS")
        target = read_type(tokens)
        tokens.expect(")", "to close CAST")
        literal = typed_literal(arg.value, target) if bare and isinstance(arg, Const) else None
        return Cast(arg, target) if literal is None else literal

    def _arguments(self) -> tuple[Scalar, ...]:
        return tuple(self.tokens.listed("(", ")", self.scalar, "between arguments"))

    def _map_read(self, state: str = "OLD") -> Term:
        name = read_call_name(self.tokens, "a map")
        keys = self.tokens.listed("[", "]", self._key, "between keys")
        return MapRead(name, read_value_column(self.tokens), tuple(keys), state)

    def _key(self) -> Term | Range:
        tokens = self.tokens
        low: tuple[Term, bool] | None = None
        if tokens.next_is("<", "<="):
            inclusive = tokens.take().text == "<="
            return Range(None, (self._operation(), inclusive))
        if tokens.next_is(">", ">="):
            inclusive = tokens.take().text == ">="
            low = (self._operation(), inclusive)
            if not tokens.accept(".."):
                return Range(low, None)
        elif not tokens.accept(".."):
            key = self.scalar()
            if not tokens.accept(".."):
                return key
            low = (key, True)
        if tokens.next_is(",", "]"):
            return Range(low, None)
        inclusive = not tokens.accept("<")
        tokens.accept("<=")
        return Range(low, (self._operation(), inclusive))

    def _map_end(self, end: str) -> Term:
        name = read_call_name(self.tokens, "a map")
        self.tokens.expect("[")
        keys: list[Term | None] = []
        while not self.tokens.next_is("]"):
            if keys:
                self.tokens.expect(",", "between keys")
            keys.append(None if self.tokens.accept("*") else self.scalar())
        if keys.count(None) != 1:
            self.tokens.fail(f"expected exactly one '*' among the keys of {end}")
        self.tokens.take()
        return MapExtremum(end, name, tuple(keys))


def _lift_ahead(tokens: TokenStream) -> bool:
    """Whether a variable and `:=` follow."""
    ahead = 1
    while tokens.peek(ahead).is_sign(".") and tokens.peek(ahead + 1).is_name:
        ahead += 2
    return tokens.peek(ahead).is_sign(":=")


def _end_ahead(tokens: TokenStream) -> bool:
    """Whether `[x](` follows on this line; anything else is a read of a map called min or max."""
    ahead = 2
    while tokens.peek(ahead).is_name and tokens.peek(ahead + 1).is_sign("."):
        ahead += 2
    name, closing, opening = (tokens.peek(ahead + step) for step in range(3))
    return name.is_name and closing.is_sign("]") and opening.is_sign("(") and opening.line == closing.line


def _read_number(tokens: TokenStream, *, negative: bool = False) -> Const:
    text = ("-" if negative else "") + tokens.take().text
    if "e" in text or "E" in text:
        return number(float(text))
    return number(Decimal(text)) if "." in text else number(int(text))


def _read_temporal(tokens: TokenStream, word: str) -> Const:
    token = tokens.take()
    try:
        if word == "DATE":
            return Const(dt.date.fromisoformat(token.text), DATE)
        if word == "TIMESTAMP":
            return Const(coerce(token.text, TIMESTAMP), TIMESTAMP)
        if word == "TIMESTAMPTZ":
            return Const(coerce(token.text, TIMESTAMPTZ), TIMESTAMPTZ)
        return Const(parse_span(token.text.strip()), INTERVAL)
    except (ValueError, EvaluationError) as problem:
        tokens.fail(f"expected a {word} ({problem})", token)


def _conjuncts(scalar: Scalar) -> list[Scalar]:
    if isinstance(scalar, Apply) and scalar.function == "and" and len(scalar.args) == 2:
        return [*_conjuncts(scalar.args[0]), *_conjuncts(scalar.args[1])]
    return [scalar]


def _compare(scalar: Scalar) -> Compare:
    """Return the condition that a boolean scalar is when it stands in braces."""
    if isinstance(scalar, Apply) and scalar.function in COMPARISONS and len(scalar.args) == 2:
        return Compare(COMPARISONS[scalar.function], *scalar.args)
    return Compare("=", scalar, TRUE)


def _negated(conditions: list[Compare]) -> Term:
    """Return 1 where not all conditions hold, NULL or not."""
    if len(conditions) == 1 and conditions[0].op in ("=", "<>"):
        only = conditions[0]
        return Compare("<>" if only.op == "=" else "=", only.left, only.right)
    return sum_of([ONE, negate(product_of(conditions))])
