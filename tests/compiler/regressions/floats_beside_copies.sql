-- A sum of floats over rows that stand several times: what counts them is a sum too.
CREATE TABLE t3 (f DOUBLE);
CREATE TABLE t4 (d DECIMAL(5,1));
CREATE VIEW v AS SELECT COUNT(*) AS n FROM (SELECT COUNT(*) AS x12 FROM (SELECT q4.f AS f, TIMESTAMP '2021-01-01 12:30:00' AS x9 FROM t3 q4 INTERSECT ALL SELECT 1.5e0 AS x10, TIMESTAMP '2020-02-29 00:00:00' AS x11 FROM t4 q5) q6 GROUP BY q6.x9 HAVING SUM(q6.f) FILTER (WHERE q6.f > -1e0) < 1.5e0) q7;
CREATE VIEW w AS SELECT k, SUM(f) FILTER (WHERE f > 1) AS x FROM (SELECT f, 1 AS k FROM t3 INTERSECT ALL SELECT d, 1 FROM t4) q GROUP BY k;
-- events
+t3 (1.5)
+t4 (1.5)
+t4 (1.5)
+t3 (1.5)
+t3 (0.5)
+t4 (0.5)
-t3 (1.5)
-t4 (1.5)
-t4 (1.5)
