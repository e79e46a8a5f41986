-- The word of a NULL HUGEINT, scaled to a DECIMAL's digits, was a number beyond 128 bits.
CREATE TABLE t (d DECIMAL(5,1));
CREATE TABLE s (x INTEGER);
CREATE VIEW below AS SELECT h, COUNT(*) AS n FROM (SELECT CAST(x AS HUGEINT) AS h FROM s) q GROUP BY 1 HAVING COUNT(*) > (SELECT COUNT(d) FROM t WHERE t.d = q.h);
CREATE VIEW pairs AS SELECT COUNT(*) AS n, SUM(CAST(CAST(x AS HUGEINT) AS DECIMAL(38,4))) AS s FROM s JOIN t ON t.d < CAST(x AS HUGEINT) OR x IS NULL;
-- events
+s (1)
+s (NULL)
+t (-2.5)
+t (1.0)
+t (NULL)
+s (2)
-s (1)
-s (NULL)
