"""Each mistake that people make in a script: the place that the error names, what it says, and the way out."""

from __future__ import annotations

import logging

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import EXCERPT, SqlError
from cumulus.sql.syntax.dialect import CumulusSql

TABLES = """CREATE TABLE r (a INT NOT NULL, b INT, c VARCHAR, e DATE);
CREATE TABLE s (a INT NOT NULL, x SMALLINT);
"""


def select(text: str) -> str:
    return f"CREATE VIEW v AS SELECT {text}"


MISTAKES = [
    # a statement, the place, words that the message has
    # keywords
    ("CREATE VIEW v AS SELCT COUNT(*) FROM r", "3:18", "near 'SELCT'", "Did you mean SELECT?"),
    ("SELCT a FROM r", "3:1", "begins with SELCT", "Did you mean SELECT?"),
    ("CREAT VIEW v AS SELECT a FROM r", "3:1", "begins with CREAT", "Did you mean CREATE?"),
    ("CREATE VEIW v AS SELECT a FROM r", "3:8", "CREATE VEIW", "Did you mean VIEW?"),
    ("CREATE TABEL t (a INT)", "3:8", "CREATE TABEL", "Did you mean TABLE?"),
    ("CREATE STRICT VEIW v AS SELECT a FROM r", "3:15", "CREATE VEIW", "Did you mean VIEW?"),
    (select("a FORM r"), "3:27", "near 'FORM'", "Did you mean FROM?"),
    (select("a FROM r WEHRE a > 1"), "3:34", "near 'WEHRE'", "Did you mean WHERE?"),
    (select("a, SUM(b) FROM r GRUOP BY a"), "3:42", "near 'GRUOP'", "Did you mean GROUP?"),
    (select("a FROM r ORDR BY a"), "3:34", "near 'ORDR'", "Did you mean ORDER?"),
    (select("a FROM r JION s USING (a)"), "3:34", "near 'JION'", "Did you mean JOIN?"),
    (select("a FROM r UNOIN SELECT a FROM s"), "3:34", "near 'UNOIN'", "Did you mean UNION?"),
    (select("a FROM r GROUP a"), "3:34", "BY is missing behind GROUP", "GROUP BY"),
    ("CREATE TABLE t (a INT PRIMRY KEY)", "3:23", "near 'PRIMRY'", "Did you mean PRIMARY?"),
    # what is missing
    ("CREATE TABLE t (a INT)\nCREATE VIEW v AS SELECT a FROM t", "4:1", "a semicolon is missing before CREATE", ""),
    (select("a FROM r\nCREATE VIEW w AS SELECT b FROM r"), "4:1", "a semicolon is missing before CREATE", ""),
    (select("COUNT(* FROM r"), "3:30", "this bracket is not closed", ""),
    (select("COUNT(*)) FROM r"), "3:33", "this bracket closes nothing", ""),
    (select("a FROM r WHERE"), "3:34", "something is missing behind WHERE", ""),
    ("CREATE VIEW v", "3:13", "AS is missing behind v", "AS SELECT"),
    (select("a JOIN s USING (a)"), "3:32", "FROM is missing", "FROM t JOIN u"),
    ("CREATE VIEW v AS", "3:15", "missing behind AS", "AS SELECT"),
    (select("1e FROM r"), "3:25", "not a number: 1e", "digits"),
    ("CREATE VIEW v SELECT a FROM r", "3:13", "AS is missing behind v", "AS SELECT"),
    ("CREATE VIEW AS SELECT a FROM r", "3:8", "name of the view is missing", ""),
    ("CREATE VIEW v AS /* never closed SELECT a FROM r", "3:18", "this comment does not end", "*/"),
    (select('"a FROM r'), "3:25", "this quoted name does not end", ""),
    (select("$x$a FROM r"), "3:25", "dollar-quoted string does not end", ""),
    (select("'\ud83d' FROM r"), "3:26", "half a character", "Decode"),
    ("CREATE TABLE t ()", "3:14", "t has no columns", "types"),
    ("CREATE TABLE t", "3:14", "t has no columns", "types"),
    ("CREATE TABLE t (a)", "3:17", "column a has no type", ""),
    # names
    ("CREATE TABLE t (order INTEGER, select INTEGER)", "3:17", "order is a reserved word", 'quoted: "order"'),
    ("CREATE TABLE t (a INTEGER, select INTEGER)", "3:28", "select is a reserved word", 'quoted: "select"'),
    ("CREATE TABLE group (a INTEGER)", "3:14", "group is a reserved word", 'quoted: "group"'),
    (select("order FROM r"), "3:25", "order is a reserved word", 'quoted: "order"'),
    (select('a FROM r WHERE c = "x"'), "3:44", "no column x", "a string has single quotes"),
    (select("`a` FROM r"), "3:27", "backticks", 'quoted with "'),
    ("CREATE TABLE t (a INTEGR)", "3:19", "type INTEGR", "Did you mean INTEGER?"),
    ("CREATE TABLE t (a UUID)", "3:19", "type UUID", "VARCHAR"),
    ("CREATE TABLE t (a TIMESTAMPZ)", "3:19", "type TIMESTAMPZ", "Did you mean TIMESTAMPTZ?"),
    ("CREATE TABLE t (a XYZXYZ)", "3:19", "type XYZXYZ", "TIMESTAMP, TIMESTAMPTZ or INTERVAL"),
    ("CREATE TABLE t (\n  a INT,\n  b JSON\n)", "5:5", "type JSON", "VARCHAR"),
    ("CREATE TABLE t (a INTEGER[])", "3:19", "type INTEGER[]", "a table of their own"),
    ("CREATE TABLE t (a UBIGINT)", "3:19", "type UBIGINT", "HUGEINT"),
    ("CREATE TABLE t (a DECIMAL(50,2))", "3:19", "type DECIMAL(50,2)", "38 digits"),
    ("CREATE TABLE t (a DECIMAL(x,2))", "3:19", "type DECIMAL(x,2)", "38 digits"),
    (select("CAST(a AS INTEGR) FROM r"), "3:35", "type INTEGR", "Did you mean INTEGER?"),
    (select("a::UUID FROM r"), "3:28", "type UUID", "VARCHAR"),
    (select("lenght(c) FROM r"), "3:25", "no function lenght", "Did you mean length?"),
    (select("couNT_iff(b > 1) FROM r"), "3:25", "no function count_iff", "Did you mean count_if"),
    # aggregates and clauses that no view keeps
    (select("mediAN(a) FROM r"), "3:25", "mediAN does not compile", "aggregate them in query()"),
    (select("string_agg(c, ',') FROM r"), "3:25", "string_agg does not compile", "put them together in query()"),
    (select("list(a) FROM r"), "3:25", "list does not compile", "put them together in query()"),
    (select("a, max_by(c, b) FROM r GROUP BY a"), "3:28", "max_by does not compile", "SELECT MAX(i.x)"),
    (select("approx_count_distinct(a) FROM r"), "3:25", "approx_count_distinct", "COUNT(DISTINCT x)"),
    (select("quantile_cont(a, 0.5) FROM r"), "3:25", "quantile_cont does not compile", "query()"),
    (select("percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM r"), "3:25", "percentile_cont", "query()"),
    (select("row_number() FROM r"), "3:25", "row_number", "window function"),
    (select("[a] FROM r"), "3:26", "lists and structs", ""),
    (select("? FROM r"), "3:25", "a view has no parameters", "query()"),
    (select("a FROM r WHERE a = $1"), "3:44", "a view has no parameters", "query()"),
    ("CREATE VIEW v AS PIVOT r ON a USING sum(b)", "3:18", "PIVOT is not supported", "FILTER (WHERE"),
    ("CREATE VIEW v AS VALUES (1)", "3:26", "VALUES is not supported", "a table of their own"),
    # statements that declare nothing
    ("INSERT INTO r VALUES (1)", "3:1", "this is 'INSERT INTO r'", "insert()"),
    ("EXPLAIN SELECT a FROM r", "3:1", "this is 'EXPLAIN SELECT a'", "explain(view)"),
    ("EXPLAIN CREATE VIEW v AS SELECT a FROM r", "3:1", "this is 'EXPLAIN CREATE VIEW'", "explain(view)"),
    ("SELECT a FROM r", "3:1", "this is 'SELECT a FROM'", "CREATE VIEW name AS"),
    ("FROM r", "3:1", "this is 'FROM r'", "CREATE VIEW name AS"),
    ("COPY r FROM 'x'", "3:1", "this is 'COPY r FROM'", "--from"),
    ("BEGIN", "3:1", "this is 'BEGIN'", "transaction()"),
    ("CREATE INDEX i ON r (a)", "3:1", "this is 'CREATE INDEX i'", "Leave it out"),
    ("CREATE MACRO f(x) AS x", "3:1", "this is 'CREATE MACRO f'", "functions=[f]"),
    ("DROP TABLE r", "3:1", "this is 'DROP TABLE r'", "Only views"),
    ("hello", "3:1", "no statement begins with hello", "CREATE TABLE"),
]


@pytest.mark.parametrize(("text", "place", "told", "way_out"), MISTAKES, ids=[ascii(row[0])[:50] for row in MISTAKES])
def test_a_mistake_is_named_with_its_place_and_the_way_out(text: str, place: str, told: str, way_out: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_sql(TABLES + text, name="views.sql")
    message = str(caught.value)
    assert message.startswith(f"views.sql:{place}: "), message
    assert told in message, message
    assert way_out in caught.value.hint, message
    assert caught.value.hint
    assert not caught.value.others, message
    assert "sqlglot" not in message
    assert "Token" not in message
    message.encode()  # it can be printed


@pytest.mark.parametrize(
    "word", ["median", "mode", "first", "any_value", "corr", "histogram", "product", "arg_min_null"]
)
def test_an_aggregate_that_no_view_keeps_has_a_way_out_of_its_own(word: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_sql(TABLES + f"CREATE VIEW v AS SELECT {word}(a) FROM r")
    assert word in caught.value.message
    assert "docs/" not in caught.value.hint


def test_mean_is_the_average() -> None:
    mean = compile_sql(TABLES + select("mean(b) AS m FROM r"))
    assert str(mean) == str(compile_sql(TABLES + select("avg(b) AS m FROM r")))


SEVERAL = """CREATE TABLE orders (id INTEGER, amount DECIMAL(10,2));
CREATE TABLE people (id UUID);
CREATE VIEW a AS SELECT SUM(amont) AS s FROM orders;
CREATE VIEW b AS SELECT id FROM people;
CREATE VIEW c AS SELECT s FROM a;
CREATE VIEW d AS SELCT id FROM orders;
CREATE VIEW e AS SELECT id FROM nowhere
CREATE VIEW f AS SELECT id FROM orders;
CREATE VIEW g AS SELECT id FROM f;
"""


def test_the_errors_of_all_statements_are_told_and_what_follows_from_them_is_not() -> None:
    with pytest.raises(SqlError) as caught:
        compile_sql(SEVERAL, name="v.sql")
    told = str(caught.value)
    places = [paragraph.split(": ")[0] for paragraph in told.split("\n\n")]
    assert places == ["v.sql:2:25", "v.sql:3:29", "v.sql:6:18", "v.sql:7:33", "v.sql:8:1"]
    assert [error.line for error in caught.value.others] == [3, 6, 7, 8]
    assert caught.value.line == 2


def test_at_most_ten_errors_are_told() -> None:
    script = "CREATE TABLE r (a INT);" + "".join(f"\nCREATE VIEW v{n} AS SELECT x FROM r;" for n in range(14))
    with pytest.raises(SqlError) as caught:
        compile_sql(script)
    assert str(caught.value).count("no column x") == 10
    assert str(caught.value).endswith("and 4 more errors")
    assert len(caught.value.others) == 13
    with pytest.raises(SqlError, match=r"and 1 more error$"):
        compile_sql(script[: script.index("\nCREATE VIEW v11 ")])


def test_the_log_of_the_parser_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """It is the whole process's: another thread may read a statement with it at the same time."""
    log, was = logging.getLogger("sqlglot"), []
    with pytest.MonkeyPatch.context() as patch:
        tell = CumulusSql.Parser._warn_unsupported
        patch.setattr(CumulusSql.Parser, "_warn_unsupported", lambda self: (was.append(log.disabled), tell(self)))
        with pytest.raises(SqlError):
            compile_sql(TABLES + "CREATE TABLE t (a INT) SOMETHING odd")
    assert set(was) == {False}, "it gives up on the statement, and need not be told to be silent"
    assert not caplog.records


@pytest.mark.parametrize("before", [0, 30, 90, 400])
@pytest.mark.parametrize("after", [0, 60, 400])
def test_of_a_long_line_the_part_around_the_place_is_shown(before: int, after: int) -> None:
    line = f"CREATE VIEW v AS SELECT {'a + ' * (before // 4)}wrong{' + a' * (after // 4)} FROM r"
    with pytest.raises(SqlError) as caught:
        compile_sql(TABLES + line)
    _, quoted, caret, *_ = str(caught.value).split("\n")
    assert len(quoted) - 2 <= EXCERPT
    assert quoted[caret.index("^") :].startswith("wrong")
    assert caught.value.column == line.index("wrong") + 1
