"""Whatever is done to a script, it compiles or gets an error with a place and a way out: never a traceback."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.compiler.declarations import declarations
from cumulus.errors import SqlError
from cumulus.sql.syntax.parse import parse_script

SCRIPT = """CREATE TABLE r (a INT NOT NULL, b DECIMAL(10,2), c VARCHAR, PRIMARY KEY (a) RELY) WITH (keep = all);
CREATE OR REPLACE STRICT VIEW v (x, y) WITH (order = 1) AS
SELECT c AS "order", SUM(b * 2) FILTER (WHERE a BETWEEN 1 AND 3) FROM r JOIN r o USING (a) -- as; ever
WHERE c LIKE 'it''s' OR a IN (SELECT a FROM r) GROUP BY ALL HAVING COUNT(*) > 1 ORDER BY 1 DESC LIMIT 3;
CREATE VIEW IF NOT EXISTS w AS WITH q AS (FROM v) SELECT CASE WHEN x THEN y::DATE END FROM q UNION ALL VALUES (1);
DROP VIEW IF EXISTS v CASCADE
"""
WORDS = re.findall(r"\w+|\s+|[^\w\s]", SCRIPT)
OTHERS = st.sampled_from(
    [
        *("", "(", ")", ";", ",", "'", '"', "/*", "--", "$$", "?", "`", ".", "::", "[", "]", "\ud83d", "\x00", "1e"),
        *("AS", "SELCT", "CREATE", "VIEW", "TABLE", "order", "INTEGR", "median(", "OVER ()", "PIVOT", "END", "WITH"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), OTHERS), min_size=1, max_size=4), st.integers(0, 40))
def test_a_broken_script_gets_errors_with_places(changes: list[tuple[int, str]], begin: int) -> None:
    words = list(WORDS)
    for index, other in changes:
        words[index] = other
    text = "".join(words)
    try:
        declared = declarations(parse_script(text, begin=begin))
    except SqlError as problem:
        errors = [problem]
    else:
        errors = declared.errors
    for error in errors:
        assert error.line > 0
        assert error.column > 0
        str(SqlError.together([error])).encode()
