-- The count of the outer query and that of the sub-query are one number, and what stands beside it reads it ahead.
CREATE TABLE r (a INTEGER, b INTEGER);
CREATE TABLE s (a INTEGER, c DOUBLE);
CREATE VIEW v AS SELECT SUM((SELECT COUNT(*) FROM r r2)) AS s FROM r;
CREATE VIEW w AS SELECT SUM((SELECT SUM(b) FROM r r2)) AS s, COUNT((SELECT SUM(b) FROM r r2)) AS n FROM r;
CREATE VIEW x AS SELECT AVG((SELECT SUM(b) FROM r r2)) AS m, MAX((SELECT SUM(b) FROM r r2)) AS t FROM r;
CREATE VIEW y AS SELECT a, SUM((SELECT COUNT(*) FROM r r2 WHERE r2.a = r.a)) AS s FROM r GROUP BY a;
CREATE VIEW z AS SELECT q.s * 2 AS s FROM (SELECT SUM((SELECT COUNT(*) FROM r r2)) AS s FROM r) q;
CREATE VIEW f AS SELECT SUM((SELECT SUM(c) FROM s s2)) AS s, SUM(c) AS c FROM s;
CREATE VIEW g AS SELECT SUM((SELECT SUM((SELECT COUNT(*) FROM r r3)) FROM r r2)) AS s FROM r;
CREATE VIEW p AS SELECT COUNT(*) AS n, SUM((SELECT COUNT(*) FROM s)) AS s FROM r;
CREATE VIEW q AS SELECT COUNT(*) AS n, SUM((SELECT COUNT(*) FROM r)) AS s FROM s;
CREATE VIEW c AS SELECT COUNT(*) AS n, SUM((SELECT COUNT(*) FROM r)) AS s FROM r JOIN s USING (a);
-- events
+r (1, 2)
+s (1, 0.5)
+r (1, 3)
+r (2, NULL)
+s (2, 0.25)
-r (1, 2)
+r (NULL, 7)
-s (1, 0.5)
+s (NULL, 4.0)
-r (1, 3)
-r (2, NULL)
-r (NULL, 7)
-s (2, 0.25)
-s (NULL, 4.0)
