-- The name of a column that USING merges means the merged one, whatever a table further on calls its own.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE TABLE u (a INTEGER, d INTEGER);
CREATE VIEW before AS SELECT a, COUNT(*) AS n FROM t JOIN u USING (a), u q WHERE a > 1 GROUP BY a;
CREATE VIEW behind AS SELECT a, d FROM t q, t NATURAL JOIN u WHERE a > q.a;
CREATE VIEW joined AS SELECT a, w.d FROM t JOIN u USING (a) CROSS JOIN u q JOIN u w USING (a);
-- events
+t (1, 2)
+u (1, 5)
+u (2, 6)
+t (2, 7)
-u (1, 5)
