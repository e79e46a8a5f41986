-- A product of the event's row with itself that a condition excludes is no statement.
CREATE TABLE t (d DECIMAL(9,2), b INTEGER);
CREATE VIEW v AS SELECT q8.b, COUNT(*) AS n FROM t q8 JOIN t ON TRUE JOIN (SELECT q1.d AS d FROM t q1 GROUP BY q1.d) q9 ON t.d > q9.d GROUP BY q8.b;
-- events
+t (1, 1)
+t (2, 1)
+t (2, NULL)
-t (1, 1)
+t (NULL, 2)
begin
+t (1, 2)
+t (3, 2)
-t (2, 1)
commit
