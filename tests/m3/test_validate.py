"""What `validate` refuses, where it says so, and what it reports of valid programs."""

import pytest

from cumulus.algebra.terms import ONE
from cumulus.catalog.schema import Column, Relation
from cumulus.errors import ValidationError
from cumulus.m3 import MapDef, On, Program, Statement, Trigger, parse, parse_with_places, problems, read, validate

HEAD = """\
RELATION r(a INT, b VARCHAR, d DATE);
RELATION s(a INT) KEY (a);
MAP m[a INT, b VARCHAR](v BIGINT, w DOUBLE) COUNT v;
MAP n[a INT](v BIGINT);
MAP old[a INT](v BIGINT);
"""

CUBE = "VIEW u(a INT, v INT) FROM n SELECT a, v; CUBE u"

# Text after HEAD, where in its first line the error is, and what it says.
WRONG = [
    ("ON +r(a, b, d) { n[a] += x }", 26, "nothing binds x"),
    ("ON +r(a, b, d) { n[x] += m[a, b].v }", 20, "the term does not bind the key x"),
    ("ON +r(a, b, d) { n[x] += {x < 1} * m[x, b].v }", 27, "nothing binds x"),
    ("ON +r(a, b, d) { n[a, a] += 1 }", 18, "map n has 1 keys, not 2"),
    ("ON +r(a, b, d) { n[a] += m[a].v }", 26, "map m has 2 keys, not 1"),
    ("ON +r(a, b, d) { n[a] += m[a, b] }", 26, "map m has 2 value columns and none is named"),
    ("ON +r(a, b, d) { n[a] += m[a, b].z }", 34, "map m has no value column z"),
    ("ON +r(a, b, d) { n[a] += f(a, 1) }", 26, "there is no function f"),
    ("ON +r(a, b, d) { n[a] += {f(b) = 1} }", 27, "there is no function f"),
    ("ON +r(a, b) { n[a] += 1 }", 1, "2 event variables for the 3 columns of r"),
    ("ON +r(a, b, a) { n[a] += 1 }", 7, "two event variables are called a"),
    ("ON +r(a, b, d) { n[a] += s(a) }", 26, "it reads the relation s"),
    ("ON BATCH r { n[a] += s(a) }", 22, "it reads s, but the batch is of r"),
    ("ON BATCH r { n[a] += r(a, b) }", 22, "r has 3 columns, not 2"),
    ("ON BATCH r { n[a] += SUM[](r(a, b, d)) }", 16, "the term does not bind the key a"),
    ("ON +r(a, b, d) { n[a] += old[a]; old[x] := n[x] }", 26, "+= reads old, which := replaces"),
    ("ON +r(a, b, d) { old[x] := n[x]; old[a] += 1 }", 18, "old is both added to and replaced"),
    ("ON +r(a, b, d) { n[x] := old[x]; old[x] := n[x] }", 18, "n is made from itself"),
    ("ON +r(a, b, d) { old[x] := n[x] * a }", 35, "nothing binds a"),
    ("ON +r(a, b, d) { old[x] := NEW n[x] }", 32, ":= reads n as NEW or CHANGED"),
    ("ON +r(a, b, d) { n[a] += NEW m[a, b].v; m[a, b].v += CHANGED n[a] }", 1, "wait for each other's NEW or CHANGED"),
    ("ON +r(a, b, d) { n[a] += NEW n[a] }", 1, "wait for each other's NEW or CHANGED"),
    ("ON +r(a, b, d) { n[a] += CHANGED m[a, b].v }", 34, "CHANGED m takes keys only"),
    ("ON +r(a, b, d) { n[a] += CHANGED m[> a, b] }", 34, "CHANGED m takes keys only"),
    ("ON +r(a, b, d) { n[b] += 1 }", 20, "b is VARCHAR, but the key a of n is INTEGER"),
    ("ON +r(a, b, d) { n[a] += {MAX[x](n[a]) = a} }", 31, "the term of MAX does not bind x"),
    ("ON +r(a, b, d) { n[a] += {MAX[x](n[x] * y) = a} }", 41, "nothing binds y"),
    ("ON +r(a, b, d) { n[a] += MAX[x](m[a, x].v) }", 18, "a value is VARCHAR and not a number"),
    ("ON +r(a, b, d) { n[a] += m[b, b].v }", 28, "b is VARCHAR, but the key a of m is INTEGER"),
    ("ON +r(a, b, d) { n[a] += b }", 26, "b is VARCHAR and not a number"),
    ("ON +r(a, b, d) { n[a] += {a < b} }", 18, "INTEGER is compared with VARCHAR"),
    ("ON +r(a, b, d) { n[a] += {year(a) = 2} }", 27, "year"),
    ("ON +r(a, b, d) { n[a] += m[a, b].w }", 18, "a DOUBLE is added to n.v, which is BIGINT"),
    ("RELATION s(b INT);", 10, "two relations are called s"),
    ("RELATION t(a INT, a INT);", 12, "two columns are called a"),
    ("RELATION t(a BIGDECIMAL);", 12, "a is BIGDECIMAL: only values of maps are"),
    ("MAP p[a BIGDECIMAL](v BIGINT);", 7, "a is BIGDECIMAL: only values of maps are"),
    ("VIEW w(a BIGDECIMAL, v BIGINT) FROM n SELECT a, v;", 8, "a is BIGDECIMAL: only values of maps are"),
    ("RELATION t(a INT) KEY (b);", 24, "there is no column b for the key"),
    ("RELATION t(a INT) FOREIGN KEY (a) REFERENCES u (a);", 46, "there is no relation u to refer to"),
    ("RELATION t(a INT) FOREIGN KEY (a) REFERENCES s (z);", 49, "s has no column z"),
    ("RELATION t(a INT) KEPT rows_of_t;", 24, "there is no map rows_of_t to keep its rows"),
    ("RELATION t(a INT, c INT) KEPT n;", 31, "the map n cannot keep its rows"),
    (
        "RELATION p(a INT) KEY (a); RELATION t(a INT) FOREIGN KEY (a) REFERENCES p (a) ENFORCED;",
        73,
        "its reference to p is ENFORCED, but not both tables are kept",
    ),
    (
        "RELATION t(a INT, b VARCHAR) KEY (a) FOREIGN KEY (a) REFERENCES t (a) ENFORCED KEPT m;",
        10,
        "its reference to t is ENFORCED, but makes a circle",
    ),
    ("RELATION t(a INT) STATIC; ON -t(a) { n[a] += 1 }", 31, "t is STATIC: it has insertions only"),
    ("MAP n[z INT](v BIGINT);", 5, "two maps are called n"),
    ("CUBE u DIMENSION a (a);", 6, "there is no view u of its finest rows"),
    (f"{CUBE} DIMENSION a (a) DIMENSION a (a);", 59, "two dimensions are called a"),
    (f"{CUBE} DIMENSION a (a, a);", 59, "dimension a has the level a twice"),
    (f"{CUBE} DIMENSION a (z);", 62, "its view has no column z"),
    (f"{CUBE} DIMENSION a (a) LEVEL () FROM z;", 79, "there is no view z"),
    (f"{CUBE} DIMENSION a (a) LEVEL (a) FROM u;", 47, "the view u is of another level, or a cube"),
    (f"VIEW w(v INT) FROM n SELECT v; {CUBE} LEVEL (a) FROM w;", 87, "the view w has no column a"),
    (f"VIEW w(z INT) FROM n SELECT a; {CUBE} LEVEL () FROM w;", 94, "the cube has no column z, which w has"),
    ("MAP p[a INT](a BIGINT);", 7, "two columns are called a"),
    ("MAP p[a INT](v VARCHAR);", 14, "the value v is VARCHAR and not a number"),
    ("MAP p[a INT](v DOUBLE);", 14, "the value v is DOUBLE and there is no COUNT column"),
    ("MAP p[a INT](v BIGINT) COUNT w;", 30, "the COUNT column w is no value of it"),
    ("MAP p[a INT](v BIGINT) ORDERED v;", 14, "the ORDERED column v is no key of it"),
    ("MAP p[a INT](v BIGINT) START (1: 2, 3);", 24, "the entry (1: 2, 3) does not have 1 keys and 1 values"),
    ("MAP p[a INT](v BIGINT) START ('x': 2);", 24, "the entry ('x': 2) does not fit: a is INTEGER"),
    ("MAP p[a INT](v BIGINT) START (1: NULL);", 24, "the entry (1: NULL) does not fit: v is BIGINT"),
    ("MAP p[a INT](v BIGINT) START (1: 1e0);", 24, "the entry (1: 1e0) does not fit: v is BIGINT"),
    ("MAP p[a](v) START (1: TRUE);", 13, "the entry (1: TRUE) does not fit: v is an exact number"),
    ("MAP p[a INT NOT NULL](v BIGINT) START (NULL: 2);", 33, "does not fit: a is INTEGER and NOT NULL"),
    ("MAP p[a INT](v BIGINT) START (1: 0);", 24, "the entry (1: 0) is 0: it is not there"),
    ("MAP p[a INT](v BIGINT) START (1: 2), (1: 3);", 24, "two entries have the key (1)"),
    ("MAP p[a INT](v BIGINT) START (1: 2); ON +r(a, b, d) { p[x] := n[x] }", 55, "it can have no START"),
    ("MAP p[a INT](v BIGINT) = SUM[](s(a));", 7, "the definition does not bind the key a"),
    ("MAP p[a INT](v BIGINT) = s(a) * x;", 33, "nothing binds x in the definition"),
    ("MAP p[a INT](v BIGINT, w BIGINT) COUNT v = s(a);", 1, "1 definitions define 2 value columns"),
    ("MAP p[a INT](v BIGINT) = n[a];", 26, "the definition reads the map n"),
    ("VIEW p(a INT) FROM gone SELECT a;", 20, "there is no map gone"),
    ("VIEW p(a INT) FROM n SELECT z;", 29, "there is no column z to read"),
    ("VIEW p(a INT) FROM n SELECT a, v;", 1, "2 expressions make 1 columns"),
    ("VIEW p(a INT) FROM m SELECT b;", 8, "the column a is INTEGER, its expression VARCHAR"),
    ("VIEW p(a INT) FROM n SELECT old[x];", 33, "there is no column x to read"),
    ("VIEW p(a INT) FROM n SELECT MAX gone[*];", 33, "there is no map gone"),
    ("VIEW p(a INT) FROM n SELECT MAX[x](n[x]) + m[y, ''].v;", 46, "there is no column y to read"),
    ("VIEW p(a INT) FROM n SELECT MAX[x](n[x] * v);", 1, "a view cannot read MAX[x](n[x].v * v)"),
    ("VIEW p(a INT) FROM n SELECT n[> a];", 1, "a view cannot read the range in n[> a].v"),
    ("VIEW p(a INT) FROM n SELECT MAX m[a, *];", 8, "the column a is INTEGER, its expression VARCHAR"),
    ("VIEW p(a INT) FROM n SELECT MIN[v](m[a, v].v) + 1;", 1, "add takes (a number, a number)"),
    ("VIEW p(a INT) FROM m, n SELECT a;", 23, "n has 1 keys, m has 2"),
]


@pytest.mark.parametrize(("text", "column", "told"), WRONG, ids=[told for *_, told in WRONG])
def test_a_wrong_program_is_refused_at_its_place(text, column, told):
    with pytest.raises(ValidationError) as caught:
        read(HEAD + text, "shop.m3")
    assert told in caught.value.message
    assert (caught.value.line, caught.value.column) == (HEAD.count("\n") + 1, column)
    assert text[:50] in str(caught.value) or text[-50:] in str(caught.value)  # of a long line, what is about the place


def test_all_problems_are_told_at_once_in_the_order_of_the_text():
    with pytest.raises(ValidationError) as caught:
        read("ON +r(a) {\n  m[a] += x;\n  q[] += f(a, 1);\n  m[a] += 1\n}\nVIEW v(z INT) FROM gone SELECT z;")
    lines = str(caught.value).splitlines()
    assert lines[0] == "2:11: ON +r, statement 1 (m[a] += x): nothing binds x"
    assert "Also 3:10: ON +r, statement 2 (q[] += f(a, 1)): there is no function f" in lines
    assert "Also 6:20: view v: there is no map gone" in lines


def test_without_a_text_errors_name_trigger_and_statement():
    program = Program(
        relations=(Relation("r", (Column("a"),)),),
        maps=(MapDef("m", (Column("k"),), (Column("v"),)),),
        triggers=(
            Trigger(On.INSERT, "r", ("a",), (Statement("m", "", ("a",), "+=", ONE), Statement("m", "", (), "+=", ONE))),
            Trigger(On.INSERT, "r", ("a",), ()),
        ),
    )
    with pytest.raises(ValidationError) as caught:
        validate(program)
    assert caught.value.message.startswith("ON +r, statement 2 (m[] += 1): map m has 1 keys, not 0")
    assert "ON +r: there are two triggers for this event" in str(caught.value)
    assert caught.value.line == 0


VALID = [
    # Everything a statement may hold: sums, nested sums, lifts, EXISTS, conditions, functions, ranges and ends.
    "ON +r(a, b, d) { n[a] += SUM[](m[x, b].v * {x > a}) + EXISTS(n[a]) * year(d) }",
    "ON +r(a, b, d) { n[x] += (x := a + 1) * {length(b) > 2} }",
    "ON +r(a, b, d) { n[a] += m[>= a, b].v * {MIN n[*] = a} * CAST(a AS BIGINT) }",
    "ON BATCH r { n[a] += SUM[a](r(a, b, d)); n[a] += BATCH r(a, b, d) }",
    "ON +r(a, b, d) { old[x] := n[x] * {n[x] > 1}; n[a] += 1 }",
    "ON +r(a, b, d) { m[a, b].w += 5e-1; m[a, b].v += 1 }",
    "VIEW p(a INT, v DOUBLE) FROM m, m SELECT a, m.w / v WHERE v > 0 ORDER BY m.w DESC LIMIT 3;",
    "VIEW p(a INT, b VARCHAR) FROM n SELECT n[a] + old[v], MAX m[a + 1, *] WHERE MIN[v](m[v, 'b'].v) > v;",
    "ON +r(a, b, d) { n[a] += (x := 1) * {MAX[b](m[x, b].w) < b}; n[a] += (b2 := MIN[x](m[a, x].v)) * m[1, b2].v }",
    "RELATION t(a INT) KEY (a) KEPT n; ON +t(a) { n[a] += 1 }",
]


@pytest.mark.parametrize("text", VALID)
def test_a_right_program_passes(text):
    read(HEAD + text)


def test_functions_of_the_user_are_known_when_named():
    text = "ON +r(a) { m[a] += score(a, 1) }"
    assert len(problems(parse(text))) == 1
    assert problems(parse(text), {"score"}) == ()


PATTERNS = [
    ("q[] += m[a]", ["m[=]"]),
    ("q[x] += m[x]", ["m[loop]"]),
    ("q[x] += m[x] * n[x, a] * n[a, y]", ["m[loop]", "n[=, =]", "n[=, loop]"]),
    ("q[x] += m[x, x]", ["m[loop, =]"]),
    ("q[] += m[a + 1, > a]", ["m[=, ..]"]),
    ("q[] += {MAX m[a, *] = m[a, 1]}", ["m[=, *]", "m[=, =]"]),
    ("q[] += SUM[](m[x] * {m[x] > 1}) + EXISTS(n[a])", ["m[loop]", "m[=]", "n[=]"]),
    ("q[] += {MAX[x](m[a, x]) = m[a, 1]}", ["m[=, *]", "m[=, =]"]),
    ("q[x] += (x := MIN[y](m[a, y, z] * n[y]))", ["m[=, *, loop]", "n[=]"]),
    ("q[x] += (x := n[a]) * m[x]", ["n[=]", "m[=]"]),
    ("q[x] := m[a, x]", ["m[loop, loop]"]),
]


@pytest.mark.parametrize(("statement", "reads"), PATTERNS)
def test_access_patterns_say_what_is_bound_where_the_read_stands(statement, reads):
    from cumulus.m3.access import accesses

    [found] = accesses(parse(f"ON +r(a) {{ {statement} }}"))
    assert [str(access) for access in found.reads] == reads


RESTRICTED = [
    ("m1[B] += m2[A, B]", ""),
    ("m1[A] += 2 * A * m2[A]", ""),
    ("m1[B, C] += m2[A, B] * m3[A, C]", ""),
    ("m1[A] += m2[A] * year(A)", ""),
    ("m1[] += m2[A, B]", "the loop variable B does not stand on the left"),  # rule 1
    ("m1[B] += m2[A, B] * m3[B]", "the loop variable B joins 2 maps on the right"),  # rule 2
    ("m1[A] += m2[A] * {A <> A}", "it has a condition"),  # rule 3
    ("m1[A] += m2[A] + m3[A]", "its term is not a product of map reads and values"),
    ("m1[A] := m2[A]", "it replaces a map"),
    ("m1[A] += m2[> A]", "it reads m2 by something other than variables and constants"),
]


@pytest.mark.parametrize(("statement", "reason"), RESTRICTED)
def test_restricted_m3_is_told_by_the_rules_of_003(statement, reason):
    report = validate(parse(f"RELATION R(A DATE); ON +R(A) {{ {statement.replace('2 * A *', '2 *')} }}"))
    assert report.restricted is (reason == "")
    assert report.reason.endswith(reason)


def test_places_come_from_the_parser():
    program, places = parse_with_places("\n\nON +r(a) { m[a] += x }", "some.m3")
    with pytest.raises(ValidationError, match=r"^some.m3:3:20: ON \+r, statement 1"):
        validate(program, places)
