-- What was left of a removed row's keys was looked at where two sums share a loop: a division by 0 that nobody asked for.
CREATE TABLE t (a INTEGER);
CREATE TABLE s (x INTEGER, y INTEGER);
CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(t.a * s.y) AS total FROM t JOIN s ON t.a // s.x > 1;
CREATE VIEW squares AS SELECT COUNT(*) AS n, SUM(t.a) AS total FROM t JOIN (SELECT CAST(x AS HUGEINT) AS h FROM s) q ON q.h * q.h > t.a;
-- events
+s (3, 1)
+s (7, 1)
+s (NULL, 2)
-s (7, 1)
-s (NULL, 2)
+t (9)
+s (2, 5)
+t (NULL)
