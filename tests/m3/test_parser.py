"""What the parser takes beyond the canonical form, what it infers, and what it says when it does not understand."""

import pytest

from cumulus.catalog.schema import Column
from cumulus.catalog.types import INTEGER
from cumulus.errors import M3SyntaxError
from cumulus.m3 import On, Statement, parse, parse_with_places


def test_the_example_of_the_design_reads():
    program = parse(
        """
        RELATION lineitem(oid INT NOT NULL, price DECIMAL(15,2) NOT NULL);  -- prices are net
        MAP q[nation INT](s DECIMAL(38,4)) = SUM[nation](customers(cid, nation) * orders(cid, oid, discount)
                                                         * lineitem(oid, price) * discount * price);
        VIEW revenue(nation INT, revenue DECIMAL(38,4)) FROM q SELECT nation, s;
        ON +lineitem(oid, price) {
          q[nation] += m1[oid, nation] * price;
          m2[cid]   += m3[cid, oid] * price;
          m4[oid]   += price;
        }
        """
    )
    # The definition names relations that nobody declares: calls on unbound variables can be nothing else.
    assert [relation.name for relation in program.relations] == ["lineitem", "customers", "orders"]
    assert program.relation("orders").columns == (Column("k1"), Column("k2"), Column("k3"))
    assert program.relation("lineitem").columns[0] == Column("oid", INTEGER, True)
    assert [(item.name, item.declared) for item in program.maps] == [
        ("q", True), ("m1", False), ("m2", False), ("m3", False), ("m4", False)
    ]  # fmt: skip
    assert program.map("m1").keys == (Column("k1"), Column("k2"))
    assert program.map("m1").values == (Column("v"),)


def test_reads_and_statements_name_their_only_column():
    program = parse("MAP q[](total); ON +R(a) { q += m[a]; m[a] += q[] * a }")
    first, second = program.triggers[0].statements
    assert (first.column, str(first.term)) == ("total", "m[a].v")
    assert (second.column, str(second.term)) == ("v", "q[].total * a")
    assert "  q[]  += m[a];\n  m[a] += q[] * a;\n" in str(program)


def test_a_bare_name_is_a_map_only_where_nothing_binds_it():
    program = parse("ON +R(a) { m += 1; n += m * a } ON +S(m) { n += m }")
    assert [str(statement.term) for trigger in program.triggers for statement in trigger.statements] == [
        "1", "m[].v * a", "m",
    ]  # fmt: skip


def test_a_constant_on_the_left_is_a_key_that_the_term_binds():
    [statement] = parse("ON +R(a) { m[10, a] += a }").triggers[0].statements
    assert statement == Statement("m", "v", ("key_1", "a"), "+=", statement.term)
    assert str(statement.term) == "(key_1 := 10) * a"


def test_rules_for_one_event_are_joined_under_the_first_names():
    [trigger] = parse("+R(x, y) : Map m[x, z] += n[y, z]\n+R(y, z) : Map m[z, x] += n[y, x]").triggers
    assert trigger.variables == ("x", "y")
    assert [(statement.keys, str(statement.term)) for statement in trigger.statements] == [
        (("x", "z"), "n[y, z].v"),
        (("y", "x_"), "n[x, x_].v"),
    ]


def test_dots_in_an_event_stand_for_the_other_columns():
    program = parse("RELATION R(a INT, b INT, c INT); ON +R(a, ...) { m[b] += n[a, b] }")
    assert program.triggers[0].variables == ("a", "b_", "c")


def test_events_in_all_spellings():
    text = """
    ON +R(a) {} ON -R(a) {} ON BATCH R {} on insert into S(a) {} on delete from S(a) {}
    ON Insert_T(a) DO {} ON Delete_T(a) {} ON U(a) {} +V(a) {} -V(a) : m += 1
    """
    assert [(trigger.on, trigger.relation) for trigger in parse(text).triggers] == [
        (On.INSERT, "R"), (On.DELETE, "R"), (On.BATCH, "R"), (On.INSERT, "S"), (On.DELETE, "S"),
        (On.INSERT, "T"), (On.DELETE, "T"), (On.INSERT, "U"), (On.INSERT, "V"), (On.DELETE, "V"),
    ]  # fmt: skip


def test_a_declared_relation_keeps_its_name_even_if_it_looks_like_an_event():
    assert parse("RELATION insert_log(a INT); ON insert_log(a) { n += 1 }").triggers[0].relation == "insert_log"


def test_relations_carry_all_that_is_known_of_them():
    text = """\
RELATION orders(oid INTEGER NOT NULL, cid INTEGER) KEY (oid) RELY FOREIGN KEY (cid) REFERENCES customer (cid) RELY;
RELATION customer(cid INTEGER) KEY (cid) STATIC KEEP ALL KEPT customer_rows;

MAP customer_rows[cid INTEGER](n BIGINT) COUNT n ORDERED cid = customer(cid) AS 'SELECT cid, 1 FROM customer';
"""
    program = parse(text)
    assert str(program).replace("\n  ", " ").replace("(\n", "(") == text or parse(str(program)) == program
    assert program.kept == (("customer", "customer_rows"),)
    assert program.relation("customer").static
    assert program.relation("customer").keep == "all"
    assert program.relation("orders").foreign_keys[0].rely


def test_a_domain_needs_its_relation_and_column():
    with pytest.raises(M3SyntaxError, match="1:19: Person is no relation here"):
        parse("ON +R(a) {    (x: Person.id) m[x] += 1 }")
    with pytest.raises(M3SyntaxError, match="R has no column b"):
        parse("ON +R(a) { (x: R.b) m[x] += 1 }")
    with pytest.raises(M3SyntaxError, match="R has 1 columns, not 2"):
        parse("ON +R(a) { ((x, y): R) m[x, y] += 1 }")


def test_a_domain_over_one_column_is_kept_by_batches_too():
    program = parse("ON +R(a, b) { (x: R.b) m[x] += 1 } ON BATCH R { n[] += R(a, b) }")
    batch = next(trigger for trigger in program.triggers if trigger.on is On.BATCH)
    assert [str(statement.term) for statement in batch.statements] == ["R(a, b)", "R(a, b)"]
    assert batch.statements[1].keys == ("b",)


WRONG = [
    (
        "RELATION r(a INT)\nMAP m[](v);",
        2,
        1,
        "expected KEY, FOREIGN KEY, STATIC, KEEP, KEPT, CHANGES or ';', found 'MAP'",
    ),
    ("MAP m[k INT](v BIGINT) COUNTS n;", 1, 24, "expected COUNT, ORDERED, START, a definition, AS or ';'"),
    ("MAP m[k INT](v BIGINT) START (k: 1);", 1, 31, "expected a literal"),
    ("MAP m[](v BIGINT) START (1);", 1, 27, "expected ':' between key and values"),
    ("ON +r(a) {\n  m[a] = 1;\n}", 2, 8, "expected '+=' or ':=', found '='"),
    ("ON +r(a) { m[a] += 1 ", 1, 22, "expected '}' or ';' after the statement, found the end of the text"),
    ("ON (a) { }", 1, 4, "expected an event"),
    ("ON +r(a)\n  m[a] += 1", 2, 3, "expected '{' before the statements"),
    ("SELECT 1", 1, 1, "expected RELATION, FUNCTION, MAP, VIEW, CUBE or ON, found 'SELECT'"),
    ("VIEW v(a INT) FROM m SELECT a LIMIT x", 1, 37, "expected a whole number"),
    ("ON +r(a, ..., b) { }", 1, 13, "expected ')' after '...'"),
    ("MAP m[a INTEGERS](v);", 1, 9, "expected a type"),
]


@pytest.mark.parametrize(("text", "line", "column", "told"), WRONG, ids=[told for *_, told in WRONG])
def test_a_syntax_error_has_its_place_and_says_what_was_expected(text, line, column, told):
    with pytest.raises(M3SyntaxError) as caught:
        parse(text, "shop.m3")
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"shop.m3:{line}:{column}: ")
    assert f"\n  {' ' * (column - 1)}^" in str(caught.value)


def test_places_find_words_inside_a_part():
    _, places = parse_with_places("ON +r(a) {\n  m[a] += 1;\n  q[] += m[a] * a\n}")
    assert places.find(("statement", 0, 1)) == (3, 3)
    assert places.find(("statement", 0, 1), "m") == (3, 10)
    assert places.find(("map", "m")) == (0, 0)
