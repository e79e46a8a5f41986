-- A key that is never NULL in its rows is NULL where it is rolled up, and no key of a sub-query equals it then.
CREATE TABLE r (c INTEGER NOT NULL, b INTEGER);
CREATE TABLE s (a INTEGER, d INTEGER NOT NULL);
CREATE VIEW of_a_column AS SELECT c, (SELECT MAX(d) FROM s WHERE s.a = r.c) AS m, c NOT IN (SELECT d FROM s) AS z
  FROM r GROUP BY ROLLUP (c);
CREATE VIEW joined AS SELECT x.c, (SELECT COUNT(*) FROM s WHERE s.a = x.b) AS n
  FROM r x JOIN r y USING (b) GROUP BY CUBE (x.b, x.c);
CREATE VIEW expression AS SELECT COALESCE(b, 1) AS k, COALESCE(b, 1) + 1 NOT IN (SELECT d FROM s) AS z
  FROM r GROUP BY ROLLUP (COALESCE(b, 1));
-- events
+r (1, 2)
+s (1, 7)
+s (NULL, 9)
+r (2, 2)
+s (2, 3)
+r (2, NULL)
-s (NULL, 9)
-r (1, 2)
