"""Calls and casts of bound scalars: types checked, the casts that DuckDB would add, constants computed.

Constants are folded where variables turn out to be constant, too: NULL makes most of a scalar NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import localcontext
from typing import Any

from cumulus.algebra.terms import FALSE, TRUE, Apply, Cast, Const, Scalar, children, rebuild
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import BOOLEAN, DATE, EXACT, INTEGER_BITS, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType
from cumulus.errors import CumulusError
from cumulus.scalars.function import common_type
from cumulus.scalars.registry import FUNCTIONS, argument_types, call, can_cast, cast_value, check_literals
from cumulus.scalars.typing import Typed, is_nullable, scalar_type
from cumulus.scalars.user import fits_parameter
from cumulus.sql.ast import AGGREGATES
from cumulus.sql.binding.scope import Scope
from cumulus.sql.syntax.advice import function_advice
from cumulus.sql.syntax.chains import join_conditions, join_with_lists, links_of
from cumulus.sql.syntax.functions import SECOND_NAMES

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_distinct"))
_MEETING = frozenset(("in", "nullif", "coalesce", "least", "greatest"))
_UTC = frozenset(("utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "universal"))
_ARITHMETIC = frozenset(("add", "sub", "mul", "mod", "intdiv"))


class ScalarCalls:
    """Makes calls and casts of scalars over the variables of `scope`; constants are computed now if it `folds`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.source = scope.source
        self.folds = True

    def type_of(self, scalar: Scalar) -> SqlType:
        """Return the type of a bound scalar."""
        return scalar_type(scalar, self.scope.variables)

    def apply(self, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the call of a function on bound arguments, with the casts that DuckDB would add."""
        own = self.source.functions.get(name)
        if own is not None:
            return self._call_of_users(own, args, at)
        if name == "timezone":
            return self._at_time_zone(args, at)
        if name not in FUNCTIONS:
            advice = function_advice(name, (*AGGREGATES, *SECOND_NAMES, *self.source.functions))
            raise self.source.unsupported(f"there is no function {name}", at, feature=name, hint=advice)
        if Kind.TIMESTAMPTZ in {self.type_of(arg).kind for arg in args}:
            zoned = self._in_utc(name, args, at)
            if zoned is not None:
                return zoned
        args = self._with_casts(name, args, at)
        applied = Apply(name, args)
        try:
            self.type_of(applied)
        except TypeError as problem:
            raise self.source.bind_error(str(problem), at) from None
        try:
            check_literals(name, tuple(arg.value if isinstance(arg, Const) else None for arg in args))
        except CumulusError as problem:
            raise self.source.bind_error(problem.message, at, hint=problem.hint) from None
        if self.folds and all(isinstance(arg, Const) for arg in args):
            return self._compute(applied, at)
        if name in ("and", "or"):
            return join_with_lists(name, links_of(name, applied), self.type_of)
        return applied

    def _at_time_zone(self, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return `x AT TIME ZONE 'UTC'`: a moment as a time of UTC, or a time of UTC as a moment."""
        zone = args[0].value if len(args) == 2 and isinstance(args[0], Const) else None
        if str(zone).lower() not in _UTC:
            raise self.source.unsupported(
                f"there is no time zone {zone!r} here" if zone else "AT TIME ZONE takes a name that is written out",
                at,
                feature="AT TIME ZONE",
                hint="'UTC' is the only one: a view must not depend on a database of time zones.",
            )
        found = self.type_of(args[1])
        if not found.is_temporal:
            raise self.source.bind_error(f"AT TIME ZONE takes a TIMESTAMP, not {found}", at, hint="CAST it.")
        return self.cast(args[1], TIMESTAMP if found == TIMESTAMPTZ else TIMESTAMPTZ, at)

    def _in_utc(self, name: str, args: tuple[Scalar, ...], at: int) -> Scalar | None:
        """Return the call of a function of times on moments: as on times of UTC, and what is a time is a moment again.

        None if the function takes moments, as what takes any type does.
        """
        try:
            argument_types(name, tuple(self.type_of(arg) for arg in self._fit_literals(name, args, at)))
        except TypeError:
            plain = tuple(
                self.cast(arg, TIMESTAMP, at) if self.type_of(arg).kind is Kind.TIMESTAMPTZ else arg for arg in args
            )
            found = self.apply(name, plain, at)
            return self.cast(found, TIMESTAMPTZ, at) if self.type_of(found) == TIMESTAMP else found
        return None

    def _call_of_users(self, signature: FunctionSignature, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the call of a user's function, under a cast that carries its type (`declare_functions` drops it)."""
        if len(args) != len(signature.parameters):
            told = f"{signature.name} takes {len(signature.parameters)} arguments, not {len(args)}"
            raise self.source.bind_error(told, at, hint=f"It is declared as {signature}.")
        fitted = []
        for arg, parameter in zip(args, signature.parameters, strict=True):
            found = self.type_of(arg)
            literal = isinstance(arg, Const) and (found.is_integer or found.kind is Kind.VARCHAR or parameter.is_float)
            if not (fits_parameter(found, parameter) or (literal and can_cast(found, parameter))):
                told = f"{signature.name} takes {parameter}, not {found}"
                raise self.source.bind_error(told, at, hint=f"It is declared as {signature}; CAST the argument.")
            fitted.append(self.cast(arg, parameter, at))
        return Cast(Apply(signature.name, tuple(fitted)), signature.result)

    def cast(self, arg: Scalar, target: SqlType, at: int) -> Scalar:
        """Return CAST(arg AS target), or `arg` itself where it is of that type already."""
        source = self.type_of(arg)
        if source == target:
            return arg
        if self.folds and isinstance(arg, Const):
            return self._compute(Cast(arg, target), at)
        return Cast(arg, target)

    def _compute(self, scalar: Apply | Cast, at: int) -> Scalar:
        """Compute a scalar of constants now."""
        found = self.type_of(scalar)
        try:
            with localcontext(EXACT):
                if isinstance(scalar, Cast):
                    assert isinstance(scalar.arg, Const)
                    return Const(cast_value(scalar.arg.value, scalar.type), found)
                return Const(call(scalar.function, tuple(arg.value for arg in scalar.args)), found)  # type: ignore[union-attr]
        except CumulusError as problem:
            raise self.source.bind_error(problem.message, at) from None

    def _with_casts(self, name: str, args: tuple[Scalar, ...], at: int) -> tuple[Scalar, ...]:
        """Add the casts that DuckDB would add; exact numbers compare and add as they are."""
        args = self._fit_literals(name, args, at)
        types = tuple(self.type_of(arg) for arg in args)
        if name in _COMPARISONS | {"in"} and {t.kind for t in types} == {Kind.DATE, Kind.TIMESTAMP}:
            dates = [_as_date(arg, own_type) for arg, own_type in zip(args, types, strict=True)]
            if all(date is not None for date in dates):
                return tuple(date for date in dates if date is not None)
        try:
            targets = argument_types(name, types)
        except TypeError:
            return args  # `apply` tells it
        if name in ("and", "or", "not", "case", "if"):
            tests = range(0, len(args) - 1, 2) if name in ("case", "if") else range(len(args))
            targets = tuple(BOOLEAN if place in tests else target for place, target in enumerate(targets))
        return tuple(
            self.cast(arg, target, at) if _needs_cast(own_type, target) else arg
            for arg, own_type, target in zip(args, types, targets, strict=True)
        )

    def _fit_literals(self, name: str, args: tuple[Scalar, ...], at: int) -> tuple[Scalar, ...]:
        """Give literals the type of what they meet: a string any type, an integer the width of other integers."""
        if name == "case":
            meeting = [*range(1, len(args) - 1, 2), len(args) - 1]
        elif name in _COMPARISONS or name in _MEETING or name in _ARITHMETIC:
            meeting = list(range(len(args)))
        else:
            return args
        types = [self.type_of(args[index]) for index in meeting]
        pairs = list(zip(meeting, types, strict=True))
        solid = [own_type for index, own_type in pairs if not isinstance(args[index], Const)]
        target = common_type(solid) if solid else None
        if target is None:
            return args
        fitted = list(args)
        for index, own_type in pairs:
            literal = args[index]
            if not isinstance(literal, Const) or literal.value is None:
                continue
            if own_type.kind is Kind.VARCHAR and target.kind is not Kind.VARCHAR and name not in _ARITHMETIC:
                fitted[index] = self.cast(literal, target, at)
            elif (
                name not in _COMPARISONS | {"in", "nullif"}
                and own_type.is_integer
                and target.is_integer
                and abs(literal.value) < 1 << (INTEGER_BITS[target.kind] - 1)
                # A literal that meets NULL first is an INTEGER before it meets anything else.
                and not (name == "case" and index == 1 and types[-1].kind is Kind.NULL)
            ):
                fitted[index] = Const(literal.value, target)
        return tuple(fitted)


def _as_date(scalar: Scalar, found: SqlType) -> Scalar | None:
    """Return a DATE scalar of the same moment, if there is one without computing."""
    if found.kind is Kind.DATE:
        return scalar
    if isinstance(scalar, Const) and scalar.value is not None and found.kind is Kind.TIMESTAMP:
        moment = scalar.value
        if moment.time() == type(moment.time())():
            return Const(moment.date(), DATE)
    return None


def _needs_cast(found: SqlType, target: SqlType) -> bool:
    """Whether a value must change to be one of `target`; exact numbers compare and add as they are."""
    if found == target or found.kind is Kind.NULL:
        return False
    return not (found.is_exact and target.is_exact)


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
