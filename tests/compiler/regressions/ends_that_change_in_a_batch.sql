-- A batch that takes a value away and adds another leaves as many values; the least of them is another.
CREATE TABLE t0 (e DATE, a INTEGER, d DECIMAL(5,1));
CREATE TABLE t1 (e DATE, g DECIMAL(9,2));
CREATE VIEW v AS SELECT 1 AS one FROM t0 q10 WHERE q10.a <= (SELECT 1 FROM t0 q12 WHERE q12.e < (SELECT e FROM t1 q13 WHERE q13.g = q10.d));
-- events
+t0 (DATE '2020-02-29', -1, 1)
+t1 (DATE '2020-02-29', 1)
begin
-t1 (DATE '2020-02-29', 1)
+t1 (DATE '2021-01-01', 1)
commit
