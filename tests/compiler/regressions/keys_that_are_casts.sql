-- A cast that does nothing is a key of its own among grouping sets.
CREATE TABLE t (b BIGINT, f DOUBLE);
CREATE VIEW v AS SELECT CAST(q.b AS BIGINT) AS x3, GROUPING(q.f) AS x6, COUNT(*) AS n FROM t q GROUP BY GROUPING SETS ((CAST(q.b AS BIGINT)), (q.b, q.f));
CREATE VIEW w AS SELECT CAST(q.b AS BIGINT) AS x3, b AS y, GROUPING(q.b) AS x6, COUNT(*) AS n FROM t q GROUP BY CUBE (q.b, CAST(q.b AS BIGINT));
-- events
+t (2, 2.0)
+t (2, NULL)
+t (NULL, 2.0)
-t (2, 2.0)
