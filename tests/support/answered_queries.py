"""Queries over base tables with what must become of each: which view answers in which way, or why none does."""

from __future__ import annotations

SCRIPT = """
CREATE TABLE o (id BIGINT, c VARCHAR, n INTEGER, big BIGINT, price DECIMAL(38,2), d DOUBLE, day DATE)
    WITH (keep = all);
CREATE TABLE r (c VARCHAR, region VARCHAR, "a ""b" INTEGER) WITH (keep = all);
CREATE VIEW v AS
    SELECT o.c, region, SUM(n) AS n, COUNT(*) AS k, COUNT(n) AS kn, MIN(price) AS lo, MAX(price) AS hi, SUM(d) AS d,
        COUNT(d) AS kd, AVG(n) AS mean, COUNT(DISTINCT n) AS different, SUM(big) AS big
    FROM o JOIN r ON o.c = r.c WHERE n > -5 AND price <> 7 GROUP BY o.c, region;
CREATE VIEW everything AS SELECT SUM(n) AS s, COUNT(*) AS k, AVG(d) AS mean, MAX(c) AS last FROM o;
CREATE VIEW bag AS SELECT c, n, day FROM o WHERE n > 0;
CREATE VIEW hidden AS SELECT c, SUM(price) AS s FROM o GROUP BY c HAVING SUM(price) > 2;
CREATE VIEW few AS SELECT c, SUM(n) AS s FROM o WHERE n < 100 GROUP BY c ORDER BY s LIMIT 2;
CREATE VIEW thirds AS SELECT n % 3 AS third, c, COUNT(*) AS k, MAX(d) AS hi FROM o WHERE d > 1 GROUP BY n % 3, c;
CREATE VIEW pairs AS
    SELECT x.region AS one, y.region AS two, COUNT(*) AS k, SUM(y."a ""b") AS s FROM r x JOIN r y ON x.c = y.c
    GROUP BY x.region, y.region;
CREATE VIEW outer_rows AS
    SELECT region, COUNT(*) AS k, COUNT(o.n) AS kn FROM r LEFT JOIN o ON o.c = r.c GROUP BY region;
CREATE VIEW floats AS SELECT d, COUNT(*) AS k FROM o WHERE big > 0 GROUP BY d;
CREATE VIEW "q ""v" AS SELECT "a ""b" AS "x "" y", COUNT(*) AS "k "" k" FROM r GROUP BY "a ""b";
CREATE VIEW known AS
    SELECT c, COUNT(*) AS k FROM o WHERE EXISTS (SELECT 1 FROM r WHERE r.c = o.c) GROUP BY c;
CREATE VIEW kinds AS SELECT DISTINCT region FROM r;
"""

JOIN = "FROM o JOIN r ON o.c = r.c WHERE n > -5 AND price <> 7"

EQUAL = [
    (f"SELECT o.c, region, SUM(n) AS s {JOIN} GROUP BY o.c, region", "v"),
    (
        "SELECT y.region AS w, SUM(x.n) s, x.c FROM r AS y, o AS x "
        "WHERE 7 <> x.price AND y.c = x.c AND -5 < x.n GROUP BY 1, 3",
        "v",
    ),
    (f"SELECT COUNT(DISTINCT n) + 1, AVG(n), region {JOIN} GROUP BY region, o.c", "v"),
    (f"SELECT AVG(d), o.c, region {JOIN} GROUP BY ALL", "v"),
    (
        f"SELECT o.c, region, MAX(price) - MIN(price) AS wide {JOIN} "
        "GROUP BY o.c, region HAVING COUNT(*) > 1 ORDER BY 3, 1, 2",
        "v",
    ),
    (f"SELECT o.c, SUM(n) AS s {JOIN} AND region = 'west' GROUP BY o.c, region", "v"),
    (f"SELECT SUM(n) AS c {JOIN} AND o.c IN ('a', 'b') GROUP BY o.c, region", "v"),
    (f"SELECT upper(o.c) AS u, region {JOIN} GROUP BY o.c, region", "v"),
    ("SELECT SUM(n), COUNT(*) FROM o", "everything"),
    ("SELECT COUNT(*) * 2 AS twice, AVG(o.d), MAX(c) FROM o", "everything"),
    ("SELECT SUM(n) FROM o HAVING COUNT(*) > 3", "everything"),
    ("SELECT c, SUM(price) AS total FROM o GROUP BY c HAVING SUM(price) > 2 ORDER BY total DESC, c", "hidden"),
    ("SELECT c, n % 3 AS m, COUNT(*) FROM o WHERE 1 < d GROUP BY c, m", "thirds"),
    ("SELECT b.region, a.region, COUNT(*) FROM r a JOIN r b ON b.c = a.c GROUP BY a.region, b.region", "pairs"),
    ('SELECT b.region, a.region, SUM(a."a ""b") FROM r a JOIN r b ON b.c = a.c GROUP BY a.region, b.region', "pairs"),
    ("SELECT region, COUNT(n), COUNT(*) FROM r LEFT JOIN o ON r.c = o.c GROUP BY region", "outer_rows"),
    ("SELECT d, COUNT(*) FROM o WHERE big > 0 GROUP BY d", "floats"),
    ('SELECT "a ""b" AS "k "" k", COUNT(*) AS "x "" y" FROM r GROUP BY "a ""b"', 'q "v'),
    ("SELECT c, COUNT(*) FROM o x WHERE EXISTS (SELECT 1 FROM r y WHERE x.c = y.c) GROUP BY c", "known"),
    ("SELECT region FROM r GROUP BY region", "kinds"),
]
"""Queries whose groups are a view's rows."""

ROLLED_UP = [
    (f"SELECT region, SUM(n), COUNT(*), MIN(price), MAX(price), AVG(n) {JOIN} GROUP BY region", "v"),
    (f"SELECT SUM(n), COUNT(*), COUNT(n), SUM(big), AVG(d) {JOIN}", "v"),
    (
        f"SELECT SUM(n) / COUNT(*) AS mean, region {JOIN} AND o.c <> 'b' "
        "GROUP BY region ORDER BY mean NULLS FIRST, region",
        "v",
    ),
    (f"SELECT COUNT(*) {JOIN} AND o.c = 'nowhere'", "v"),
    (f"SELECT SUM(n), MAX(price) {JOIN} AND region IS NULL", "v"),
    (f"SELECT o.c, COUNT(*) {JOIN} AND (region = 'west' OR o.c = 'a') GROUP BY o.c HAVING SUM(n) > 0", "v"),
    (f"SELECT DISTINCT COUNT(*) AS k {JOIN} GROUP BY region ORDER BY k", "v"),
    (f"SELECT MIN(DISTINCT price) {JOIN}", "v"),
    (f"SELECT o.c || '!' AS e, COUNT(*) {JOIN} GROUP BY o.c", "v"),
    ("SELECT n % 3, COUNT(*) FROM o WHERE d > 1 AND n % 3 = 1 GROUP BY n % 3", "thirds"),
    ("SELECT c, COUNT(*), MAX(d) FROM o WHERE d > 1 GROUP BY c", "thirds"),
    ("SELECT COUNT(*) FROM o WHERE d > 1 AND c IS NOT NULL", "thirds"),
    ("SELECT b.region, COUNT(*) FROM r a JOIN r b ON b.c = a.c GROUP BY b.region", "pairs"),
    ('SELECT b.region, SUM(a."a ""b") FROM r a JOIN r b ON b.c = a.c GROUP BY b.region', "pairs"),
    ('SELECT b.region, SUM(b."a ""b") FROM r a JOIN r b ON b.c = a.c GROUP BY b.region', "pairs"),
    ("SELECT COUNT(*) FROM o WHERE big > 0 AND d > 2", "floats"),
    ("SELECT c, n FROM o WHERE n > 0", "bag"),
    ("SELECT n - 1 AS m, upper(c) FROM o WHERE n > 0 AND c <> 'a' ORDER BY 1, 2", "bag"),
    ("SELECT c, COUNT(*), SUM(n), AVG(n), COUNT(DISTINCT n), MAX(day) FROM o WHERE 0 < n GROUP BY c", "bag"),
    ("SELECT DISTINCT c FROM o WHERE n > 0", "bag"),
    ("SELECT COUNT(*) FROM o WHERE n > 0", "bag"),
    ("SELECT year(day) AS y, SUM(n) FROM o WHERE n > 0 GROUP BY y", "bag"),
]
"""Queries that put groups of a view together, or read its rows."""

NOT_ANSWERED = [
    (f"SELECT price, SUM(n) {JOIN} GROUP BY price", "no column for o.price, which the query groups by"),
    (f"SELECT SUM(n) {JOIN} AND big = 3", "no column for o.big, which the query reads"),
    (f"SELECT MAX(d) {JOIN} GROUP BY o.c, region", "no column that gives max"),
    (f"SELECT region, COUNT(DISTINCT n) {JOIN} GROUP BY region", "does not follow"),
    (f"SELECT region, STDDEV(n) {JOIN} GROUP BY region", "does not follow"),
    (f"SELECT region, SUM(n + 0.5) {JOIN} GROUP BY region", "no column that gives"),
    (f"SELECT region, SUM(n) FILTER (WHERE n > 2) {JOIN} GROUP BY region", "no column that gives"),
    (f"SELECT region, COUNT(price) + COUNT(big) {JOIN} GROUP BY region", "no column that gives count"),
    ("SELECT region, SUM(n) FROM o JOIN r ON o.c = r.c WHERE n > -5 GROUP BY region", ""),
    ("SELECT region, SUM(n) FROM o JOIN r ON o.c = r.c WHERE n > -4 AND price <> 7 GROUP BY region", ""),
    ("SELECT region, SUM(n) FROM o JOIN r ON o.c = r.c WHERE n >= -5 AND price <> 7 GROUP BY region", ""),
    ("SELECT region, SUM(n) FROM o LEFT JOIN r ON o.c = r.c WHERE n > -5 AND price <> 7 GROUP BY region", ""),
    ("SELECT region, SUM(n) FROM o, r WHERE n > -5 AND price <> 7 GROUP BY region", ""),
    ("SELECT region, COUNT(*) FROM r JOIN o ON o.c = r.c GROUP BY region", ""),
    ("SELECT region, COUNT(*) FROM o LEFT JOIN r ON o.c = r.c GROUP BY region", ""),
    ("SELECT COUNT(n) FROM o", "no column that gives count(o.n)"),
    ("SELECT SUM(CAST(n AS BIGINT) * 2) FROM o", "no column that gives"),
    ("SELECT AVG(n) FROM o", "no column that gives"),
    ("SELECT MIN(c) FROM o", "no column that gives"),
    ("SELECT c, SUM(price) FROM o GROUP BY c", "HAVING"),
    ("SELECT c, SUM(price) FROM o GROUP BY c HAVING SUM(price) > 3", "HAVING"),
    ("SELECT c, SUM(price) FROM o WHERE c = 'a' GROUP BY c HAVING SUM(price) > 2", "HAVING"),
    ("SELECT SUM(price) FROM o HAVING SUM(price) > 2", ""),
    ("SELECT c, SUM(n) AS s FROM o WHERE n < 100 GROUP BY c", "LIMIT"),
    ("SELECT c, SUM(n) AS s FROM o WHERE n < 100 GROUP BY c ORDER BY s LIMIT 2", "LIMIT"),
    ('SELECT b.region, a.region, SUM(a."a ""b" + b."a ""b") FROM r a JOIN r b ON b.c = a.c GROUP BY ALL', ""),
    ("SELECT b.region, COUNT(*) FROM r a JOIN r b ON b.region = a.region GROUP BY b.region", ""),
    ("SELECT 1 / d, COUNT(*) FROM o WHERE big > 0 GROUP BY d", "0.0 and -0.0"),
    ("SELECT c, price FROM o WHERE n > 0", "no column for o.price"),
    ("SELECT c, SUM(n) FROM o GROUP BY ROLLUP (c)", "several ways"),
    ("SELECT * FROM o", "name their columns"),
    ("SELECT c FROM o WHERE n > 0 UNION ALL SELECT c FROM o", "single SELECT"),
    ("WITH x AS (SELECT c FROM o) SELECT c FROM x", "WITH"),
    ("SELECT c FROM (SELECT c FROM o WHERE n > 0)", "FROM"),
    ("SELECT c, random() FROM o WHERE n > 0", "random"),
    ("SELECT c, now() FROM o WHERE n > 0", "now"),
    ("SELECT c, age(day) FROM o WHERE n > 0", "age"),
    ("SELECT c, current_date FROM o WHERE n > 0", "current_date"),
    ("SELECT c FROM o WHERE n > 0 AND n = $1", "parameters"),
    ("SELECT c, SUM(n) OVER () FROM o WHERE n > 0", "window"),
    ("SELECT c FROM o WHERE n > 0 QUALIFY row_number() OVER () = 1", ""),
    ("SELECT c FROM nowhere", "no query over the base tables"),
    ("SELECT s FROM everything", "no query over the base tables"),
    ("SELECT c FROM o; DROP TABLE o", "single SELECT"),
    ("DROP TABLE o", "single SELECT"),
    ("SELECT o.c AS region, region AS c, COUNT(*) FROM o JOIN r ON o.c = r.c GROUP BY region, o.c", "alias"),
    ("SELECT c, COUNT(*) FROM o WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.c = o.c) GROUP BY c", ""),
    ("SELECT COUNT(*) FROM o WHERE d > 1 GROUP BY 'x'", "constant"),
    ("SELECT first(c) FROM o", ""),
    ("", ""),
    ("SELECT c FROM main.o WHERE n > 0", "schema"),
    ("SELECT region FROM r", ""),
    ("SELECT DISTINCT ON (c) c, n FROM o WHERE n > 0", "DISTINCT ON"),
    ("SELECT c FROM o WHERE n > 0 LIMIT (SELECT COUNT(*) FROM r)", "sub-query outside of WHERE"),
]
"""Near misses and worse, with a part of the reason."""
