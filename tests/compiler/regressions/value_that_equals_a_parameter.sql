-- What a sub-query gives must equal a column from outside, and nothing else needs it: it is a condition all the same.
CREATE TABLE t0 (s VARCHAR);
CREATE TABLE t1 (f DOUBLE NOT NULL, a BIGINT NOT NULL);
CREATE VIEW v AS SELECT 1 AS x12 FROM (SELECT TRUE AS x10 FROM t1
  WHERE t1.f NOT IN (SELECT x3 FROM (SELECT (SELECT MAX(1.5e0) FROM t1) AS x3 FROM t0) q5) GROUP BY t1.a) q6;
CREATE VIEW w AS SELECT t1.a, COUNT(*) AS n FROM t1 WHERE t1.f IN (SELECT (SELECT MAX(f) FROM t1) FROM t0) GROUP BY t1.a;
CREATE VIEW x AS SELECT COUNT(*) AS n FROM t1
  WHERE EXISTS (SELECT 1 FROM t0 WHERE (SELECT COUNT(*) FROM t1) = (SELECT COUNT(*) FROM t0) AND (SELECT COUNT(*) FROM t0) = t1.a);
-- events
+t0 ('y')
+t1 (1.0e0, 0)
+t1 (1.0e0, 2)
+t0 (NULL)
+t1 (3.0e0, 1)
-t1 (1.0e0, 0)
begin
+t1 (3.0e0, 4)
-t0 ('y')
-t1 (3.0e0, 1)
commit
-t0 (NULL)
