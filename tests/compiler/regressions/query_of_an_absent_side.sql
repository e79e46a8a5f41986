-- A sub-query in the select list of one side of a FULL JOIN, where that side is absent.
CREATE TABLE t1 (a BIGINT, e DATE);
CREATE TABLE t2 (a BIGINT, c VARCHAR);
CREATE VIEW v AS WITH w4 AS (SELECT c AS x6, COUNT(*) AS x8 FROM t2 GROUP BY c), w5 AS (SELECT e AS x9, SUM(DISTINCT a) AS x12 FROM t1 GROUP BY e)
  SELECT q9.x14 AS x14, x9 AS x15 FROM w5 q6 FULL JOIN (SELECT x8 AS x13, (SELECT MAX(q8.x8) FROM w4 q8 WHERE q8.x8 <> w4.x8) AS x14 FROM t1 q7 LEFT JOIN w4 ON q7.a = w4.x8) q9 ON q6.x12 > q9.x13;
-- events
+t1 (2, DATE '2021-01-01')
+t2 (1, 'x')
+t2 (2, 'x')
+t2 (2, 'y')
+t1 (1, DATE '2021-01-01')
-t2 (1, 'x')
+t1 (NULL, NULL)
-t1 (2, DATE '2021-01-01')
