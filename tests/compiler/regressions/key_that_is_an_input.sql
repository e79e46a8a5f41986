-- One value is a key of a sub-query and, in a condition inside, what only filters.
CREATE TABLE s (b INTEGER, c VARCHAR);
CREATE TABLE t (a BIGINT, b INTEGER);
CREATE VIEW v AS SELECT COUNT(*) AS n FROM t WHERE t.b IN (SELECT DISTINCT q3.b FROM s q3 JOIN s q4 USING (c) WHERE q4.b = t.a AND q3.b <> t.b);
CREATE VIEW w AS SELECT COUNT(*) AS n FROM t WHERE t.b IN (SELECT DISTINCT q3.b FROM s q3 JOIN s q4 USING (c) WHERE q4.b = t.a AND q3.b >= t.b);
-- events
+s (1, 'x')
+t (1, 1)
+s (2, 'x')
+t (1, 2)
+t (2, 1)
-s (1, 'x')
+s (1, 'y')
begin
+s (1, 'x')
-t (1, 1)
-s (2, 'x')
commit
