"""The law of the language: what is printed reads back as the same program."""

import datetime as dt
from decimal import Decimal

import hypothesis.strategies as st
from hypothesis import given, settings

from cumulus.algebra.parser import parse_term
from cumulus.algebra.printing import COMPARISONS, INFIX, print_scalar, print_term
from cumulus.algebra.terms import (
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
    number,
    product_of,
    sum_of,
)
from cumulus.catalog import schema
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    NULL,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    VARCHAR,
    Interval,
    decimal,
)
from cumulus.m3 import MapDef, On, OrderItem, Program, Statement, Trigger, ViewDef, canonical, parse
from cumulus.m3.printer import wrap
from cumulus.scalars.python_code import canonical as canonical_value
from support.term_texts import parse_scalar
from support.tiers import examples

plain = st.sampled_from(["x", "y", "oid", "nation", "c.nation", "date", "sum", "min", "key", "größe", "_1"])
odd = st.sampled_from(
    ["end", "If", "no of orders", 'a "quoted" one', "1st", "null", "", "a..b", "it's", "a\nb", "-- no"]
)
names = st.one_of(plain, plain, odd, st.text(max_size=3))
RELATIONS = ["r", "s", "orders", "sum", "a table"]
FUNCTIONS = ["f", "year", "case", "interval", "not", "add", "is_null", "neg", "a function", "value"]
COLUMNS = {"m": ("v",), "batch": ("v", "w"), "a map": ("total", "a.b"), "MIN": ("end",)}
maps = st.sampled_from(sorted(COLUMNS))

decimals = st.builds(
    lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-(10**20), 10**20), st.integers(1, 15)
)
types = st.sampled_from([TINYINT, SMALLINT, BIGINT, decimal(15, 2), decimal(38, 0), REAL, DOUBLE, VARCHAR, DATE])
numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(number),
    decimals.map(number),
    st.floats().map(number),
)
int32, int64 = st.integers(1 - 2**31, 2**31 - 1), st.integers(1 - 2**63, 2**63 - 1)  # what DuckDB reads
literals = st.one_of(
    numbers,
    st.integers(-128, 127).map(lambda value: Const(value, TINYINT)),
    st.integers(-999, 999).map(lambda value: Const(Decimal(value).scaleb(-2), decimal(15, 2))),
    st.integers(-999, 999).map(lambda value: Const(Decimal(value), decimal(5, 0))),
    st.floats(width=32).map(lambda value: Const(value, REAL)),
    st.text().map(lambda value: Const(value, VARCHAR)),
    st.booleans().map(lambda value: Const(value, BOOLEAN)),
    st.dates().map(lambda value: Const(value, DATE)),
    st.datetimes().map(lambda value: Const(value.replace(fold=0), TIMESTAMP)),
    st.builds(Interval, int32, int32, int64).map(lambda value: Const(value, INTERVAL)),
    st.sampled_from([BIGINT, VARCHAR, NULL, DATE]).map(lambda own: Const(None, own)),
)


ends = st.sampled_from(["MIN", "MAX"])


def listed(draw, size, one):
    return tuple(one() for _ in range(draw(st.integers(0, size))))


@st.composite
def scalars(draw, depth, values=True):
    """Scalars, with terms in value context inside if `values`."""

    def inner():
        return draw(scalars(depth - 1, values))

    match draw(st.integers(0, 10)) if depth else -1:
        case 0 | 1:
            return Apply(draw(st.sampled_from(sorted(INFIX))), (inner(), inner()))
        case 2:
            return Apply(draw(st.sampled_from(["neg", "not", "is_null", "and", "lt"])), (inner(),))
        case 3:
            return Apply("not", (Apply("is_null", (inner(),)),))
        case 4:
            return Apply("case", (inner(), inner(), inner()))
        case 5:
            return Apply(draw(st.sampled_from(FUNCTIONS)), listed(draw, 4, inner))
        case 6:
            return Cast(inner(), draw(types))
        case 7:
            return read_or_end(draw, inner)
        case 8 if values:
            return draw(terms(depth - 1))
        case 9 if values:
            return Extremum(draw(ends), draw(names), draw(terms(depth - 1)))
        case _:
            return draw(st.one_of(names.map(Var), literals))


def read_or_end(draw, inner):
    def end():
        return (inner(), draw(st.booleans())) if draw(st.booleans()) else None

    def key():
        return Range(end(), end()) if draw(st.booleans()) else inner()

    name = draw(maps)
    if draw(st.booleans()):
        return MapRead(name, draw(st.sampled_from(COLUMNS[name])), listed(draw, 3, key))
    return MapExtremum(draw(ends), name, (*listed(draw, 2, inner), None, *listed(draw, 2, inner)))


variables = st.lists(names, max_size=3).map(tuple)


@st.composite
def terms(draw, depth, functions=True):
    """Terms of every kind; a definition (not `functions`) calls none on variables only, as a relation would be."""

    def inner():
        return draw(terms(depth - 1, functions))

    def scalar():
        return draw(scalars(depth - 1))

    match draw(st.integers(0, 12)) if depth else -1:
        case 0 | 1:
            return sum_of([inner(), inner(), *listed(draw, 2, inner)])
        case 2 | 3:
            return product_of([inner(), inner(), *listed(draw, 2, inner)])
        case 4:
            return Lift(draw(names), inner())
        case 5:
            return Exists(inner())
        case 6:
            return AggSum(draw(variables), inner())
        case 7:
            return Compare(draw(st.sampled_from(sorted(COMPARISONS.values()))), scalar(), scalar())
        case 8:
            args = listed(draw, 3, scalar)
            return Apply(draw(st.sampled_from(FUNCTIONS)), args if functions else (*args, number(1)))
        case 9:
            return Cast(scalar(), draw(types))
        case 10:
            return read_or_end(draw, scalar)
        case 11:
            return Extremum(draw(ends), draw(names), inner())
        case 12:
            kind = draw(st.sampled_from([Atom, Batch]))
            return kind(draw(st.sampled_from(RELATIONS)), draw(variables))
        case _:
            return draw(st.one_of(literals, names.map(Var)))


@settings(max_examples=examples(300), deadline=None)
@given(terms(4))
def test_a_printed_term_reads_back_as_the_same_node(term):
    assert parse_term(print_term(term), relations=RELATIONS) is term


@settings(max_examples=examples(200), deadline=None)
@given(scalars(4, values=False))
def test_a_printed_scalar_reads_back_as_the_same_node(scalar):
    assert parse_scalar(print_scalar(scalar)) is scalar


columns = st.lists(
    st.builds(schema.Column, names, st.one_of(st.none(), types), st.booleans()), max_size=4, unique_by=lambda c: c.name
).map(tuple)
keys = st.lists(names, max_size=3, unique=True).map(tuple)


def relations():
    foreign = st.builds(schema.ForeignKey, keys, st.sampled_from(RELATIONS), keys, st.booleans())
    return st.tuples(
        *(
            st.builds(
                lambda name, own, key, rely, foreign, static, keep: schema.Relation(
                    name, own, key, bool(key) and rely, tuple(foreign), static, keep
                ),
                st.just(name),
                columns,
                keys,
                st.booleans(),
                st.lists(foreign, max_size=2),
                st.booleans(),
                st.sampled_from(["auto", "all", "none"]),
            )
            for name in RELATIONS
        )
    )


def map_definition(name):
    values = tuple(schema.Column(value, BIGINT) for value in COLUMNS[name])
    return st.builds(
        lambda own, count, ordered, definitions, sql, initial: MapDef(
            name, own, values, count, ordered, tuple(definitions), sql, initial=initial
        ),
        columns,
        st.sampled_from(["", *COLUMNS[name]]),
        st.sampled_from(["", "x", "end"]),
        st.one_of(st.just([]), st.lists(terms(2, functions=False), min_size=len(values), max_size=len(values))),
        st.one_of(st.just(""), st.text(max_size=20)),
        st.lists(entries(), max_size=3).map(tuple),
    )


def entries():
    plain_values = literals.map(lambda const: canonical_value(const.value))
    key, values = st.lists(plain_values, max_size=3), st.lists(plain_values, min_size=1, max_size=2)
    return st.tuples(key.map(tuple), values.map(tuple))


def views():
    scalar = scalars(2, values=False)
    return st.builds(
        ViewDef,
        st.sampled_from(["view", "a view", "sum"]),
        columns,
        st.lists(maps, min_size=1, max_size=2).map(tuple),
        st.lists(scalar, min_size=1, max_size=3).map(tuple),
        st.one_of(st.none(), scalar),
        st.one_of(st.none(), scalar),
        st.lists(st.builds(OrderItem, scalar, st.booleans(), st.booleans()), max_size=2).map(tuple),
        st.one_of(st.none(), st.integers(0, 99)),
        st.integers(0, 9),
    )


def statements():
    def built(name, column, own, op, term):
        return Statement(name, COLUMNS[name][column % len(COLUMNS[name])], own, op, term)

    return st.builds(built, maps, st.integers(0, 1), variables, st.sampled_from(["+=", ":="]), terms(3))


def triggers():
    def built(on, relation, own, body):
        return Trigger(on, relation, () if on is On.BATCH else own, tuple(body))

    trigger = st.builds(
        built, st.sampled_from(On), st.sampled_from(RELATIONS), keys, st.lists(statements(), max_size=3)
    )
    return st.lists(trigger, max_size=3, unique_by=lambda item: (item.on, item.relation)).map(tuple)


programs = st.builds(
    Program,
    relations(),
    st.tuples(*(map_definition(name) for name in COLUMNS)),
    st.lists(views(), max_size=2).map(tuple),
    triggers(),
    st.sampled_from([(), (("r", "m"),), (("r", "m"), ("a table", "a map"))]),
)


@settings(max_examples=examples(100), deadline=None)
@given(programs)
def test_a_printed_program_reads_back_as_the_same_program(program):
    assert canonical(program) == program
    assert parse(str(program)) == program


@given(st.text("ab'\" ,+-*()[]", max_size=80), st.integers(0, 30), st.integers(0, 8), st.integers(10, 40))
def test_breaking_lines_changes_nothing_but_white_space(text, start, indent, width):
    broken = wrap(text, start, indent, width)
    assert "".join(broken.split()) == "".join(text.split())


def test_dates_at_the_ends_of_time():
    for value in (dt.date.min, dt.date.max):
        assert parse_term(print_term(Const(value, DATE))) is Const(value, DATE)
