-- A key that is computed from rows of two tables, of which one has just come: it is known in the statement only.
CREATE TABLE r (a INTEGER, b INTEGER);
CREATE TABLE s (a INTEGER, d INTEGER);
CREATE VIEW v AS SELECT q.x, COUNT(*) AS n FROM s FULL JOIN (SELECT COALESCE(y.b, z.b) AS x FROM r y, r z) q ON s.a = q.x
  WHERE s.a IS NOT NULL GROUP BY q.x;
-- events
+r (1, 2)
+s (2, 1)
+r (1, NULL)
+s (1, 1)
-r (1, 2)
+r (3, 1)
-s (2, 1)
