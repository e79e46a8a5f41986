-- A query that divides only where it has rows has a row over none, which the maps above it hold from the start.
CREATE TABLE t (a INTEGER);
CREATE TABLE u (b INTEGER);
CREATE VIEW counted AS SELECT a, (SELECT COUNT(*) FROM (SELECT AVG(b) AS m FROM u) q) AS n FROM t;
CREATE VIEW valued AS SELECT (SELECT 1 FROM (SELECT AVG(b) AS m FROM u) q) AS x FROM t;
-- events
+t (2)
+u (1)
-u (1)
+t (3)
