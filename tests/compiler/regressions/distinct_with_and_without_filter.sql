-- The different values of a column, of all rows and of some, are two sets.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE VIEW v AS SELECT SUM(DISTINCT b) FILTER (WHERE b IN (1, NULL)) AS x FROM t HAVING COUNT(DISTINCT b) = 1;
CREATE VIEW w AS SELECT a, COUNT(DISTINCT b) AS n, COUNT(DISTINCT b) FILTER (WHERE b > 1) AS m, AVG(DISTINCT b) AS x FROM t GROUP BY a;
-- events
+t (1, 1)
+t (1, 2)
+t (1, 2)
+t (2, 2)
-t (1, 1)
-t (1, 2)
