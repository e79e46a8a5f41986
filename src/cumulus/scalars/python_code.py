"""Scalars as Python source: how the interpreter and the views run the terms of `cumulus.algebra.terms`.

A scalar term becomes one Python expression. What can be decided from the types is decided here, once: a comparison
of two NOT NULL integers is `a < b`; only where NULLs, floats or unknown types may turn up does the code call a function
of this module or of `cumulus.scalars.registry`. AND, OR, CASE and COALESCE evaluate no more than they need, so that a
guard protects what stands behind it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from cumulus.algebra.terms import Apply, Cast, Compare, Const, Range, Term, Var, children, memoised
from cumulus.catalog.types import BOOLEAN, Interval, Kind, SqlType
from cumulus.errors import EvaluationError, ValidationError
from cumulus.scalars.casts import cast_value
from cumulus.scalars.logic import span_length
from cumulus.scalars.registry import FUNCTIONS, call, result_type
from cumulus.scalars.typing import computes
from cumulus.scalars.user import Given, UserFunction

NAN = float("nan")
"""The one NaN that stands in keys: a dict finds it by identity."""

COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PYTHON_OPS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
TOTAL_FUNCTIONS = frozenset((*COMPARISONS, "and", "or", "not", "is_null", "case", "if", "coalesce"))


class PythonCode(NamedTuple):
    """A Python expression for a scalar: its text (atomic), its SQL type if known, and whether it may be None."""

    text: str
    type: SqlType | None = None
    nullable: bool = True


def canonical(value: Any) -> Any:
    """Return `value` as a key: one NaN, and 0.0 for -0.0.

    Examples
    --------
    >>> canonical(float("nan")) is NAN, str(canonical(-0.0)), canonical("x")
    (True, '0.0', 'x')
    """
    if type(value) is float:
        return value + 0.0 if value == value else NAN
    return value


def canonical_key(value: Any) -> Any:
    """Return a value of unknown type as a key; TypeError if it cannot be one."""
    hash(value)
    return canonical(value)


def _meet(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two values of different Python types as values that Python compares as DuckDB does."""
    if isinstance(left, float) and isinstance(right, Decimal):
        return left, float(right)
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    if isinstance(left, Interval) and isinstance(right, Interval):
        return span_length(left), span_length(right)
    if isinstance(left, dt.date) and isinstance(right, dt.date) and dt.datetime in (type(left), type(right)):
        return _moment(left), _moment(right)
    return left, right


def _moment(point: dt.date) -> dt.datetime:
    """Return a date or a timestamp, of UTC if it has a time zone, as one without."""
    if isinstance(point, dt.datetime):
        return point.replace(tzinfo=None)
    return dt.datetime(point.year, point.month, point.day)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are the same: NULL is NULL, NaN is NaN.

    Examples
    --------
    >>> equal(None, None), equal(None, 0), equal(float("nan"), float("nan")), equal(Decimal("0.1"), 0.1)
    (True, False, True, True)
    """
    left, right = _meet(left, right)
    return bool(left == right or (left != left and right != right))


def less(left: Any, right: Any) -> bool:
    """Whether `left` < `right`; False if either is NULL; NaN is the greatest number.

    Examples
    --------
    >>> less(1, 2), less(None, 2), less(1e308, float("nan")), less(float("nan"), 1.0)
    (True, False, True, False)
    """
    if left is None or right is None:
        return False
    left, right = _meet(left, right)
    if right != right:
        return bool(left == left)
    return bool(left < right)


def less_or_equal(left: Any, right: Any) -> bool:
    """Whether `left` <= `right`; False if either is NULL; NaN is the greatest number."""
    return left is not None and right is not None and not less(right, left)


def _not_equal(left: Any, right: Any) -> bool:
    return not equal(left, right)


def _greater(left: Any, right: Any) -> bool:
    return less(right, left)


def _greater_or_equal(left: Any, right: Any) -> bool:
    return less_or_equal(right, left)


def _attempt(compute: Callable[[], Any]) -> Any:
    """Return what `compute` gives, None if it fails."""
    try:
        return compute()
    except (EvaluationError, ArithmeticError):
        return None


TOTAL_COMPARISONS = (equal, _not_equal)
ORDER_COMPARISONS = (less, less_or_equal, _greater, _greater_or_equal)
"""Fail for values of types that have no common order, such as a text and a number."""
_RUNTIME = {"=": equal, "<>": _not_equal, "<": less, "<=": less_or_equal, ">": _greater, ">=": _greater_or_equal}


class NamePool:
    """Pool of names for generated code, with the values that they are bound to.

    Parameters
    ----------
    functions
        A user's functions by name, from `cumulus.scalars.user.runnable`. One without a signature is called with NULLs,
        too, and its value may be anything.
    """

    def __init__(self, functions: Mapping[str, Given] | None = None) -> None:
        self.names: dict[str, Any] = {}
        self.functions = functions or {}
        self._given: dict[int, str] = {}

    def bind(self, value: Any, hint: str) -> str:
        """Return a name for `value`, the same for the same object; it begins with `_`."""
        found = self._given.get(id(value))
        if found is not None:
            return found
        name = f"_{hint}"
        count = 1
        while name in self.names:
            count += 1
            name = f"_{hint}_{count}"
        self.names[name] = value
        self._given[id(value)] = name
        return name

    def literal(self, value: Any) -> str:
        """Return an atomic expression for a plain value."""
        if value is None or isinstance(value, (bool, str)):
            return repr(value)
        if isinstance(value, int):
            return repr(value) if value >= 0 else f"({value!r})"
        if isinstance(value, float) and value == value and abs(value) != float("inf"):
            return f"({value!r})"
        name = f"_const_{len(self.names)}"
        self.names[name] = value
        return name


class ScalarCoder:
    """Turns scalars into Python expressions.

    Parameters
    ----------
    pool
        Receives the functions and constants that the code uses.
    lookup
        Gives the code of a variable.
    leaf
        Gives the code of a node that is no scalar by itself (a map read, an aggregate).
    """

    def __init__(self, pool: NamePool, lookup: Callable[[str], PythonCode], leaf: Callable[[Term], PythonCode]) -> None:
        self.pool = pool
        self._lookup = lookup
        self._leaf = leaf
        self._temporaries = 0

    def code(self, term: Term) -> PythonCode:
        """Return the expression of `term`.

        Raises
        ------
        ValidationError
            For an unknown function, arguments of the wrong types, or a node that has no scalar meaning.
        """
        match term:
            case Const(value, sql_type):
                return PythonCode(self.pool.literal(canonical(value)), sql_type, value is None)
            case Var(name):
                return self._lookup(name)
            case Apply(function, args):
                return self._apply(function, args)
            case Cast(arg, target):
                inner = self.code(arg)
                return inner if inner.type == target and not computes(arg) else self._cast(inner, target)
            case Compare(op, left, right):
                return PythonCode(self.compare(op, self.code(left), self.code(right)), BOOLEAN, False)
            case _:
                return self._leaf(term)

    def condition(self, term: Term) -> str:
        """Return an expression that is true where the comparison `term` holds, and else false."""
        assert isinstance(term, Compare), "a condition is a Compare"
        if term.op == "=" and isinstance(term.right, Const) and term.right.value is True:
            inner = self.code(term.left)  # any other boolean scalar: NULL is not TRUE
            if inner.type == BOOLEAN:
                return inner.text
        return self.compare(term.op, self.code(term.left), self.code(term.right))

    def compare(self, op: str, left: PythonCode, right: PythonCode) -> str:
        """Return the two-valued comparison: NULL = NULL, order comparisons with NULL are false."""
        if op in ("=", "<>") and "None" in (left.text, right.text):
            other = right if left.text == "None" else left
            return f"({other.text} is {'' if op == '=' else 'not '}None)"
        if _compare_in_python(left.type, right.type):
            if op in ("=", "<>") or not (left.nullable or right.nullable):
                return f"({left.text} {_PYTHON_OPS[op]} {right.text})"
            present = " and ".join(
                f"{side.text} is not None" for side in (left, right) if side.nullable and side.text.isidentifier()
            )
            if present and all(side.text.isidentifier() or not side.nullable for side in (left, right)):
                return f"({present} and {left.text} {_PYTHON_OPS[op]} {right.text})"
        name = self.pool.bind(_RUNTIME[op], _RUNTIME[op].__name__.lstrip("_"))
        return f"{name}({left.text}, {right.text})"

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"_t{self._temporaries}"

    def _apply(self, function: str, args: tuple[Term, ...]) -> PythonCode:
        match function:
            case "and" | "or":
                return self._connective(function, args)
            case "not":
                inner = self.code(args[0])
                if not inner.nullable:
                    return PythonCode(f"(not {inner.text})", BOOLEAN, False)
                name = self._temporary()
                return PythonCode(f"(None if ({name} := {inner.text}) is None else not {name})", BOOLEAN, True)
            case "is_null":
                inner = self.code(args[0])
                return PythonCode(f"({inner.text} is None)" if inner.nullable else "False", BOOLEAN, False)
            case "try":
                return self._try(args)
        codes = [self.code(arg) for arg in args]
        if function in COMPARISONS:
            return self._three_valued(COMPARISONS[function], codes[0], codes[1])
        if function in self.pool.functions:
            return self._call_of_users(function, self.pool.functions[function], codes)
        if function not in FUNCTIONS:
            raise ValidationError(
                f"there is no function {function}",
                hint="Functions of your own are given as functions=[…], or functions={name: callable}.",
            )
        types = [code.type for code in codes]
        if any(given is None for given in types):
            if function in ("case", "if"):
                return self._case(codes, None)
            if function == "coalesce":
                return self._coalesce(codes, None)
            return self._call_by_name(function, codes)
        literals = [arg.value if isinstance(arg, Const) else None for arg in args]
        return self._typed(function, codes, tuple(given for given in types if given is not None), literals)

    def _call_by_name(self, function: str, codes: list[PythonCode], result: SqlType | None = None) -> PythonCode:
        """Call a function of the dialect on arguments of unknown types."""
        name = self.pool.bind(call, "call")
        return PythonCode(f"{name}({function!r}, ({''.join(code.text + ', ' for code in codes)}))", result, True)

    def _typed(
        self, function: str, codes: list[PythonCode], types: tuple[SqlType, ...], literals: list[Any]
    ) -> PythonCode:
        """Call a function of the dialect on arguments whose types are known."""
        definition = FUNCTIONS[function]
        try:
            result = result_type(function, types, literals)
        except TypeError as problem:
            raise ValidationError(str(problem), hint="Cast the arguments.") from None
        codes = [self._as(code, target) for code, target in zip(codes, definition.arguments(types), strict=True)]
        match function:
            case "case" | "if":
                return self._case(codes, result)
            case "coalesce":
                return self._coalesce(codes, result)
        name = self.pool.bind(definition.implement, function)
        nullable = any(code.nullable for code in codes)
        return PythonCode(self._call(name, codes, definition.strict), result, nullable or not definition.strict)

    def _try(self, args: tuple[Term, ...]) -> PythonCode:
        if len(args) != 1:
            raise ValidationError(f"try takes 1 argument, not {len(args)}", hint="It is NULL where that fails.")
        inner = self.code(args[0])
        return PythonCode(f"{self.pool.bind(_attempt, 'attempt')}(lambda: {inner.text})", inner.type, True)

    def _call_of_users(self, function: str, own: Given, codes: list[PythonCode]) -> PythonCode:
        """Call a user's function."""
        called = f"user_{re.sub(r'[^0-9A-Za-z]', '_', function)}"
        if not isinstance(own, UserFunction):
            name = self.pool.bind(own, called)
            return PythonCode(f"{name}({', '.join(code.text for code in codes)})", None, True)
        signature = own.signature
        if len(codes) != len(signature.parameters):
            raise ValidationError(
                f"{function} takes {len(signature.parameters)} arguments, not {len(codes)}",
                hint=f"It is declared as {signature}.",
            )
        codes = [
            code if code.text == "None" else self._cast(code, target) if code.type is None else self._as(code, target)
            for code, target in zip(codes, signature.parameters, strict=True)
        ]
        name = self.pool.bind(own.implement, called)
        return PythonCode(self._call(name, codes, not signature.called_with_null), signature.result, True)

    def _call(self, name: str, codes: list[PythonCode], strict: bool) -> str:
        """Return a call; of a strict function only if no argument is None."""
        if not strict or not any(code.nullable for code in codes):
            return f"{name}({', '.join(code.text for code in codes)})"
        test, names = self._none_test(codes)
        return f"(None if {test} else {name}({', '.join(names)}))"

    def _none_test(self, codes: list[PythonCode]) -> tuple[str, list[str]]:
        """Return the test that one of several expressions is None, and what each is called behind it."""
        tests, names = [], []
        for code in codes:
            is_short = not code.nullable or code.text.isidentifier()  # so is None
            names.append(code.text if is_short else self._temporary())
            if code.nullable:
                tests.append(f"{code.text if is_short else f'({names[-1]} := {code.text})'} is None")
        return " or ".join(tests), names

    def _as(self, code: PythonCode, target: SqlType) -> PythonCode:
        if code.type == target or code.type is None or code.type.kind is Kind.NULL:
            return code
        return self._cast(code, target)

    def _cast(self, code: PythonCode, target: SqlType) -> PythonCode:
        kind = self.pool.bind(target, f"type_{target.kind.lower()}")
        return PythonCode(f"{self.pool.bind(cast_value, 'cast')}({code.text}, {kind})", target, code.nullable)

    def _connective(self, function: str, args: tuple[Term, ...]) -> PythonCode:
        codes = [self._as(self.code(arg), BOOLEAN) for arg in args]
        if any(code.type is None for code in codes):  # truth of a user's function
            return self._call_by_name(function, codes, BOOLEAN)
        if not any(code.nullable for code in codes):
            return PythonCode(f"({f' {function} '.join(code.text for code in codes)})", BOOLEAN, False)
        decided, other = ("False", "True") if function == "and" else ("True", "False")
        names = [self._temporary() for _ in codes]
        tests = " or ".join(f"({name} := {code.text}) is {decided}" for name, code in zip(names, codes, strict=True))
        unknown = " or ".join(f"{name} is None" for name in names)
        return PythonCode(f"({decided} if {tests} else None if {unknown} else {other})", BOOLEAN, True)

    def _three_valued(self, op: str, left: PythonCode, right: PythonCode) -> PythonCode:
        if not (left.nullable or right.nullable):
            return PythonCode(self.compare(op, left, right), BOOLEAN, False)
        test, names = self._none_test([left, right])
        sides = [PythonCode(name, side.type, False) for name, side in zip(names, (left, right), strict=True)]
        return PythonCode(f"(None if {test} else {self.compare(op, *sides)})", BOOLEAN, True)

    def _case(self, codes: list[PythonCode], result: SqlType | None) -> PythonCode:
        text = codes[-1].text if len(codes) % 2 else "None"
        for position in range(len(codes) // 2 * 2 - 2, -1, -2):
            text = f"{codes[position + 1].text} if {codes[position].text} else {text}"
        values = [*codes[1::2], *codes[-1:]] if len(codes) % 2 else codes[1::2]
        nullable = not len(codes) % 2 or any(code.nullable for code in values)
        return PythonCode(f"({text})", result, nullable)

    def _coalesce(self, codes: list[PythonCode], result: SqlType | None) -> PythonCode:
        text = codes[-1].text
        for code in reversed(codes[:-1]):
            name = self._temporary()
            text = f"({name} if ({name} := {code.text}) is not None else {text})"
        return PythonCode(text, result, all(code.nullable for code in codes))


def _compare_in_python(left: SqlType | None, right: SqlType | None) -> bool:
    """Whether Python's own comparison of two values of these types is DuckDB's."""
    if left is None or right is None:
        return False
    if left.is_exact and right.is_exact:
        return True
    return left.kind is right.kind and not left.is_float and left.kind is not Kind.INTERVAL


@memoised
def may_raise(term: Term | Range) -> bool:
    """Whether evaluating `term` can fail: it holds a cast or a function that is not total."""
    if isinstance(term, Cast) or (isinstance(term, Apply) and term.function not in TOTAL_FUNCTIONS):
        return True
    return any(may_raise(child) for child in children(term))
