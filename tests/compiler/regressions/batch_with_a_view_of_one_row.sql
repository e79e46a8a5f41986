-- A batch meets two values of one name, of which one does not depend on the batch.
CREATE TABLE r (b INTEGER);
CREATE TABLE s (a INTEGER);
CREATE VIEW one AS SELECT SUM(b) AS x2 FROM r;
CREATE VIEW v AS WITH w AS (SELECT CAST(s.a AS HUGEINT) AS x3, one.x2 AS x2 FROM s, one WHERE s.a IS NOT DISTINCT FROM one.x2)
  SELECT x3 FROM w WHERE w.x2 = (SELECT MAX(x3) FROM w q5);
-- events
+r (1)
+s (1)
+s (2)
+r (1)
-s (1)
-r (1)
