-- Where a condition on a running sum holds for 0, it holds at NULL, which an interval left out: of a nullable column in order.
CREATE TABLE t0 (i INTEGER, e DATE, k INTEGER);
CREATE VIEW v0 AS SELECT MIN(q1.k) AS x3 FROM t0 JOIN t0 q1 ON TRUE FULL JOIN t0 q2 ON t0.k >= q2.i GROUP BY t0.e;
CREATE VIEW few AS SELECT e, COUNT(*) AS n, SUM(i) AS s FROM t0 WHERE (SELECT COUNT(*) FROM t0 q WHERE q.k > t0.k) < 2 GROUP BY e;
-- events
+t0 (4, DATE '2020-02-29', 1)
+t0 (-1, DATE '2020-02-29', NULL)
-t0 (4, DATE '2020-02-29', 1)
+t0 (5, DATE '2020-02-29', 2)
+t0 (6, NULL, NULL)
+t0 (7, DATE '2020-02-29', 3)
+t0 (8, DATE '2020-02-29', 4)
-t0 (-1, DATE '2020-02-29', NULL)
