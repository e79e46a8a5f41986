-- A query's row joined with itself on every column is the row.
CREATE TABLE r (a INTEGER, b INTEGER);
CREATE VIEW v AS SELECT COUNT(*) AS k FROM (SELECT a, COUNT(*) AS n FROM r GROUP BY a) q
  JOIN (SELECT a, COUNT(*) AS n FROM r GROUP BY a) w ON q.n = w.n AND q.a = w.a;
CREATE VIEW w AS SELECT s.a AS x, COUNT(*) AS n FROM (SELECT a, 3 AS t FROM r GROUP BY a) q, r s WHERE t = q.a GROUP BY s.a;
-- events
+r (1, 1)
+r (1, 2)
+r (3, 1)
-r (1, 1)
-r (1, 2)
