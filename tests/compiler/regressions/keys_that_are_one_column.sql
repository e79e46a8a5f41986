-- A column under two names, and a key that GROUP BY names twice: each is rolled up by itself.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE VIEW two_names AS SELECT q.a, q.x, GROUPING(q.a) AS g, SUM(b) AS s
  FROM (SELECT a, a AS x, b FROM t) q GROUP BY GROUPING SETS ((q.x), (q.a));
CREATE VIEW two_items AS SELECT a AS k, a AS z, a + 0 AS o, GROUPING(k) AS g, GROUPING(z) AS h, COUNT(*) AS n
  FROM t GROUP BY ROLLUP (k, z);
CREATE VIEW written_twice AS SELECT a, t.a AS x, GROUPING(a) AS g, GROUPING(t.a) AS h FROM t GROUP BY ROLLUP (a, t.a);
CREATE VIEW item_and_column AS SELECT a AS k, a, GROUPING(k) AS g, GROUPING(a) AS h FROM t GROUP BY ROLLUP (k, t.a);
CREATE VIEW of_an_item AS SELECT a + 1 AS k, k + 1 AS l, MAX(k) AS m FROM t GROUP BY ROLLUP (k, a + 1);
CREATE VIEW by_place AS SELECT a AS k, COUNT(*) AS n FROM t GROUP BY ROLLUP (1, 1, b) HAVING k > 0;
-- events
+t (1, 2)
+t (2, 5)
+t (NULL, 1)
begin
-t (1, 2)
+t (1, NULL)
commit
-t (2, 5)
