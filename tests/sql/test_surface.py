"""Scalar expressions as people write them, from SQL text to rows: values, types and column names as DuckDB has them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pytest

import cumulus
from cumulus.errors import SqlError

TABLE = """CREATE TABLE r (
  id INT NOT NULL, a INT, b INT, big BIGINT, m DECIMAL(9,2), x DOUBLE, s VARCHAR, t VARCHAR, d DATE, ts TIMESTAMP,
  f BOOLEAN
)"""
D, T = dt.date, dt.datetime
ROWS: list[tuple[Any, ...]] = [
    (1, 1, 2, 10, Decimal("1.25"), 0.5, "hello", "l", D(2020, 2, 29), T(2020, 2, 29, 10, 11, 12, 345678), True),
    (2, 2, 2, -3, Decimal("-1.25"), -2.75, "a,b,,c", ",", D(1999, 12, 31), T(1969, 12, 31, 23, 59, 59, 999999), False),
    (3, None, 3, 0, None, None, "", "", None, None, None),
    (4, 7, None, None, Decimal("0.00"), 1e10, None, "x", D(2021, 1, 31), T(2021, 1, 31), True),
    (5, None, None, 7, Decimal("99.99"), 3.0, "Straße 7", None, D(2024, 3, 31), T(2024, 3, 31, 12), False),
    (6, -5, -5, 1 << 40, Decimal("-0.05"), 0.25, "  pad ", " ", D(2023, 5, 1), T(2023, 5, 1, 0, 0, 1), None),
    (7, 12, 18, 255, Decimal("10.50"), 2.5, "12", "2", D(2020, 12, 31), T(2020, 12, 31, 23), True),
]

EXPRESSIONS = """
(a, b) = (2, 2)
(a, b) <> (2, 2)
(a, b) = (b, a)
(a, b) IN ((1, 2), (2, 2), (7, NULL))
(a, b) NOT IN ((1, 2), (2, 2))
(a, b) < (2, 2)
(a, b) <= (2, 2)
(a, m) > (b, x)
(a, s) >= (7, 'x')
NOT (a, b) < (2, 2)
(a, b) IS NOT DISTINCT FROM (NULL, 3)
row(a, b) = row(1, 2)
a IS TRUE
a IS NOT TRUE
f IS FALSE
f IS NOT FALSE
f IS UNKNOWN
(a = b) IS NOT UNKNOWN
a = b IS TRUE
a IS DISTINCT FROM b
a IS NOT DISTINCT FROM b
a BETWEEN 1 AND b
s ~ 'l+'
s !~ '[0-9]'
s SIMILAR TO '[a-z]*'
s NOT SIMILAR TO '.*l.*'
s ^@ t
s LIKE '%l%'
s NOT ILIKE '%L%'
a & b
a | b
xor(a, b)
~a
@a
a % b
a ** 2
a ^ 2
if(f, a, b)
if(f, a, 2.5)
ifnull(a, b)
nullif(a, b)
coalesce(a, b, 0)
greatest(a, b, big)
least(a, m)
TRY_CAST(s AS INT)
TRY_CAST('no number' AS INT)
TRY(CAST(s AS DOUBLE))
CASE WHEN TRY_CAST(s AS INT) > 5 THEN 'big' ELSE 'none' END
regexp_matches(s, 'l')
regexp_matches(s, t)
regexp_matches(s, 'L', 'i')
regexp_full_match(s, '[a-z]*')
regexp_extract(s, '([a-z])([a-z])', 2)
regexp_replace(s, '[aeiou]', '<\\0>', 'g')
regexp_escape(s)
split_part(s, ',', 2)
split_part(s, t, -1)
lpad(s, 6, '*')
rpad(s, 3, '*')
left(s, 2)
right(s, -1)
repeat(t, 3)
reverse(t)
strpos(s, t)
instr(s, t)
position(t IN s)
starts_with(s, 'a')
prefix(s, t)
ends_with(s, 'o')
suffix(s, t)
contains(s, t)
trim(s)
trim(BOTH 'h' FROM s)
trim(LEADING FROM s)
ltrim(s, ' h')
replace(s, t, '_')
translate(s, 'lo', 'x')
overlay(s PLACING 'XY' FROM 2)
overlay(s PLACING 'XY' FROM 2 FOR 4)
overlay(s, 'XY', 1, 0)
substring(s FROM 2 FOR 2)
substring(s FROM 2)
substr(s, -2)
chr(a + 70)
ascii(s)
ord(s)
unicode(s)
md5(s)
sha1(t)
sha256(t)
concat(a, s, NULL, d)
concat_ws('-', a, s, d)
id || s || t
e'x\\ny'
len(s)
char_length(s)
character_length(s)
strlen(s)
bit_length(s)
lcase(s)
ucase(s)
hex(s)
to_hex(a)
bin(big)
levenshtein(s, t)
trunc(x)
trunc(m)
trunc(m, 1)
trunc(x, 1)
round(m, 1)
round(x, 1)
gcd(a, b)
lcm(a, b)
greatest_common_divisor(a, 6)
sign(x)
pow(x, 2)
power(a, 2)
sqrt(abs(x))
cbrt(x)
exp(a)
ln(abs(big) + 1)
log(abs(big) + 1)
log(2, abs(big) + 1)
log2(abs(big) + 1)
log10(abs(big) + 1)
sin(x)
cos(x)
tan(x)
cot(a)
asin(x / 1e11)
acos(x / 1e11)
atan(x)
atan2(x, a)
degrees(x)
radians(x)
pi() * a
even(x)
ceil(m)
ceiling(x)
floor(x)
isnan(x)
isinf(x)
isfinite(x)
fdiv(big, 4)
fmod(big, 4)
add(a, b)
multiply(a, b)
subtract(a, b)
divide(big, 4)
mod(big, 4)
year(d)
month(ts)
dayofmonth(d)
weekday(d)
weekofyear(d)
decade(d)
century(d)
millennium(d)
isoyear(d)
yearweek(d)
millisecond(ts)
microsecond(ts)
date_part('year', d)
date_part('dow', ts)
date_part('decade', d)
date_part('epoch', ts)
datepart('month', d)
EXTRACT(dow FROM d)
EXTRACT(epoch FROM ts)
EXTRACT(milliseconds FROM ts)
epoch(d)
epoch_ms(ts)
epoch_us(ts)
epoch_ns(d)
epoch_ms(big)
dayname(d)
monthname(ts)
last_day(d)
days_in_month(d)
make_date(2020, 1 + id % 12, 1)
make_timestamp(2020, 1, 1, id, 2, 1.5)
strftime(d, '%d/%m/%Y')
date_trunc('month', ts)
datetrunc('week', d)
date_diff('month', d, ts)
datediff('day', d, ts)
date_sub('month', d, ts)
datesub('day', ts, d)
date_add(d, INTERVAL 1 MONTH)
date_add(d, 5)
age(ts, d)
time_bucket(INTERVAL 7 DAYS, d)
time_bucket(INTERVAL '15 minutes', ts)
d + INTERVAL (id) DAY
d + INTERVAL (id + 1) MONTHS
d + to_days(id)
ts + to_hours(a)
d - INTERVAL 1 YEAR
d + 1
d - DATE '2020-01-01'
julian(d)
date(ts)
julian(ts)
""".strip().splitlines()

OTHERWISE_NAMED = ("INTERVAL", "1e11", "a ^ 2", "pi()", "milliseconds")
"""Literals, and what DuckDB spells out or in capitals; an alias names a column as one likes."""


@pytest.fixture(scope="module")
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        connection.executemany(f"INSERT INTO r VALUES ({', '.join('?' * len(ROWS[0]))})", ROWS)
        yield connection


def rounded(value: Any) -> Any:
    return float(f"{value:.12g}") if isinstance(value, float) else value


def selecting(expression: str) -> str:
    return f"SELECT id, {expression} FROM r"


@cache
def warehouse_from(first: int) -> cumulus.Warehouse:
    """A warehouse with the views of ten expressions: it takes a quarter of the time that ten warehouses take."""
    views = [f"CREATE VIEW v{at % 10} AS {selecting(EXPRESSIONS[at])}" for at in range(len(EXPRESSIONS))]
    warehouse = cumulus.Warehouse(";\n".join([TABLE, *views[first : first + 10]]))
    warehouse.insert("r", ROWS)
    assert cumulus.m3.parse(warehouse.m3) == warehouse.program
    return warehouse


@pytest.mark.xdist_group("surface")  # one worker has the warehouses
@pytest.mark.parametrize("at", range(len(EXPRESSIONS)), ids=EXPRESSIONS.__getitem__)
def test_values_types_and_names_are_duckdbs(duck: Any, at: int) -> None:
    expression = EXPRESSIONS[at]
    theirs = duck.sql(selecting(expression)).to_arrow_table()
    mine = warehouse_from(at - at % 10).view(f"v{at % 10}").arrow()
    assert mine.schema.types == theirs.schema.types
    if not any(each in expression for each in OTHERWISE_NAMED):
        assert mine.schema.names == theirs.schema.names

    def counted(table: Any) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(map(rounded, row)) for row in zip(*table.to_pydict().values(), strict=True))

    assert counted(mine) == counted(theirs)


# A constant is no key of a map.
@pytest.mark.parametrize("expression", [each for each in EXPRESSIONS if not each.startswith(("e'", "TRY_CAST('"))])
def test_a_map_says_the_same_in_sql(duck: Any, expression: str) -> None:
    query = f"SELECT {expression} AS k, COUNT(*) AS n FROM r GROUP BY {expression}"
    program = cumulus.compile(f"{TABLE};\nCREATE VIEW v AS {query}", keep="none")

    def counted(sql: str) -> Counter[tuple[str, int]]:
        return Counter((repr(key), int(count)) for key, count in duck.sql(sql).fetchall())

    assert counted(program.maps[0].sql) == counted(query)


GROUPED = (
    "SELECT regexp_extract(s, '[a-z]') AS k, COUNT(*) AS n, SUM(TRY_CAST(s AS INT)) AS x FROM r GROUP BY 1",
    "SELECT dayname(d) AS k, SUM(trunc(m)) AS x, AVG(log2(abs(big) + 1)) AS y FROM r GROUP BY dayname(d)",
    "SELECT COUNT(*) AS n FROM r WHERE TRY_CAST(s AS INT) > 5 OR TRY(1 // (a - 1)) = 0",
    "SELECT COUNT(*) AS n, SUM(TRY(big // (a - 1))) AS x FROM r",
    "SELECT a & 3 AS k, COUNT(*) AS n FROM r WHERE (a, b) IN ((1, 2), (2, 2), (-5, -5)) GROUP BY a & 3",
    "SELECT p.id, q.id AS other FROM r p JOIN r q ON (p.a, p.b) = (q.b, q.a) AND p.s ~ q.t",
    "SELECT f IS TRUE AS k, SUM(CASE WHEN s SIMILAR TO '[a-z]+' THEN m END) AS x FROM r GROUP BY f IS TRUE",
)


@pytest.mark.parametrize("query", GROUPED)
def test_aggregates_over_them_are_kept(duck: Any, query: str) -> None:
    warehouse = cumulus.Warehouse(f"{TABLE};\nCREATE VIEW v AS {query}")
    extra = [(row[0] + 100, *row[1:]) for row in ROWS]
    warehouse.insert("r", ROWS + extra)
    warehouse.delete("r", extra[::-1])

    def rounded_rows(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(map(rounded, row)) for row in rows)

    assert rounded_rows(warehouse.view("v").rows()) == rounded_rows(duck.sql(query).fetchall())


CONDITIONS = [each for each in EXPRESSIONS if each.startswith(("(", "NOT", "a IS", "f IS", "s "))]


@pytest.mark.parametrize("expression", CONDITIONS)
def test_conditions_count_where_they_are_true(duck: Any, expression: str) -> None:
    for condition in (expression, f"NOT ({expression})"):
        query = f"SELECT COUNT(*) AS n FROM r WHERE {condition}"
        warehouse = cumulus.Warehouse(f"{TABLE};\nCREATE VIEW v AS {query}")
        warehouse.insert("r", ROWS)
        assert warehouse.view("v").rows() == duck.sql(query).fetchall(), condition


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("(a, b) = 1", "a row compares with a row"),
        ("(a, b) = (1, 2, 3)", "a row of 2 parts does not compare with one of 3"),
        ("(a, b) + (1, 2)", "rows are compared, nothing else"),
        ("(a, b) IN (1, 2)", "a row compares with a row"),
        ("a BETWEEN SYMMETRIC 1 AND 2", "SYMMETRIC"),
        ("now()", "now is not the same each time"),
        ("current_date", "current_date is not the same each time"),
        ("random()", "random is not the same each time"),
        ("initcap(s)", "there is no function initcap"),
        ("iff(f, 1, 2)", "there is no function iff"),
        ("eq(a, b)", "there is no function eq"),
        ("EXTRACT(fortnight FROM d)", "there is no date part 'FORTNIGHT'"),
        ("ifnull(a)", "ifnull takes 2 arguments, not 1"),
        ("split_part(s, ',')", "split_part takes"),
        ("regexp_matches(s, '(')", "the pattern is wrong"),
        ("regexp_matches('x', '(')", "the pattern is wrong"),
        ("log(1, 2, 3)", "log takes 1 to 2 arguments, not 3"),
    ],
)
def test_other_expressions_are_refused_in_a_readable_way(expression: str, told: str) -> None:
    with pytest.raises(SqlError, match=told.replace("(", r"\(").replace(")", r"\)")) as caught:
        cumulus.Warehouse(f"{TABLE};\nCREATE VIEW v AS SELECT id, {expression} FROM r").insert("r", ROWS)
    assert caught.value.line == 5
