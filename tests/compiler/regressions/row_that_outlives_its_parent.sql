-- A row that outlives its parent inside of a transaction counted in some maps and not in others.
CREATE TABLE t2 (h INTEGER, PRIMARY KEY (h));
CREATE TABLE t3 (h INTEGER, m INTEGER, PRIMARY KEY (h), FOREIGN KEY (m) REFERENCES t2 (h));
CREATE VIEW v0 AS SELECT 1 AS x2 FROM t3 q1 CROSS JOIN (t3 q2 JOIN t2 q3 ON q2.m = q3.h) LEFT JOIN t2 q6 ON TRUE;
-- events
+t2 (-1)
+t3 (3, -1)
begin
-t2 (-1)
+t2 (-1)
commit
