"""Terms as text: what is printed, what is read, and what is refused."""

import datetime as dt
from decimal import Decimal

import pytest

from cumulus.algebra.parser import parse_term
from cumulus.algebra.printing import print_scalar, print_term
from cumulus.algebra.terms import (
    FALSE,
    NULL_VALUE,
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
    Var,
    negate,
    number,
    product_of,
    sum_of,
)
from cumulus.catalog.types import BIGINT, DATE, DOUBLE, INTEGER, INTERVAL, REAL, TIMESTAMP, VARCHAR, Interval, decimal
from cumulus.errors import M3SyntaxError
from support.term_texts import parse_scalar

a, b, c, x, y = (Var(name) for name in "abcxy")

VALUES = [
    ("x + y - 2 * a", sum_of([x, y, product_of([number(-2), a])])),
    ("-(x + y) * a", product_of([negate(sum_of([x, y])), a])),
    ("x - (y + a) * b", sum_of([x, negate(product_of([sum_of([y, a]), b]))])),
    ("SUM[x](r(x, y) * m[x, y].v)", AggSum(("x",), product_of([Atom("r", ("x", "y")), MapRead("m", "v", (x, y))]))),
    ("BATCH r(x)", Batch("r", ("x",))),
    ("(z := x + y)", Lift("z", sum_of([x, y]))),
    ("(z := add(x, y))", Lift("z", Apply("add", (x, y)))),
    ("EXISTS(m[]) * {a <> b}", product_of([Exists(MapRead("m", "", ())), Compare("<>", a, b)])),
    ("m[a + 1, b * 2]", MapRead("m", "", (Apply("add", (a, number(1))), Apply("mul", (b, number(2)))))),
    ("m[a, > b]", MapRead("m", "", (a, Range((b, False), None)))),
    ("m[a, <= b + 1]", MapRead("m", "", (a, Range(None, (Apply("add", (b, number(1))), True))))),
    ("m[a .. b, > a .. < b, a .. < b]", None),
    ("m[..]", MapRead("m", "", (Range(None, None),))),
    ("MIN m[a, *]", MapExtremum("MIN", "m", (a, None))),
    ("MIN[x](m[a, x] * r(x, y))", Extremum("MIN", "x", product_of([MapRead("m", "", (a, x)), Atom("r", ("x", "y"))]))),
    ("(z := MAX[x](m[x] - 2))", Lift("z", Extremum("MAX", "x", sum_of([MapRead("m", "", (x,)), number(-2)])))),
    ('MAX["no of rows"](m["no of rows"])', Extremum("MAX", "no of rows", MapRead("m", "", (Var("no of rows"),)))),
    ("max[x] * min[x + 1] * MIN min[*] * min[x, y]", None),
    ("{a}", Compare("=", a, TRUE)),
    ("{(a < b) = TRUE}", Compare("=", Apply("lt", (a, b)), TRUE)),
    ("{a < b AND b < c}", Compare("=", Apply("and", (Apply("lt", (a, b)), Apply("lt", (b, c)))), TRUE)),
    ("CASE WHEN a < b THEN 1 ELSE 0 END", Apply("case", (Apply("lt", (a, b)), number(1), number(0)))),
    ('"end" * "a map"[x]', product_of([Var("end"), MapRead("a map", "", (x,))])),
    ("date * min * sum", product_of([Var("date"), Var("min"), Var("sum")])),
    ('"sum"[x]', MapRead("sum", "", (x,))),
    ("date[min] * min[date] * MIN max[a, *]", None),
    ("o.price * 1e0", None),
]


@pytest.mark.parametrize(("text", "term"), VALUES, ids=[text for text, _ in VALUES])
def test_a_term_reads_as_it_is_built_and_prints_as_it_reads(text, term):
    read = parse_term(text, relations={"r"})
    assert term is None or read is term
    assert parse_term(print_term(read), relations={"r"}) is read
    if text != "o.price * 1e0":  # a factor of one is no factor
        assert print_term(read) == text


SCALARS = [
    ("a + b * c", Apply("add", (a, Apply("mul", (b, c))))),
    ("(a + b) * c", Apply("mul", (Apply("add", (a, b)), c))),
    ("a - b - c", Apply("sub", (Apply("sub", (a, b)), c))),
    ("a - (b - c)", Apply("sub", (a, Apply("sub", (b, c))))),
    ("a / b // c % 2", None),
    ("-5 - -a", Apply("sub", (number(-5), Apply("neg", (a,))))),
    ("-(5)", Apply("neg", (number(5),))),
    ("-(-a)", Apply("neg", (Apply("neg", (a,)),))),
    ("NOT (a OR b) AND c", None),
    ("NOT NOT a", Apply("not", (Apply("not", (a,)),))),
    ("a IS NULL", Apply("is_null", (a,))),
    ("(a < b) IS NOT NULL", Apply("not", (Apply("is_null", (Apply("lt", (a, b)),)),))),
    ("a || 'it''s' || b", None),
    ("VALUE(m[a] + r(x))", None),
    ("SUM[](m[x]) > {a = b}", None),
    ('"and"(a, b, c)', Apply("and", (a, b, c))),
    ("f()", Apply("f", ())),
    ("MIN[o.x](m[o.x]) - a", Apply("sub", (Extremum("MIN", "o.x", MapRead("m", "", (Var("o.x"),))), a))),
]


@pytest.mark.parametrize(("text", "scalar"), SCALARS, ids=[text for text, _ in SCALARS])
def test_a_scalar_reads_as_it_is_built_and_prints_as_it_reads(text, scalar):
    read = parse_scalar(text)
    assert scalar is None or read is scalar
    assert print_scalar(read) == text if "VALUE" not in text else "VALUE(m[a] + r(x))"
    assert parse_scalar(print_scalar(read)) is read


LITERALS = [
    (Const(12, INTEGER), "12"),
    (Const(-12, INTEGER), "-12"),
    (Const(3_000_000_000, BIGINT), "3000000000"),
    (Const(12, BIGINT), "CAST(12 AS BIGINT)"),
    (Const(Decimal("0.50"), decimal(2, 2)), "0.50"),
    (Const(Decimal("0.50"), decimal(15, 2)), "CAST(0.50 AS DECIMAL(15,2))"),
    (Const(Decimal("7"), decimal(1, 0)), "CAST(7 AS DECIMAL(1,0))"),
    (Const(1.0, DOUBLE), "1e0"),
    (Const(0.5, DOUBLE), "5e-1"),
    (Const(-1234.5, DOUBLE), "-1.2345e3"),
    (Const(-0.0, DOUBLE), "-0e0"),
    (Const(0.5, REAL), "CAST(5e-1 AS REAL)"),
    (Const(float("inf"), DOUBLE), "CAST('inf' AS DOUBLE)"),
    (Const(float("nan"), DOUBLE), "CAST('nan' AS DOUBLE)"),
    (Const("it's", VARCHAR), "'it''s'"),
    (Const(dt.date(1995, 3, 15), DATE), "DATE '1995-03-15'"),
    (Const(dt.datetime(1995, 3, 15, 1, 2, 3, 4), TIMESTAMP), "TIMESTAMP '1995-03-15 01:02:03.000004'"),
    (Const(Interval(14, -3, 5), INTERVAL), "INTERVAL '14 months -3 days 5 microseconds'"),
    (Const(Interval(0, 0, 0), INTERVAL), "INTERVAL '0 days'"),
    (TRUE, "TRUE"),
    (FALSE, "FALSE"),
    (NULL_VALUE, "NULL"),
    (Const(None, BIGINT), "CAST(NULL AS BIGINT)"),
    (Cast(number(5), BIGINT), "CAST((5) AS BIGINT)"),
    (Cast(Const("5", VARCHAR), BIGINT), "CAST('5' AS BIGINT)"),
    (Cast(a, decimal(15, 2)), "CAST(a AS DECIMAL(15,2))"),
]


@pytest.mark.parametrize(("literal", "text"), LITERALS, ids=[text for _, text in LITERALS])
def test_a_literal_keeps_value_and_type_in_both_contexts(literal, text):
    assert print_term(literal) == text
    assert parse_term(text) is literal
    assert print_scalar(literal) == text
    assert parse_scalar(text) is literal


def test_if_is_the_product_of_its_conditions():
    matched = parse_term("if id1<>id and 0.9<=score(prop1, prop) then 1 else 0", relations=())
    assert print_term(matched) == "{id1 <> id} * {0.9 <= score(prop1, prop)}"
    assert print_term(parse_term("IF a = b THEN x ELSE y")) == "{a = b} * x + {a <> b} * y"
    # Where an order comparison is NULL, ELSE counts: so its negation is not the other comparison.
    assert print_term(parse_term("IF a < b THEN x ELSE y")) == "{a < b} * x + (1 - {a < b}) * y"


def test_units_of_intervals_add_up():
    assert parse_scalar("INTERVAL '1 year 2 weeks 1 hour'") is Const(Interval(12, 14, 3_600_000_000), INTERVAL)


WRONG = [
    ("x +", 1, 4, "expected a term, found the end of the text"),
    ("m[x", 1, 4, "expected ',' between keys, found the end"),
    ("a *\n  / b", 2, 3, "expected a term, found '/'"),
    ("a / b", 1, 3, "write div(a, b)"),
    ("{a < b < c}", 1, 8, "Join comparisons with AND"),
    ("(x := 1", 1, 8, "expected ')'"),
    ("x # y", 1, 3, "'#' cannot stand here"),
    ("'open", 1, 1, "never ends"),
    ("x * end", 1, 5, 'A name that is a keyword is quoted: "end"'),
    ("MIN m[a]", 1, 8, "exactly one '*'"),
    ("CAST(a AS NUMBR)", 1, 11, "expected a type, found 'NUMBR'"),
    ("DATE '1995-13-01'", 1, 6, "expected a DATE"),
    ("x y", 1, 3, "expected the end of the text, found 'y'"),
]


@pytest.mark.parametrize(("text", "line", "column", "told"), WRONG, ids=[text for text, *_ in WRONG])
def test_an_error_names_its_place_and_what_was_expected(text, line, column, told):
    with pytest.raises(M3SyntaxError) as caught:
        parse_term(text, name="sketch.m3")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"sketch.m3:{line}:{column}: ")
    assert f"\n  {' ' * (column - 1)}^" in str(caught.value)
