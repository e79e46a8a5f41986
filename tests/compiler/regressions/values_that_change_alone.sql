-- A row of a sub-query gets another value and stays: what is made of its values inside others changes.
CREATE TABLE t1 (a INTEGER NOT NULL, c VARCHAR NOT NULL);
CREATE TABLE t3 (f DOUBLE, i INTEGER);
CREATE VIEW v AS SELECT 1.5 AS x6 FROM (SELECT q2.c AS x1, t1.c AS x2, 1 AS x5 FROM t1 q2, t1 GROUP BY q2.c, t1.c) v1
  WHERE v1.x2 IN (SELECT x1 FROM (SELECT t1.c AS x2, 1.5 AS x3, SUM(t1.a) AS x5 FROM t3 q4 JOIN t1 ON TRUE GROUP BY t1.c) q6
    WHERE q6.x2 = v1.x1 AND NOT EXISTS (SELECT x3 FROM (SELECT COUNT(*) AS x4 FROM t1) q7 WHERE q7.x4 = v1.x5 AND x2 BETWEEN 'a' AND 'xz')
    GROUP BY x1 HAVING AVG(x5) FILTER (WHERE x3 > 0.3812) < 2.7183);
CREATE VIEW w AS SELECT COUNT(*) AS z FROM (SELECT c AS k, 1 AS one FROM t1 GROUP BY c) v1
  WHERE v1.k IN (SELECT k FROM (SELECT c AS k, SUM(t1.a) AS x FROM t3, t1 GROUP BY c) q6
    WHERE NOT EXISTS (SELECT 1 FROM (SELECT COUNT(*) AS n FROM t1) q7 WHERE q7.n = v1.one + 5 AND q6.k > 'a') GROUP BY k HAVING AVG(x) < 3);
-- events
+t3 (2.0, 2)
+t1 (2, 'é%')
+t3 (0.0, 2)
-t3 (2.0, 2)
+t1 (1, 'é%')
begin
-t1 (2, 'é%')
+t1 (4, 'é%')
commit
begin
-t1 (4, 'é%')
+t1 (1, 'é%')
commit
