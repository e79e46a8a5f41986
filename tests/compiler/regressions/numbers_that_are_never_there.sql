-- A sum that is always 0 stands beside keys that a query gives.
CREATE TABLE r (g INTEGER);
CREATE TABLE s (w INTEGER);
CREATE VIEW v AS SELECT SUM(g - r.g) AS x, (SELECT 1.5e0 FROM s q) AS y FROM r GROUP BY 2;
CREATE VIEW w AS SELECT 1 AS x FROM r q JOIN (SELECT COUNT(*) AS n FROM s) p ON q.g = p.n
  WHERE p.n = (SELECT o.n FROM (SELECT COUNT(*) AS n FROM s) o WHERE n IN (1, NULL));
CREATE VIEW y AS SELECT BOOL_OR(q.g > 1) AS x FROM r q NATURAL JOIN (SELECT g FROM r) p GROUP BY p.g
  HAVING p.g = (SELECT MAX(w) FROM s WHERE s.w >= p.g);
CREATE VIEW z AS SELECT COUNT(x) AS n FROM
  (SELECT SUM(DISTINCT g) AS x FROM r EXCEPT ALL SELECT DISTINCT CAST(NULL AS HUGEINT) AS y FROM s) q;
-- events
+r (1)
+s (1)
-r (1)
+r (1)
+r (2)
-s (1)
+s (2)
