-- A column that a FULL JOIN merges is absent with its side in the next join.
CREATE TABLE r (i INTEGER, b BIGINT);
CREATE TABLE s (i INTEGER, d INTEGER);
CREATE VIEW v AS SELECT AVG(i) AS x FROM r q2 FULL JOIN r q3 USING (i, b) FULL JOIN r q4 USING (i, b);
CREATE VIEW w AS SELECT i, COUNT(*) AS n FROM r FULL JOIN s USING (i) FULL JOIN s q USING (i) GROUP BY i;
CREATE VIEW x AS SELECT i, s.d, q.b FROM s RIGHT JOIN r USING (i) FULL JOIN r q USING (i);
-- events
+r (1, 1)
+s (1, 2)
+s (2, 2)
+r (2, NULL)
+r (NULL, 1)
-s (1, 2)
begin
-r (1, 1)
+r (3, 1)
+r (3, 1)
commit
