-- A row moved around a change of its parent, and the rows that an outer join counts with it stayed.
CREATE TABLE t0 (a BIGINT, PRIMARY KEY (a));
CREATE TABLE t1 (h INTEGER, a BIGINT, e DATE, PRIMARY KEY (h), FOREIGN KEY (a) REFERENCES t0 (a));
CREATE TABLE t2 (i INTEGER, h INTEGER, PRIMARY KEY (i), FOREIGN KEY (h) REFERENCES t1 (h));
CREATE VIEW v0 AS SELECT TRUE AS x3 FROM t0 JOIN t1 q2 ON TRUE;
CREATE VIEW v1 AS SELECT q4.e AS x5 FROM t1 q3 JOIN t2 ON q3.h = t2.h FULL JOIN t1 q4 ON t2.h = q4.h;
-- events
begin
+t1 (1, 4, DATE '2021-01-01')
+t0 (4)
commit
+t2 (4, 1)
begin
-t0 (4)
+t0 (4)
commit
begin
-t1 (1, 4, DATE '2021-01-01')
+t1 (1, 4, DATE '2021-01-02')
commit
