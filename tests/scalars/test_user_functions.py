"""A user's functions: how they are declared, what their values must be, and what their failures are called."""

from __future__ import annotations

import datetime as dt
import decimal
from decimal import Decimal
from typing import Any

import pytest

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import BIGINT, EXACT, INTEGER, SqlType, type_named
from cumulus.errors import EvaluationError, MissingFunctionError, UsageError
from cumulus.scalars.user import UserFunction, fits_parameter, function, given_functions, runnable


def typed(name: str, *parameters: int) -> SqlType:
    found = type_named(name, parameters)
    assert found is not None
    return found


def test_types_come_from_annotations_or_are_said() -> None:
    @function
    def mixed(a: int, b: float | None, c: str, d: Decimal, e: dt.date, f: dt.datetime, g: dt.timedelta) -> bool:
        return True

    assert str(mixed.signature) == ("mixed(BIGINT, DOUBLE, VARCHAR, DECIMAL(18,3), DATE, TIMESTAMP, INTERVAL) BOOLEAN")

    @function(name="half", arguments=["decimal(10, 2)"], returns="DOUBLE", null="pass")
    def of_money(a):  # type: ignore[no-untyped-def]  # its types are said
        return None if a is None else float(a) / 2

    assert str(of_money.signature) == "half(DECIMAL(10,2)) DOUBLE CALLED ON NULL INPUT"
    assert of_money(Decimal(3)) == 1.5


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: function(lambda a: a), "is no name"),
        (lambda: function(lambda a: a, name="f"), "a has no annotation"),
        (lambda: function(lambda *a: a, name="f", returns="INT"), r"\*a has no annotation"),
        (lambda: function(lambda a: a, name="f", arguments=["INT"]), "what it returns"),
        (lambda: function(lambda a: a, name="f", arguments=["INT", "INT"], returns="INT"), "with 2 arguments"),
        (lambda: function(lambda a: a, name="f", arguments=["MONEY"], returns="INT"), "no type 'MONEY'"),
        (lambda: function(lambda a: a, name="f", arguments=["DECIMAL(50,2)"], returns="INT"), "no type"),
        (lambda: function(len, name="Length", arguments=["INT"], returns="INT"), "a function length already"),
        (lambda: function(len, name="no way", arguments=["INT"], returns="INT"), "is no name"),
        (lambda: function(len, name="f", arguments=["INT"], returns="INT", null="maybe"), "skip"),
        (lambda: given_functions(len), r"functions=\[f\]"),
        (lambda: given_functions([3]), "3 is no function"),  # type: ignore[list-item]  # on purpose
        (lambda: given_functions([function(abs, name=n, arguments=["INT"], returns="INT") for n in "aA"]), "two func"),
    ],
)
def test_what_is_no_declaration_is_refused_with_a_way_out(make: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        make()
    assert caught.value.hint


def checked(returns: str, implement: Any) -> Any:
    made = function(implement, name="f", arguments=["INT"] * 1, returns=returns)
    found = runnable([made.signature], {"f": made})["f"]
    assert isinstance(found, UserFunction)
    return found.implement


@pytest.mark.parametrize(
    ("returns", "given", "value"),
    [
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", Decimal("0.5"), 0.5),
        ("REAL", 0.1, 0.10000000149011612),
        ("INT", 3.0, 3),
        ("DECIMAL(4,2)", Decimal(1) / 3, Decimal("0.33")),
        ("DECIMAL(4,2)", 0.125, Decimal("0.13")),
        ("VARCHAR", "x", "x"),
        ("BOOLEAN", True, True),
        ("DATE", dt.datetime(2020, 1, 2), dt.date(2020, 1, 2)),
        ("TIMESTAMP", dt.date(2020, 1, 2), dt.datetime(2020, 1, 2)),
        ("TIMESTAMP", dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), dt.datetime(2020, 1, 1)),
        ("INT", None, None),
    ],
)
def test_values_become_the_declared_type(returns: str, given: Any, value: Any) -> None:
    found = checked(returns, lambda _: given)(1)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("returns", "given"),
    [
        ("BOOLEAN", 1),
        ("INT", True),
        ("INT", 2.5),
        ("INT", 1 << 31),
        ("DECIMAL(4,2)", 100),
        ("DECIMAL(4,2)", float("nan")),
        ("VARCHAR", 3),
        ("DOUBLE", "3"),
        ("DATE", "no date"),
        ("TIMESTAMP", 5),
        ("INT", object()),
    ],
)
def test_other_values_are_an_error_that_names_the_function(returns: str, given: Any) -> None:
    with pytest.raises(EvaluationError, match=r"^f\(1\): gave ") as caught:
        checked(returns, lambda _: given)(1)
    assert "declare another type" in caught.value.hint


def test_exceptions_are_told_with_function_and_arguments() -> None:
    with pytest.raises(EvaluationError, match=r"^f\(0\): raised ZeroDivisionError: ") as caught:
        checked("INT", lambda a: 1 // a)(0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    untyped = runnable((), given_functions({"g": lambda a: a.nothing}))["g"]
    with pytest.raises(EvaluationError, match=r"^g\(NULL\): raised AttributeError"):
        untyped(None)


def test_users_may_round_although_hosts_never_do() -> None:
    third = checked("DECIMAL(20,10)", lambda a: Decimal(a) / 3)
    with decimal.localcontext(EXACT):
        assert third(1) == Decimal("0.3333333333")
        with pytest.raises(decimal.Inexact):
            Decimal(1) / 3


def test_a_program_gets_the_functions_that_it_declares_and_no_others() -> None:
    declared = [FunctionSignature("f", (INTEGER,), BIGINT), FunctionSignature("g", (), INTEGER)]
    with pytest.raises(MissingFunctionError, match=r"calls f\(INTEGER\) BIGINT, g\(\) INTEGER: not given") as caught:
        runnable(declared, {})
    assert caught.value.names == ("f", "g")
    made = function(abs, name="f", arguments=["DOUBLE"], returns="BIGINT")
    with pytest.raises(UsageError, match=r"declares f\(INTEGER\) BIGINT, but the function given is f\(DOUBLE\)"):
        runnable(declared[:1], {"f": made})
    untyped = runnable(declared[:1], given_functions({"f": lambda a: a}))["f"]
    assert isinstance(untyped, UserFunction)
    assert untyped.signature == declared[0]


def test_arguments_widen_but_never_lose() -> None:
    widening = [("INT", "BIGINT"), ("INT", "DOUBLE"), ("DATE", "TIMESTAMP"), ("BIGINT", "DOUBLE"), ("REAL", "DOUBLE")]
    for given, parameter in widening:
        assert fits_parameter(typed(given), typed(parameter))
        assert not fits_parameter(typed(parameter), typed(given))
    assert fits_parameter(typed("INT"), typed("DECIMAL", 18, 3))
    assert not fits_parameter(typed("DECIMAL", 18, 4), typed("DECIMAL", 18, 3))
    assert not fits_parameter(typed("BOOLEAN"), typed("INT"))
    assert not fits_parameter(typed("INT"), typed("VARCHAR"))
