-- Grouping sets tell columns apart by their names: what a join or USING equates is NULL where its own set lacks it.
CREATE TABLE r (a INTEGER, b INTEGER);
CREATE TABLE s (a BIGINT, c INTEGER);
CREATE VIEW rolled AS SELECT r.a, s.a AS x, GROUPING(r.a, s.a) AS g, COUNT(*) AS n
  FROM r JOIN s ON r.a = s.a GROUP BY ROLLUP (s.a, r.a);
CREATE VIEW merged AS SELECT a, s.a AS x, GROUPING(a, r.a, s.a) AS g, SUM(b) AS t
  FROM r JOIN s USING (a) GROUP BY CUBE (a, s.a);
CREATE VIEW other_side AS SELECT a, s.a AS x, r.a AS y, GROUPING(s.a) AS g, COUNT(b) AS n
  FROM r RIGHT JOIN s USING (a) GROUP BY ROLLUP (a, r.a);
CREATE VIEW either_side AS SELECT a, r.a AS x, s.a AS y, GROUPING(a, s.a) AS g, COUNT(*) AS n
  FROM r FULL JOIN s USING (a) GROUP BY GROUPING SETS ((a, r.a), (s.a), ());
CREATE VIEW one_set AS SELECT 1 AS x FROM r JOIN s ON r.b = s.a GROUP BY GROUPING SETS ((r.a), (s.a));
CREATE VIEW plain AS SELECT GROUPING(s.a) AS g, s.a AS x FROM r JOIN s USING (a) GROUP BY s.a;
CREATE VIEW three AS SELECT GROUPING(q1.a) AS g FROM s q1 JOIN s q2 USING (a) JOIN r ON q2.a = r.b GROUP BY q1.a;
-- events
+r (3, 1)
+s (3, 1)
+r (3, 3)
+r (1, NULL)
+s (NULL, 2)
begin
+s (1, 3)
-r (3, 1)
+s (4, 4)
commit
-s (3, 1)
+r (NULL, NULL)
