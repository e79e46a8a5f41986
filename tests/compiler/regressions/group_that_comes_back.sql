-- A group whose rows are all replaced in one transaction, with a filtered sum of NULLs beside its count.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE VIEW v AS SELECT a, SUM(b) FILTER (WHERE b > 0) AS s, COUNT(b) AS n FROM t GROUP BY a HAVING COUNT(*) >= 1;
-- events
+t (1, 2)
begin
-t (1, 2)
+t (1, NULL)
commit
begin
-t (1, NULL)
+t (2, -1)
+t (2, 3)
commit
