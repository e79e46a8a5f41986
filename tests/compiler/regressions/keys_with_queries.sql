-- An expression with a sub-query in GROUP BY may be shown, filtered and told by GROUPING.
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE TABLE u (a INTEGER, d INTEGER);
CREATE VIEW shown AS SELECT CASE WHEN t.b < ANY (SELECT a FROM u) THEN 0 ELSE 1 END AS x, COUNT(*) AS n
  FROM t GROUP BY CASE WHEN t.b < ANY (SELECT a FROM u) THEN 0 ELSE 1 END;
CREATE VIEW inside AS SELECT 1 + (SELECT MAX(d) FROM u WHERE u.a = t.a) AS x, SUM(b) AS s
  FROM t GROUP BY (SELECT MAX(d) FROM u WHERE u.a = t.a);
CREATE VIEW filtered AS SELECT COUNT(*) AS n FROM t GROUP BY a IN (SELECT a FROM u) HAVING a IN (SELECT a FROM u);
CREATE VIEW rolled AS SELECT a IN (SELECT a FROM u) AS x, GROUPING(a IN (SELECT a FROM u)) AS g, COUNT(*) AS n
  FROM t GROUP BY ROLLUP (a IN (SELECT a FROM u));
CREATE VIEW again AS SELECT a, (SELECT MAX(d) FROM u) AS m FROM t WHERE b < (SELECT MAX(d) FROM u) GROUP BY a;
-- events
+t (1, 2)
+u (1, 5)
+t (2, 7)
+u (3, 8)
begin
-u (1, 5)
+t (NULL, 1)
commit
-t (1, 2)
