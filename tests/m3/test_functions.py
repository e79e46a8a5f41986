"""`FUNCTION f(…) …;` in M3: a text says what it calls beside the built-in functions."""

from __future__ import annotations

import pytest

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import DOUBLE, INTEGER, decimal
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.errors import M3SyntaxError, MissingFunctionError, ValidationError
from cumulus.m3 import parse, read

TEXT = """RELATION r(a INTEGER, b DOUBLE);

FUNCTION score(DOUBLE, DOUBLE) DOUBLE;
FUNCTION price(INTEGER) DECIMAL(9,2) CALLED ON NULL INPUT;

MAP m[a INTEGER](s DECIMAL(38,2)) = SUM[a](r(a, b) * price(a));

ON +r(a, b) {
  m[a] += price(a) * {9e-1 <= score(a, b)};
}
"""


def test_declarations_are_read_and_printed() -> None:
    program = read(TEXT)
    assert program.functions == (
        FunctionSignature("score", (DOUBLE, DOUBLE), DOUBLE),
        FunctionSignature("price", (INTEGER,), decimal(9, 2), True),
    )
    assert str(program) == TEXT
    assert parse(str(program)) == program
    odd = parse('FUNCTION "sum"(INT) INT; FUNCTION "my f"() INT;')
    assert parse(str(odd)) == odd


def test_a_declared_call_on_free_variables_is_no_relation() -> None:
    program = parse("FUNCTION f(INT) INT; MAP m[](v) = SUM[](r(a) * f(a));")
    assert [relation.name for relation in program.relations] == ["r"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("FUNCTION f(INT) INT; FUNCTION f(INT) INT;", "two functions are called f"),
        ("FUNCTION length(INT) INT;", "length is built in"),
        ("RELATION f(a); FUNCTION f(INT) INT;", "f is a relation and a function"),
        ("FUNCTION f(INT) INT; ON +r(a) { m[a] += f(a, a) }", "f takes 1 arguments, not 2"),
        ("FUNCTION f(DATE) INT; RELATION r(a INT); ON +r(a) { m[a] += f(a) }", "f takes DATE, not INTEGER"),
        ("FUNCTION f(INT) TEXT; RELATION r(a INT); ON +r(a) { m[a] += f(a) }", "VARCHAR and not a number"),
        ("ON +r(a) { m[a] += f(a) }", "there is no function f"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        read(text)
    assert caught.value.line == 1


@pytest.mark.parametrize("declared", ["f(INT)", "f INT", "f(MONEY) INT", "f() INT CALLED", "f(INT INT) INT"])
def test_what_is_no_declaration_is_a_syntax_error(declared: str) -> None:
    with pytest.raises(M3SyntaxError):
        parse(f"FUNCTION {declared};")


def test_arguments_are_cast_to_the_parameters_and_null_skips_the_call() -> None:
    program = parse(
        "FUNCTION f(DOUBLE) BIGINT; FUNCTION g(DOUBLE) BIGINT CALLED ON NULL INPUT; FUNCTION never(INT) INT;"
        "RELATION r(a INT, b);"
        "MAP m[](x BIGINT, y BIGINT, z BIGINT);"
        "ON +r(a, b) { m[].x += f(a); m[].y += g(b); m[].z += f(b) }"
    )
    with pytest.raises(MissingFunctionError, match=r"f\(DOUBLE\) BIGINT, g\(DOUBLE\) BIGINT CALLED"):
        Interpreter(program)
    seen = []

    def noted(value):  # type: ignore[no-untyped-def]  # any value
        seen.append(value)
        return 1

    engine = Interpreter(program, {"f": noted, "g": noted, "never": noted})
    engine.begin()
    engine.on_event(1, "r", (3, 4))
    engine.on_event(1, "r", (None, None))
    engine.commit()
    assert engine.read("m", ()) == (1, 2, 1)
    assert [repr(value) for value in seen] == ["3.0", "4.0", "4.0", "None"]


def test_an_undeclared_function_takes_and_gives_what_it_likes() -> None:
    engine = Interpreter(parse("ON +r(a) { m[] += f(a) }"), {"f": lambda a: a * 2})
    engine.begin()
    engine.on_event(1, "r", (3,))
    engine.on_event(1, "r", (None,))
    engine.commit()
    assert engine.read("m", ()) == (6,)
