-- What holds among the rows that a row is looked for in does not hold yet where the rows are joined.
CREATE TABLE t (a INTEGER, d INTEGER);
CREATE TABLE u (a INTEGER, d INTEGER);
CREATE VIEW all_of_them AS SELECT x.a, z.a AS b FROM t x LEFT JOIN (t y JOIN t z ON y.d = z.d) ON TRUE;
CREATE VIEW some_of_them AS SELECT x.a, z.d, COUNT(y.a) AS n
  FROM u x LEFT JOIN (t y JOIN t z USING (d)) ON x.a = z.a GROUP BY x.a, z.d;
CREATE VIEW turned AS SELECT x.a, y.d FROM (t y JOIN u z ON y.a = z.a AND y.d = z.d) RIGHT JOIN t x ON x.d = z.d;
-- events
+t (3, NULL)
+t (1, 2)
+u (1, 2)
+u (3, NULL)
-t (1, 2)
+t (3, 2)
