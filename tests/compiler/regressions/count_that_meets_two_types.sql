-- What a scalar sub-query gives equals columns of two types.
CREATE TABLE t0 (a BIGINT);
CREATE TABLE t1 (a INTEGER);
CREATE TABLE t3 (e DATE);
CREATE VIEW v AS SELECT q3.x6 AS x6 FROM (SELECT (SELECT COUNT(*) FROM t1 q2) AS x6 FROM t3) q3 JOIN t1 q4 ON q3.x6 = q4.a JOIN t0 q5 ON q3.x6 = q5.a;
CREATE VIEW w AS SELECT q3.x6 AS x6 FROM (SELECT (SELECT COUNT(*) FROM t1 q2) AS x6 FROM t3) q3 JOIN t0 q5 ON q3.x6 = q5.a JOIN t1 q4 ON q3.x6 = q4.a AND q4.a = q5.a;
-- events
+t3 (DATE '2020-02-29')
+t1 (0)
+t0 (0)
+t0 (1)
+t1 (1)
+t0 (2)
+t1 (2)
-t1 (0)
