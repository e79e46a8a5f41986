-- Variance and deviation of floats: values close together, NaN and infinities that go again, numbers beyond range.
CREATE TABLE t (k INTEGER, x DOUBLE, d DECIMAL(38,24));
CREATE TABLE s (k INTEGER, n INTEGER);
CREATE VIEW v AS SELECT k, STDDEV(x) AS a, VAR_POP(x) AS b, STDDEV_POP(x + 1) AS c, SUM(x) AS e, AVG(x) AS f, VAR_SAMP(d / 2) AS g FROM t GROUP BY k;
CREATE VIEW joined AS SELECT STDDEV(t.x * s.n) AS a, VARIANCE(t.x) FILTER (WHERE n > 1) AS b FROM t, s WHERE t.k = s.k;
CREATE VIEW above AS SELECT COUNT(*) AS n FROM t WHERE x > (SELECT STDDEV(u.x) FROM t u WHERE u.k = t.k);
CREATE VIEW levels AS SELECT k, x, VAR_POP(x) AS a FROM t GROUP BY ROLLUP (k, x);
-- events
+t (1, 100000000, 1.5)
+s (1, 3)
+t (1, 100000001, 0.000000000000000000000001)
+t (1, 100000002, NULL)
+t (1, 'nan'::DOUBLE, NULL)
+s (1, 1)
-t (1, 'nan'::DOUBLE, NULL)
+t (2, 'inf'::DOUBLE, 2)
+t (2, 1, 3)
+s (2, 2)
-t (2, 'inf'::DOUBLE, 2)
+t (2, 1e200, NULL)
-t (1, 100000001, 0.000000000000000000000001)
+t (2, NULL, NULL)
-t (2, 1e200, NULL)
+t (2, 0.1, NULL)
begin
-t (2, 1, 3)
-t (2, 0.1, NULL)
commit
