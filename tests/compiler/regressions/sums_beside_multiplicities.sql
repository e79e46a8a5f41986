-- The rows of EXCEPT ALL come so many times: their number says whether the group of a sum of DOUBLE is there.
CREATE TABLE s (a INTEGER, d INTEGER);
CREATE TABLE t (d INTEGER NOT NULL, e DOUBLE);
CREATE VIEW v AS SELECT q.b, SUM(q.e) FILTER (WHERE q.b <> q.x) AS s, SUM(q.e) AS t FROM
  (SELECT e, d AS b, d AS x FROM t EXCEPT ALL SELECT 1.5e0, d, d FROM s) q GROUP BY q.b;
CREATE VIEW w AS SELECT COUNT_IF(x > 0) AS n FROM (SELECT STDDEV_SAMP(d) AS x FROM t) q;
-- events
+t (1, 1.5e0)
+t (1, 1.5e0)
+s (1, 1)
+t (2, NULL)
-t (1, 1.5e0)
-s (1, 1)
-t (1, 1.5e0)
