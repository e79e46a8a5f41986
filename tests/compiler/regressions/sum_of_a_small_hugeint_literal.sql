-- A small literal held in 128 bits times a count of one bit was a product of two widths, which machine code cannot have.
CREATE TABLE t (b INTEGER);
CREATE TABLE s (b INTEGER);
CREATE VIEW two AS SELECT CAST(4 AS HUGEINT) AS h, b FROM t UNION SELECT SUM(b), 1 FROM s;
CREATE VIEW total AS SELECT SUM(h) AS x, COUNT(*) AS n FROM two;
-- events
+t (1)
+t (1)
+t (NULL)
+s (4)
-s (4)
-t (1)
-t (1)
