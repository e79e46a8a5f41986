"""Operators bind as in DuckDB, or are refused: every pair of operators, and random chains of several.

DuckDB writes an expression back with a bracket around every operation; both texts must mean the same to Cumulus. What
DuckDB cannot read Cumulus refuses, too.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot.errors import ParseError

from cumulus import CumulusError, Warehouse
from cumulus.sql.ast import CreateView, Select
from cumulus.sql.syntax.dialect import CumulusSql
from cumulus.sql.syntax.parse import parse_script
from support.tiers import examples, sampled

PREFIXES = ("-", "+", "~", "@", "NOT")
BINARY = (
    *("+", "-", "*", "/", "//", "%", "^", "**", "&", "|", "<<", ">>", "||", "=", "<>", "!=", "==", "<", "<=", ">"),
    *(">=", "AND", "OR", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE", "~~", "!~~", "~~*", "!~~*", "SIMILAR TO"),
    *("NOT SIMILAR TO", "~", "!~", "~*", "!~*", "GLOB", "~~~", "^@", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "->"),
    *("->>", "&&", "@>", "<@", "<->", "<=>", "AT TIME ZONE"),
)
POSTFIXES = (
    *("IS NULL", "IS NOT NULL", "ISNULL", "NOTNULL", "NOT NULL", "IS TRUE", "IS NOT FALSE", "IS UNKNOWN", "::VARCHAR"),
    *("!", "[1]", ".f", "COLLATE nocase", "IN (1, 2)", "NOT IN (1, 2)", "BETWEEN c AND d", "NOT BETWEEN c AND d"),
    *("LIKE s ESCAPE '$'", "NOT LIKE s ESCAPE '$'", "AT TIME ZONE 'UTC'"),
)
SIGNS = "+-*/<>=~!@#%^&|"
TABLE = """CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, c INTEGER, d DOUBLE, s VARCHAR, u VARCHAR,
    w VARCHAR, p BOOLEAN, q BOOLEAN, r BOOLEAN)"""
ROWS = [
    (1, 6, 3, 2, 1.5, "abc", "ab", "c", True, False, True),
    (2, -7, 2, 5, -0.5, "Hello", "h%", "lo", False, False, True),
    (3, 1, -1, 4, 2.0, "1", "-7", "", True, None, False),
    (4, None, 4, 1, None, "a.c", None, "false", None, True, None),
    (5, 12, 12, 12, 12.0, "true", "true", "true", True, True, True),
    (6, 2, 5, -3, 0.25, "6", "6", "3", False, True, None),
]


def pairs() -> list[str]:
    """Return every two operators in one expression without brackets."""
    found = [f"{first} {second} a + b" for first, second in product(PREFIXES, PREFIXES)]
    for prefix, binary in product(PREFIXES, BINARY):
        found += [f"{prefix} a {binary} b", f"a {binary} {prefix} b", f"a {binary} {prefix} b + c"]
        found += [f"a {binary} {prefix} b {binary} c"]
    found += [f"{prefix} a {postfix}" for prefix, postfix in product(PREFIXES, POSTFIXES)]
    found += [f"a {first} b {second} c" for first, second in product(BINARY, BINARY)]
    for binary, postfix in product(BINARY, POSTFIXES):
        found += [f"a {postfix} {binary} b", f"a {binary} b {postfix}"]
    return [*found, *(f"a {first} {second}" for first, second in product(POSTFIXES, POSTFIXES))]


def unknown_operators() -> list[str]:
    """Return expressions with every word that either parser knows, and with every operator of up to three signs."""
    with duckdb.connect() as connection:
        words = {
            word.upper() for (word,) in connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
        }
    words |= {word for word in CumulusSql.Tokenizer.KEYWORDS if word.replace(" ", "").isalpha()}
    signs = {"".join(chars) for length in (1, 2, 3) for chars in product(SIGNS, repeat=length)}
    # `//` in front is read as a name, which no column has.
    signs = {sign for sign in signs if "--" not in sign and "/*" not in sign}
    prefixes = [sign for sign in signs if not sign.startswith("//")]
    return [
        *(f"a {each} b {tail}" for each in sorted(words | signs) for tail in ("", "+ c")),
        *(f"a + b {each} c" for each in sorted(words | signs)),
        *(f"{each} a" for each in sorted({*words, *prefixes} - {"AS"})),
        *(f"a {each}" for each in sorted(words | signs)),
        *(f"a{each}b" for each in sorted(signs)),
    ]


def chain(seed: int) -> str:
    """Return a chain of three to six operators without brackets."""
    choose = random.Random(seed)
    parts: list[str] = []
    for _ in range(choose.randint(3, 5)):
        parts += choose.choices(PREFIXES, k=choose.choice((0, 0, 1, 2)))
        parts.append(choose.choice("abcpqrsu"))
        if choose.random() < 0.25:
            parts.append(choose.choice(POSTFIXES))
        parts.append(choose.choice(BINARY[:13] if choose.random() < 0.6 else BINARY))
    return " ".join([*parts, "a"])


def in_brackets(connection: duckdb.DuckDBPyConnection, expression: str) -> str | None:
    """Return `SELECT expression AS x FROM t` as DuckDB writes it back, None if DuckDB cannot read it."""
    query = f"SELECT {expression} AS x FROM t"
    (tree,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone() or ("",)
    if json.loads(tree)["error"]:
        return None
    (text,) = connection.execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchone() or ("",)
    return str(text)


def meaning(select: str) -> Any:
    """Return what Cumulus reads, without places and without how it is shown; None if it refuses."""
    try:
        # Quicker than the advice of an error.
        sqlglot.parse_one(select, read=CumulusSql)
    except ParseError:
        return None
    script = parse_script(f"CREATE VIEW v AS {select}")
    if script.errors:
        return None
    (view,) = script.statements
    assert isinstance(view, CreateView)
    assert isinstance(view.query, Select)
    return stripped(view.query.items[0].expr)


def stripped(node: Any) -> Any:
    """Return a tree as tuples; two ways to write one operation become the same."""
    if isinstance(node, tuple):
        return tuple(map(stripped, node))
    if not is_dataclass(node):
        return "like" if node == "like_escape" else node
    parts = tuple(stripped(getattr(node, each.name)) for each in fields(node) if each.name not in ("at", "shown"))
    match parts:
        case ("not", (("SqlCall", "not", (("SqlCall", "is_distinct", *_) as inner,), *_),), *_):
            return inner
    return (type(node).__name__, *parts)


def differences(expressions: list[str]) -> Iterator[str]:
    """Give the expressions of which DuckDB and Cumulus read different trees, or Cumulus alone reads one."""
    with duckdb.connect() as connection:
        for expression in expressions:
            found = meaning(f"SELECT {expression} AS x FROM t")
            if found is None:
                continue
            written = in_brackets(connection, expression)
            if written is None:
                # DuckDB 2.0.0 takes no @ behind an operator, 2.0.1 does.
                if " @ " not in expression:
                    yield f"{expression}: DuckDB refuses it"
            elif meaning(written) != found:
                yield f"{expression}: in DuckDB {written}"


@pytest.mark.parametrize("part", sampled(range(16), of=8))
def test_every_pair_binds_as_in_duckdb(part: int) -> None:
    expressions = pairs()[part::16]
    assert list(differences(expressions)) == []
    assert sum(meaning(f"SELECT {each} AS x FROM t") is not None for each in expressions) > len(expressions) // 4


@pytest.mark.parametrize("part", sampled(range(16), of=8))
def test_no_other_word_or_sign_is_an_operator(part: int) -> None:
    assert list(differences(unknown_operators()[part::16])) == []


@pytest.mark.law
@pytest.mark.parametrize("seed", range(examples(10)))
def test_chains_bind_as_in_duckdb(seed: int) -> None:
    assert list(differences([chain(200 * seed + each) for each in range(200)])) == []


def shapes() -> list[str]:
    """Return pairs of operators with gaps for columns."""
    found = [f"{{0}} {first} {{1}} {second} {{2}}" for first, second in product(BINARY, BINARY)]
    found += [f"{prefix} {{0}} {binary} {{1}}" for prefix, binary in product(PREFIXES, BINARY)]
    found += [f"{{0}} {binary} {prefix} {{1}} + {{2}}" for prefix, binary in product(PREFIXES, BINARY)]
    return found


def typed(connection: duckdb.DuckDBPyConnection, shape: str) -> str | None:
    """Return a shape over the first columns whose types DuckDB takes."""
    if meaning(f"SELECT {shape.format(*'abc')} AS x FROM t") is None:
        return None
    for names in product("asp", "buq", "cwr"):
        expression = shape.format(*names)
        try:
            connection.execute(f"EXPLAIN SELECT {expression} FROM t")
        except duckdb.Error:
            continue
        return expression
    return None


@pytest.mark.parametrize("part", sampled(range(24), of=12))
def test_values_of_pairs_are_duckdbs(part: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(ROWS[0]))})", ROWS)
        compared = 0
        for shape in shapes()[part::24]:
            expression = typed(connection, shape)
            if expression is None:
                continue
            select = f"SELECT id, {expression} AS x FROM t"
            try:
                expected = sorted(connection.execute(select).fetchall())
                warehouse = Warehouse(f"{TABLE}; CREATE VIEW v AS {select}", engine="interpreter")
            except (duckdb.Error, CumulusError):
                continue  # refused, or an error for one of the rows
            warehouse.insert("t", ROWS)
            found = sorted(warehouse.view("v").rows())
            assert [each for each, _ in found] == [each for each, _ in expected], expression
            assert all(map(same, (x for _, x in found), (x for _, x in expected))), (expression, found, expected)
            compared += 1
    assert compared > 20


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, floats to the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("~a + b", -10), ("10 - ~a + b", 20), ("@b - a", 3), ("@b - a & 1", 1), ("s ^@ u || 'b'", "trueb")],
)
def test_values_of_one_row(expression: str, value: object) -> None:
    warehouse = Warehouse(f"{TABLE}; CREATE VIEW v AS SELECT {expression} AS x FROM t")
    warehouse.insert("t", ROWS[:1])
    assert warehouse.view("v").rows() == [(value,)]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("a < b = p", "= cannot stand behind another comparison"),
        ("a = b <> c", "<> cannot stand behind another comparison"),
        ("s LIKE u LIKE w", "LIKE cannot stand behind another comparison"),
        ("s LIKE u NOT IN ('a')", "NOT cannot stand behind another comparison"),
        ("a BETWEEN b AND c BETWEEN b AND c", "BETWEEN cannot stand behind another comparison"),
        ("a IS DISTINCT FROM b IS DISTINCT FROM c", "cannot stand behind another comparison"),
        ("a*~b", "*~ without a space is one operator in DuckDB"),
        ("a|-b", "|- without a space is one operator in DuckDB"),
        ("! p", "Write NOT for a negation."),
        ("a !", "! is not supported"),
        ("s ! LIKE u", "! is not supported"),
        ("a <=> b", "not valid SQL"),
        ("- NOT p", "not valid SQL"),
    ],
)
def test_what_is_refused(expression: str, told: str) -> None:
    with pytest.raises(CumulusError) as caught:
        Warehouse(f"{TABLE}; CREATE VIEW v AS SELECT {expression} AS x FROM t")
    assert told in str(caught.value)
