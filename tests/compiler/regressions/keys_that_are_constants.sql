-- A constant key of grouping sets is a key: NULL where it is rolled up, and no group over no rows.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE VIEW of_a_query AS SELECT q.x, COUNT(*) AS n FROM (SELECT 'y' AS x FROM t) q GROUP BY ROLLUP (q.x);
CREATE VIEW of_an_alias AS SELECT 1 AS k, 1 AS l, k + 1 AS m, a, GROUPING(k, a) AS g FROM t GROUP BY ROLLUP (k, a);
CREATE VIEW alone AS SELECT 'y' AS x, SUM(b) AS s FROM t GROUP BY GROUPING SETS (('y'));
CREATE VIEW written AS SELECT 'y' AS x, 'y' || 'z' AS z, SUM(length('y')) AS s, GROUPING('y') AS g
  FROM t GROUP BY CUBE ('y', a);
CREATE VIEW beside AS SELECT a, b > 0 AS p, EXISTS (SELECT 1 FROM t q WHERE q.a = t.a) AS e, 0 AS k
  FROM t GROUP BY ROLLUP (k, a, b);
CREATE VIEW part_of_another AS SELECT CASE WHEN a IS NULL THEN 'n' ELSE 'y' END AS x, 'y' AS y, COUNT(*) AS n
  FROM t GROUP BY ROLLUP (y, CASE WHEN a IS NULL THEN 'n' ELSE 'y' END);
-- events
+t (1, 2)
+t (2, 5)
-t (1, 2)
+t (NULL, NULL)
-t (2, 5)
-t (NULL, NULL)
