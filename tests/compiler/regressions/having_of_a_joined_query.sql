-- The row at which a look-up changes may be the one that says what it looks up.
CREATE TABLE t0 (b BIGINT);
CREATE TABLE t1 (w INTEGER, b BIGINT);
CREATE TABLE t3 (f DOUBLE);
CREATE VIEW v AS SELECT 1.5e0 AS x FROM t0 q4 RIGHT JOIN
  (SELECT q5.f AS x6, VAR_POP(q6.b) AS x7 FROM t3 q5 JOIN t1 q6 ON TRUE GROUP BY q5.f
   HAVING BOOL_OR(q6.w >= 3) <> (SELECT BOOL_OR(q7.b IN (1, 1.5, 2)) FROM t1 q7)) q8 ON q4.b = q8.x6 AND q8.x7 > -0.3812;
-- events
+t3 (1.0e0)
+t1 (3, 4)
+t0 (1)
+t1 (2, 1)
+t3 (2.0e0)
-t0 (1)
-t1 (2, 1)
