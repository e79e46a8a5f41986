-- A sub-query in GROUP BY is bound when the branches of the join, each with what is known in it, are there already.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE TABLE u (a INTEGER NOT NULL, d INTEGER);
CREATE VIEW shown AS SELECT CASE WHEN t.b > (SELECT MAX(q.d) FROM u q WHERE q.a = u.a) THEN t.a ELSE 0 END AS x, COUNT(t.b) AS n
  FROM t RIGHT JOIN u ON t.a >= u.a
  GROUP BY CASE WHEN t.b > (SELECT MAX(q.d) FROM u q WHERE q.a = u.a) THEN t.a ELSE 0 END;
CREATE VIEW added AS SELECT t.a, u.d, SUM(t.b + (SELECT COUNT(*) FROM u q WHERE q.d = t.b)) AS s
  FROM t JOIN u ON t.a = u.a GROUP BY CUBE (t.a, u.d);
-- events
+t (2, 3)
+u (1, 2)
+u (2, 3)
+u (2, NULL)
-u (1, 2)
+t (NULL, 1)
