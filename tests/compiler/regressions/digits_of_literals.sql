-- The type of a number is that of its digits as they are written.
CREATE TABLE t (a INTEGER);
CREATE VIEW v AS SELECT 0.5 AS a, .5 AS b, -0.25 AS c, 00.5 AS d, 5. AS e, 1_0.5 AS f FROM t;
CREATE VIEW w AS SELECT q.x FROM (SELECT 0.5 AS x FROM t) q GROUP BY q.x;
-- events
+t (1)
-t (1)
