-- A loop was moved behind the look-up of a count that needs its key: machine code then went through the counts.
CREATE TABLE t0 (c VARCHAR);
CREATE TABLE t1 (a INTEGER);
CREATE TABLE t3 (b INTEGER, d DECIMAL(9,2));
CREATE VIEW v3 AS SELECT 1 AS x9 FROM t3 q5 CROSS JOIN (SELECT 'y' AS x2 FROM t0 q1 GROUP BY q1.c) v0 WHERE q5.d >= (SELECT COUNT(*) FROM t1 WHERE t1.a = q5.b) GROUP BY v0.x2;
CREATE VIEW v4 AS SELECT COUNT(*) AS n FROM t3 q5, t0 WHERE q5.d >= q5.b + (SELECT COUNT(*) FROM t1 WHERE t1.a = q5.b);
-- events
+t3 (1, 1)
+t0 ('y')
+t3 (1, 1.5)
+t1 (1)
+t0 ('z')
-t1 (1)
