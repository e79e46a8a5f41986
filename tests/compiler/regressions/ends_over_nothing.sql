-- MIN of a column under a condition that is never true.
CREATE TABLE t (b BIGINT NOT NULL, s VARCHAR, PRIMARY KEY (b, s));
CREATE VIEW v AS SELECT q4.x1 AS x4, x2 FROM (SELECT q3.x1 AS x1, MIN(x1) FILTER (WHERE x1 NOT ILIKE '_Y') AS x2 FROM (SELECT q1.s AS x1 FROM t q1) q3 WHERE NOT (q3.x1 IS NOT NULL) GROUP BY q3.x1) q4;
CREATE VIEW w AS SELECT q.low, COUNT(*) AS n FROM (SELECT MIN(b) AS low, MAX(s) AS high FROM t WHERE b IS NULL) q LEFT JOIN t ON t.b = q.low GROUP BY q.low;
-- events
+t (1, 'x')
+t (2, 'y')
-t (1, 'x')
