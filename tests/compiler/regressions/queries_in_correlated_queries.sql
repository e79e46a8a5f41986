-- What is computed inside a correlated query may depend on the row outside: it is no condition of the rows inside alone.
CREATE TABLE r (a INTEGER, b INTEGER, c INTEGER NOT NULL);
CREATE TABLE s (a INTEGER, d INTEGER);
CREATE VIEW v AS SELECT s.d, (SELECT COUNT(DISTINCT r.c) FROM r WHERE r.b IN (SELECT x.d FROM s x WHERE x.a = s.a)) AS n FROM s;
CREATE VIEW w AS SELECT b, (SELECT COUNT(*) FROM (SELECT a FROM s WHERE s.d = r.b GROUP BY ROLLUP (a)) q) AS m FROM r;
CREATE VIEW x AS SELECT b, (SELECT COUNT(*) FROM (SELECT s.a, x.a FROM s JOIN r x ON s.a = x.a WHERE s.d = r.b
  GROUP BY CUBE (s.a, x.a)) q) AS m FROM r;
CREATE VIEW y AS SELECT 1 AS one FROM (SELECT r.a AS z, 1.5e0 AS x5 FROM r GROUP BY r.a) q1
  WHERE q1.z NOT IN (SELECT DISTINCT 1 FROM s q2 WHERE q2.d >= q1.x5);
-- events
+r (1, 2, 3)
+s (1, 2)
+s (2, 1)
+r (2, 2, 4)
+r (NULL, 1, 4)
+s (2, 2)
-r (1, 2, 3)
-s (1, 2)
