"""Folding scalars in which some variables have become constants: NULL makes most of a scalar NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import localcontext
from typing import Any

from cumulus.algebra.terms import FALSE, TRUE, Apply, Cast, Const, Scalar, children, rebuild
from cumulus.catalog.types import BOOLEAN, EXACT
from cumulus.errors import CumulusError
from cumulus.scalars.registry import FUNCTIONS, call, cast_value
from cumulus.scalars.typing import Typed, is_nullable, scalar_type
from cumulus.sql.syntax.membership import join_conditions, links_of


def fold_constants(scalar: Scalar, variables: Mapping[str, Typed]) -> Scalar:
    """Return a scalar with its constant parts computed; what fails to compute stays.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> from cumulus.catalog.types import INTEGER
    >>> missing, x = Const(None, INTEGER), {"x": Typed(INTEGER, False)}
    >>> fold_constants(Apply("and", (Apply("eq", (missing, Var("x"))), Apply("gt", (Var("x"), number(0))))), x).function
    'and'
    >>> fold_constants(Apply("add", (missing, Var("x"))), x).value is None
    True
    """
    if not children(scalar):
        return scalar
    inner: Scalar = rebuild(scalar, lambda child: fold_constants(child, variables))
    match inner:
        case Cast(Const(value, _), target):
            return _compute(inner, variables, lambda: cast_value(value, target))
        case Apply("and" | "or" as function, args):
            return _fold_connective(function, [link for arg in args for link in links_of(function, arg)])
        case Apply("case", args):
            return _case(args, inner, variables)
        case Apply("coalesce", args):
            rest = [arg for arg in dict.fromkeys(args) if not (isinstance(arg, Const) and arg.value is None)]
            sure = next((place for place, arg in enumerate(rest) if not is_nullable(arg, variables)), len(rest))
            rest = rest[: sure + 1]
            if not rest:
                return Const(None, scalar_type(inner, variables))
            if len(rest) == 1:
                return _cast(rest[0], inner, variables)
            return Apply("coalesce", tuple(rest))
        case Apply(function, args) if function in FUNCTIONS:
            values = [arg.value for arg in args if isinstance(arg, Const)]
            if FUNCTIONS[function].strict and any(value is None for value in values):
                return Const(None, scalar_type(inner, variables))
            if len(values) == len(args):
                return _compute(inner, variables, lambda: call(function, tuple(values)))
            return inner
        case _:
            return inner


def _compute(scalar: Scalar, variables: Mapping[str, Typed], compute: Callable[[], Any]) -> Scalar:
    try:
        with localcontext(EXACT):
            return Const(compute(), scalar_type(scalar, variables))
    except CumulusError:
        return scalar


def _cast(scalar: Scalar, whole: Scalar, variables: Mapping[str, Typed]) -> Scalar:
    found = scalar_type(whole, variables)
    return scalar if scalar_type(scalar, variables) == found else fold_constants(Cast(scalar, found), variables)


def _fold_connective(function: str, args: Iterable[Scalar]) -> Scalar:
    """Return AND or OR without what does not matter."""
    neutral, final = (TRUE, FALSE) if function == "and" else (FALSE, TRUE)
    given = list(dict.fromkeys(args))
    if any(isinstance(arg, Const) and arg.value is final.value for arg in given):
        return final
    rest = [arg for arg in given if not (isinstance(arg, Const) and arg.value is neutral.value)]
    if all(isinstance(arg, Const) for arg in rest):
        return Const(None, BOOLEAN) if rest else neutral
    return join_conditions(function, rest)


def _case(args: tuple[Scalar, ...], whole: Scalar, variables: Mapping[str, Typed]) -> Scalar:
    rest: list[Scalar] = []
    for index in range(0, len(args) - 1, 2):
        test, value = args[index], args[index + 1]
        if isinstance(test, Const):
            if test.value is not True:
                continue
            return Apply("case", (*rest, value)) if rest else _cast(value, whole, variables)
        rest += [test, value]
    return Apply("case", (*rest, args[-1])) if rest else _cast(args[-1], whole, variables)
