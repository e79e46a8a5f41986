"""What programs a simulated cluster is given: one of each kind that a cluster treats in its own way."""

from __future__ import annotations

from functools import cache

import cumulus.m3
from cumulus.compiler import compile_sql
from cumulus.m3.program import Program
from cumulus.scalars.function_modules import functions_in

FUNCTIONS = ("cumulus_lab.experiments.cluster_functions",)

SQL = {
    "joins": """
        CREATE TABLE customers (cid INTEGER, nation VARCHAR);
        CREATE TABLE orders (cid INTEGER, oid INTEGER, rate INTEGER);
        CREATE TABLE items (oid INTEGER, price INTEGER);
        CREATE VIEW v AS SELECT nation, SUM(rate * price) AS q, COUNT(*) AS n FROM customers, orders, items
        WHERE customers.cid = orders.cid AND orders.oid = items.oid GROUP BY nation;""",
    "self-join": """
        CREATE TABLE r (a INTEGER, b VARCHAR, x INTEGER);
        CREATE VIEW v AS SELECT r.b, SUM(r.x * s.x) AS q FROM r, r s WHERE r.a = s.a GROUP BY r.b;""",
    "one table three times": """
        CREATE TABLE r (a INTEGER, b INTEGER, x DECIMAL(6,2));
        CREATE VIEW v AS SELECT r.b, COUNT(*) AS n, SUM(t.x) AS q FROM r, r s, r t
        WHERE r.a = s.b AND s.a = t.b GROUP BY r.b;""",
    "rows of tables": """
        CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, c INTEGER);
        CREATE TABLE t (c INTEGER, x INTEGER);
        CREATE VIEW v WITH (order = 1) AS SELECT r.a, SUM(t.x) AS q, COUNT(*) AS n
        FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND r.a < t.x GROUP BY r.a;""",
    "NULL, texts, doubles": """
        CREATE TABLE r (a VARCHAR, d DOUBLE, day DATE); CREATE TABLE s (a VARCHAR, b VARCHAR, x DECIMAL(8,2));
        CREATE VIEW v AS SELECT s.b, day, SUM(d) AS d, AVG(d * x) AS q, COUNT(x) AS n
        FROM r, s WHERE r.a = s.a GROUP BY s.b, day;""",
    "ends": """
        CREATE TABLE s (a VARCHAR, b VARCHAR, x DECIMAL(8,2));
        CREATE VIEW w AS SELECT a, MIN(x) AS lo, MAX(x) AS hi FROM s WHERE b LIKE 't1%' GROUP BY a;""",
    "EXISTS": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.x, COUNT(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y > 2)
        GROUP BY r.x;
        CREATE VIEW w AS SELECT r.a, SUM(r.x * s.y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;""",
    "DISTINCT and outer join": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT a, COUNT(DISTINCT x) AS n FROM r GROUP BY a;
        CREATE VIEW w AS SELECT r.x, SUM(s.y) AS q, COUNT(*) AS n FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.x;""",
    "nested": """
        CREATE TABLE r (a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE x > (SELECT AVG(x) FROM r);""",
    "keys": """
        CREATE TABLE p (a INTEGER PRIMARY KEY, b VARCHAR);
        CREATE TABLE c (id INTEGER PRIMARY KEY, a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT b, SUM(x) AS q, COUNT(*) AS n FROM p, c WHERE p.a = c.a GROUP BY b;""",
    "references": """
        CREATE TABLE p (a INTEGER PRIMARY KEY, b VARCHAR);
        CREATE TABLE c (id INTEGER PRIMARY KEY, a INTEGER REFERENCES p(a), x INTEGER);
        CREATE VIEW v AS SELECT b, SUM(x) AS q, COUNT(*) AS n FROM p, c WHERE p.a = c.a GROUP BY b;""",
    "kept rows, spread and gated": """
        CREATE TABLE r (a INTEGER, x INTEGER) WITH (keep = all);
        CREATE TABLE c (id INTEGER PRIMARY KEY, a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(r.x * c.x) AS q, COUNT(*) AS n FROM r, c WHERE r.a = c.a GROUP BY r.a;
        CREATE VIEW w AS SELECT r.a, COUNT(DISTINCT r.x) AS n FROM r, c WHERE r.a = c.a GROUP BY r.a;
        CREATE VIEW u AS SELECT a, SUM(x) AS q FROM r GROUP BY a;""",
    "errors": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(10 // y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;
        CREATE VIEW w AS SELECT r.a, SUM(x) AS q FROM r GROUP BY r.a;""",
    "chain of four": """
        CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, c INTEGER);
        CREATE TABLE t (c INTEGER, d INTEGER); CREATE TABLE u (d INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(u.x) AS q FROM r, s, t, u
        WHERE r.b = s.b AND s.c = t.c AND t.d = u.d GROUP BY r.a;""",
    "conditions": """
        CREATE TABLE r (a INTEGER, t VARCHAR, day DATE, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(CASE WHEN t LIKE 't1%' THEN x ELSE y END) AS q, COUNT(*) AS n FROM r, s
        WHERE r.a = s.a AND day >= DATE '2024-01-02' AND (x < y OR t IN ('t2', 't3')) GROUP BY r.a;""",
    "no keys": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (b INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT SUM(x * y) AS q, COUNT(*) AS n FROM r, s WHERE r.a < s.b;
        CREATE VIEW w AS SELECT COUNT(*) AS n, AVG(x) AS m FROM r;""",
    "HAVING and order": """
        CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT a, SUM(x) AS q FROM r, s WHERE r.b = s.b GROUP BY a HAVING COUNT(*) > 1;
        CREATE VIEW w AS SELECT a, s.b, SUM(x) AS q FROM r, s WHERE r.b = s.b GROUP BY a, s.b
        ORDER BY q DESC, a, b LIMIT 3;""",
    "ranges": """
        CREATE TABLE bids (price INTEGER, volume INTEGER);
        CREATE VIEW vwap AS SELECT SUM(price * volume) AS q FROM bids WHERE 0.25 * (SELECT SUM(b.volume) FROM bids b)
        > (SELECT SUM(c.volume) FROM bids c WHERE c.price > bids.price);""",
    "evaluated again": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v WITH (order = 0) AS SELECT r.a, SUM(x * y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;
        CREATE VIEW w AS SELECT a, SUM(x) AS q FROM r GROUP BY a;""",
    "ends inside": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, COUNT(*) AS n FROM r WHERE x > (SELECT MIN(y) FROM s WHERE s.a = r.a)
        GROUP BY r.a;""",
    "static table": """
        CREATE TABLE d (a INTEGER, t VARCHAR) WITH (static = true); CREATE TABLE r (a INTEGER, x INTEGER);
        CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT t, SUM(x * y) AS q, COUNT(*) AS n FROM d, r, s WHERE d.a = r.a AND r.a = s.a
        GROUP BY t;""",
    "wide numbers": """
        CREATE TABLE r (a INTEGER, x DECIMAL(30,4)); CREATE TABLE s (a INTEGER, y BIGINT);
        CREATE VIEW v AS SELECT r.a, SUM(x * y) AS q, MAX(x) AS hi FROM r, s WHERE r.a = s.a GROUP BY r.a;""",
    "STDDEV": """
        CREATE TABLE r (a INTEGER, d DOUBLE); CREATE TABLE s (a INTEGER, t VARCHAR);
        CREATE VIEW v AS SELECT t, STDDEV(d) AS sd FROM r, s WHERE r.a = s.a GROUP BY t;
        CREATE VIEW w AS SELECT t, SUM(s.a) AS q FROM r, s WHERE r.a = s.a GROUP BY t;""",
    "divisions and casts": """
        CREATE TABLE r (a INTEGER, t VARCHAR, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(x / 4 + y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;
        CREATE VIEW w AS SELECT a, SUM(CAST(SUBSTRING(t, 2, 1) AS INTEGER)) AS q FROM r GROUP BY a;""",
    "functions": """
        CREATE TABLE r (a INTEGER, x INTEGER); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(inverse(x) * y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;
        CREATE VIEW w AS SELECT r.a, SUM(x * y) AS q FROM r, s WHERE r.a = s.a GROUP BY r.a;""",
}
"""Name → SQL; each has something of its own: what is spread and what is gated, versions, keys, errors."""

EXTREMES = {
    "extremes as keys": """
        CREATE TABLE r (a BIGINT, h HUGEINT, f DOUBLE, t VARCHAR);
        CREATE TABLE s (a BIGINT, x DECIMAL(38,2), day DATE, y INTEGER);
        CREATE VIEW v AS SELECT r.a, h, f, t, COUNT(*) AS n, SUM(y) AS q FROM r, s WHERE r.a = s.a
        GROUP BY r.a, h, f, t;
        CREATE VIEW w AS SELECT x, day, COUNT(*) AS n, SUM(a) AS q FROM s GROUP BY x, day;
        CREATE VIEW u AS SELECT a, MIN(h) AS lo, MAX(h) AS hi FROM r GROUP BY a;""",
    "sums too large": """
        CREATE TABLE r (a INTEGER, h HUGEINT, x DECIMAL(38,2)); CREATE TABLE s (a INTEGER, y INTEGER);
        CREATE VIEW v AS SELECT r.a, SUM(h) AS q, COUNT(*) AS n FROM r GROUP BY r.a;
        CREATE VIEW w AS SELECT y, SUM(h) AS q, SUM(x) AS p FROM r, s WHERE r.a = s.a GROUP BY y;
        CREATE VIEW u AS SELECT r.a, SUM(y) AS q, COUNT(*) AS n FROM r, s WHERE r.a = s.a GROUP BY r.a;""",
}
"""Name → SQL with columns of each type of which some value is special to some engine."""

M3 = {
    "hand-written": """
        RELATION r(a INTEGER NOT NULL, x INTEGER NOT NULL); RELATION s(a INTEGER NOT NULL, y INTEGER NOT NULL);
        MAP q[a INTEGER](n BIGINT, s HUGEINT) COUNT n = SUM[a](r(a, x) * s(a, y)), SUM[a](r(a, x) * s(a, y) * x * y);
        MAP rs[a INTEGER](n BIGINT, s HUGEINT) COUNT n = SUM[a](r(a, x)), SUM[a](r(a, x) * x);
        MAP ss[a INTEGER](n BIGINT, s HUGEINT) COUNT n = SUM[a](s(a, y)), SUM[a](s(a, y) * y);
        VIEW v(a INTEGER, q HUGEINT) FROM q SELECT a, s;
        ON +r(a, x) { q[a].n += ss[a].n; q[a].s += ss[a].s * x; rs[a].n += 1; rs[a].s += x; }
        ON -r(a, x) { q[a].n += -ss[a].n; q[a].s += -ss[a].s * x; rs[a].n += -1; rs[a].s += -x; }
        ON +s(a, y) { q[a].n += rs[a].n; q[a].s += rs[a].s * y; ss[a].n += 1; ss[a].s += y; }
        ON -s(a, y) { q[a].n += -rs[a].n; q[a].s += -rs[a].s * y; ss[a].n += -1; ss[a].s += -y; }""",
}
"""Name → M3 that nobody has compiled."""

REFUSED = {
    "without definitions, and gated": """
        RELATION r(a INTEGER, x INTEGER); MAP q[a INTEGER](s HUGEINT); MAP p[a INTEGER](s HUGEINT);
        VIEW v(a INTEGER, q HUGEINT) FROM q SELECT a, s; ON +r(a, x) { q[a] += {p[a] > 2} * x; p[a] += x; }""",
    "gated, in a circle": """
        RELATION r(a INTEGER, x INTEGER); MAP q[a INTEGER](s HUGEINT); MAP p[a INTEGER](s HUGEINT);
        VIEW v(a INTEGER, q HUGEINT) FROM q SELECT a, s; ON +r(a, x) { q[a] += {p[a] > 2} * x; p[a] += q[a]; }""",
}
"""Name → M3 that no host of epochs takes."""

PROGRAMS = (*SQL, *M3)


@cache
def program_named(name: str) -> Program:
    """Return a program as a cluster runs it."""
    if name in (sql := SQL | EXTREMES):
        functions = functions_in(functions_of(name))
        return compile_sql(sql[name], rely=False, enforced=False, functions=functions or None)
    return cumulus.m3.read(M3[name] if name in M3 else REFUSED[name])


def functions_of(name: str) -> tuple[str, ...]:
    """Return the modules with the functions that a program calls."""
    return FUNCTIONS if name == "functions" else ()
