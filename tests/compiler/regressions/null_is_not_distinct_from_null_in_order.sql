-- A join by IS NOT DISTINCT FROM was looked up as an interval that begins and ends at a value: two NULLs did not meet.
CREATE TABLE r (a INTEGER, i INTEGER, d DECIMAL(9,2), f DOUBLE, e DATE, c VARCHAR);
CREATE TABLE s (b INTEGER, g INTEGER);
CREATE VIEW by_i AS SELECT p.a, q.a AS other FROM r p JOIN r q ON p.i IS NOT DISTINCT FROM q.i;
CREATE VIEW by_d AS SELECT p.a, COUNT(q.a) AS n FROM r p JOIN r q ON p.d IS NOT DISTINCT FROM q.d GROUP BY p.a;
CREATE VIEW by_f AS SELECT p.a, SUM(q.i) AS n FROM r p LEFT JOIN r q ON p.f IS NOT DISTINCT FROM q.f GROUP BY p.a;
CREATE VIEW by_e AS SELECT COUNT(*) AS n FROM r p JOIN r q ON p.e IS NOT DISTINCT FROM q.e AND p.c IS NOT DISTINCT FROM q.c;
CREATE VIEW by_sum AS SELECT r.a, SUM(b) AS n FROM r JOIN s ON s.g + 1 IS NOT DISTINCT FROM r.i * 2 GROUP BY r.a;
CREATE VIEW by_equal AS SELECT r.a, SUM(b) AS n FROM r JOIN s ON s.g + 1 = r.i * 2 GROUP BY r.a;
-- events
+r (1, NULL, NULL, NULL, NULL, NULL)
+s (1, NULL)
+s (2, 3)
+r (2, NULL, NULL, NULL, NULL, NULL)
+r (3, 2, 1.5, 0.5, DATE '2020-02-29', 'x')
+r (4, 2, 1.5, 0.5, DATE '2020-02-29', NULL)
+s (4, NULL)
-r (1, NULL, NULL, NULL, NULL, NULL)
+r (5, NULL, 1.5, NULL, NULL, 'x')
-s (1, NULL)
-r (3, 2, 1.5, 0.5, DATE '2020-02-29', 'x')
