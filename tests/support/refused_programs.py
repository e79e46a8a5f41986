"""Hand-written programs that the Spark host must refuse."""

UNDEFINED = """
RELATION r(x INT NOT NULL);
MAP best[](s DECIMAL(38,0));
MAP seen[](n BIGINT) COUNT n;
VIEW v(s DECIMAL(38,0)) FROM best SELECT s;
ON +r(x) { best[].s += x + seen[].n * x; seen[].n += 1; }
"""
"""What `best` is depends on the order of the rows; nothing says what it is of the table."""

CYCLIC = """
RELATION r(x INT NOT NULL);
MAP one[x INT](n BIGINT) COUNT n = r(x);
MAP two[x INT](n BIGINT) COUNT n = r(x);
MAP three[x INT](n BIGINT) COUNT n = r(x);
VIEW v(x INT, n BIGINT) FROM one SELECT x, n;
ON +r(x) { one[x].n += 1 + two[x].n + -three[x].n; two[x].n += 1 + one[x].n + -three[x].n; three[x].n += 1; }
ON -r(x) { one[x].n += -1; two[x].n += -1; three[x].n += -1; }
ON BATCH r {
  one[x].n += r(x) + SUM[x](r(x) * (two[x].n + -three[x].n));
  two[x].n += r(x) + SUM[x](r(x) * (one[x].n + -three[x].n));
  three[x].n += r(x);
}
"""
"""Maps that hold the same, two of which correct each other: right, defined, and without depths."""
