-- The key of a query inside a query is an input of the outer one, and that a column of what is looked for.
CREATE TABLE t (i BIGINT, w TIMESTAMP);
CREATE VIEW v AS SELECT x14 FROM (SELECT q6.i AS i, MAX(x11) AS x13, 1 AS x14, AVG(q6.x12) AS x15 FROM (SELECT t.i AS i, 1.5 AS x11, 1 AS x12 FROM t GROUP BY t.i) q6 GROUP BY q6.i) q7
  WHERE (q7.x13 < 2.7183 OR q7.x15 > 1.6181) AND q7.i >= (SELECT COUNT(*) FROM t q8 WHERE q8.i = q7.i AND NOT EXISTS (SELECT q10.i FROM (SELECT t.i AS i FROM t WHERE w <> TIMESTAMP '2020-12-31 00:00:00' GROUP BY t.i) q10 WHERE q10.i = q7.x14));
-- events
+t (1, TIMESTAMP '2020-12-31 00:00:00')
+t (1, NULL)
+t (2, TIMESTAMP '2020-12-31 00:00:00')
+t (1, TIMESTAMP '2021-01-01 00:00:00')
-t (1, TIMESTAMP '2021-01-01 00:00:00')
-t (1, NULL)
begin
+t (1, TIMESTAMP '2021-01-01 00:00:00')
-t (2, TIMESTAMP '2020-12-31 00:00:00')
commit
