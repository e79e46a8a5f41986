"""One-round layouts by example: tags, reasons, choices, merging. The law for all programs is in test_layout_law."""

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import LayoutError
from cumulus.explain.layout.choice import choose_layout
from cumulus.explain.layout.co_partitioning import Merge, lay_out
from cumulus.explain.layout.load import loads_of
from cumulus.explain.sizes import Statistics
from cumulus.m3 import On, parse

# The Cumulus consistency paper, example 2.1, with its definitions.
REVENUE = compile_sql(
    """
    CREATE TABLE customers (cid INT NOT NULL, nation INT NOT NULL);
    CREATE TABLE orders (oid INT NOT NULL, cid INT NOT NULL, discount INT NOT NULL);
    CREATE TABLE lineitem (oid INT NOT NULL, price INT NOT NULL);
    CREATE VIEW revenue AS
      SELECT nation, SUM(discount * price) AS revenue FROM customers c, orders o, lineitem l
      WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY nation;
    CREATE VIEW per_order AS SELECT oid, SUM(price) AS total FROM lineitem GROUP BY oid;
    """
)


def test_a_map_lives_with_its_key_or_in_parts():
    layout = lay_out(REVENUE, {"orders": ("oid",), "lineitem": ("oid",)})
    assert {name: layout.tag_text(name) for name in ("revenue", "per_order")} == {
        "revenue": "part",
        "per_order": "local(oid)",
    }
    assert layout.merge_of_view("revenue") is Merge.ADD
    assert layout.merge_of_view("per_order") is Merge.UNION
    # What only customers fill is the same everywhere: they are in every bucket.
    same = [name for name in layout.tags if layout.tag_text(name) == "same"]
    assert [str(REVENUE.map(name).definitions[0]) for name in same] == ["customers(cid, nation)"]


def test_keys_that_do_not_meet_are_refused_with_the_statement():
    with pytest.raises(LayoutError) as caught:
        lay_out(REVENUE, {"orders": ("cid",), "lineitem": ("oid",)})
    assert "not one round with orders by cid, lineitem by oid: in ON +orders: " in caught.value.message
    assert "it joins values at cid and oid" in caught.value.message


def test_the_choice_takes_the_larger_side_when_sizes_say_so():
    by_order = choose_layout(REVENUE, statistics=Statistics({"customers": 1, "orders": 10, "lineitem": 40}))
    assert by_order.partitioned == {"orders": ("oid",), "lineitem": ("oid",)}
    by_customer = choose_layout(REVENUE, statistics=Statistics({"customers": 50, "orders": 10, "lineitem": 4}))
    assert by_customer.partitioned == {"customers": ("cid",), "orders": ("cid",)}
    assert by_customer.reasons["lineitem"].startswith("not one round with customers by cid, orders by cid, lineitem")


def test_a_hint_is_kept_or_refused():
    assert choose_layout(REVENUE, hint={"customers": ("nation",)}).partitioned["customers"] == ("nation",)
    with pytest.raises(LayoutError, match="it joins values at"):
        choose_layout(REVENUE, hint={"customers": ("cid",), "orders": ("oid",)})
    with pytest.raises(LayoutError, match="orders: 'nation' is no column"):
        choose_layout(REVENUE, hint={"orders": ("nation",)})


def test_keys_and_foreign_keys_tell_facts_from_dimensions():
    text = """
    RELATION customer(cid INT, nation INT) KEY (cid);
    RELATION orders(oid INT, cid INT) KEY (oid) FOREIGN KEY (cid) REFERENCES customer (cid);
    RELATION lineitem(oid INT, price INT);
    MAP q[nation INT](v HUGEINT) = SUM[nation](customer(c, nation) * orders(o, c) * lineitem(o, p) * p);
    ON +customer(c, n) { q[n] += m1[c]; m2[c, n] += 1 }
    ON +orders(o, c)   { q[n] += m3[o] * m2[c, n]; m1[c] += m3[o]; m4[o, c] += 1 }
    ON +lineitem(o, p) { q[n] += p * m4[o, c] * m2[c, n]; m1[c] += p * m4[o, c]; m3[o] += p }
    """
    layout = choose_layout(parse(text))
    assert layout.partitioned == {"orders": ("oid",), "lineitem": ("oid",)}
    told = layout.explain()
    assert "One round in any number of buckets: orders by oid, lineitem by oid." in told
    assert "In every bucket: customer." in told
    assert "  m3  local(k1)  each entry in one bucket: nothing to merge" in told
    assert "  customer: not one round with" in told


def test_views_over_separate_tables_get_keys_of_their_own():
    text = """
    RELATION r(a INT); RELATION s(b INT);
    ON +r(a) { m[a] += 1 }
    ON +s(b) { n[b] += 1 }
    """
    assert choose_layout(parse(text)).partitioned == {"r": ("a",), "s": ("b",)}


def test_a_cyclic_program_gets_one_bucket_and_the_cycle_is_told():
    layout = choose_layout(parse("ON +S(A) { m1[A] += m2[A] } ON +T(B) { m2[B] += m1[B] }"))
    assert layout.one_bucket
    assert "m1 → m2 → m1" in layout.explain()
    assert layout.bucket_program(3, 4) == layout.program


ILLEGAL = [
    # Relation r is partitioned by a, s is in every bucket; p lies in parts, l by its key, e is the same everywhere.
    ("ON +s(b) { q[b] += EXISTS(p[b]) }", "EXISTS needs a whole value"),
    ("ON +s(b) { q[b] += (x := p[b]) * x }", "x is bound to a value that lies in parts"),
    ("ON +s(b) { q[b] += {p[b] > 1} }", "a condition or function needs the whole of p"),
    ("ON +s(b) { q[b] += p[b] * p[b] }", "a value that lies in parts is multiplied"),
    ("ON +s(b) { q[b] += p[b] + 1 }", "parts are added to a value that is the same in every bucket"),
    ("ON +s(b) { q[b] += l[x] * l[y] }", "it joins values at x and y"),
    ("ON +s(b) { q[b] += l[b] + 1 }", "it is not 0 outside the bucket of b"),
    ("ON +s(b) { q[b] += {l[b] = 0} }", "it is not 0 outside the bucket of b"),
    ("ON +s(b) { q[b] += SUM[](e[x] * {l[x] = 0}) }", "x, on which the value depends, is summed away"),
    ("ON +s(b) { q[b] += {MIN l[*] = b} }", "a condition or function needs the whole of l"),
    ("ON +s(b) { q[b] += {MIN[x](p[x]) = b} }", "MIN needs a whole value, not parts of it"),
    ("ON +s(b) { q[b] += EXISTS(e[b]) * (y := MAX[x](p[x] * e[b])) }", "MAX needs a whole value, not parts of it"),
    ("ON +s(b) { q[b] += {MIN[x](l[x]) = b} }", "MIN goes over x, and its values lie in different buckets"),
    ("ON +r(a, b) { q[a] += {MIN[a](l[a]) = b} }", "MIN goes over a, and its values lie in different buckets"),
    ("ON +s(b) { q[b] += (y := MAX[x](e[x] * l[b])) }", "it is not 0 outside the bucket of b"),
    ("ON +s(b) { top[x] := p[x] * {p[x] > 1} }", ":= needs the whole of p"),
    ("ON +r(a, b) { q[b] += l[b] }", "it joins values at a and b"),
    ("ON +r(a, b) { q[b] += p[b] }", "a value that lies in parts is multiplied"),
    ("ON +s(b) { q[b] += e[p[b]] }", "needs the whole of p"),
]
SPREAD = """
RELATION r(a INT, b INT); RELATION s(b INT);
ON -r(a, b) { l[a] += 1; p[b] += 1 }
ON -s(b) { e[b] += 1 }
"""


@pytest.mark.parametrize(("statement", "reason"), ILLEGAL)
def test_what_needs_another_bucket_is_refused(statement, reason):
    with pytest.raises(LayoutError) as caught:
        lay_out(parse(SPREAD + statement), {"r": ("a",)})
    assert reason in caught.value.message
    assert statement.split("{", 1)[1].strip("} ")[:7] in caught.value.message


LEGAL = [
    ("ON +s(b) { q[b] += p[b] }", "part"),
    ("ON +s(b) { q[b] += p[b] * e[b] * b }", "part"),
    ("ON +s(b) { q[x] += l[x] }", "local(k1)"),
    ("ON +s(b) { q[x] += l[x] * l[x] * {l[x] > 1} }", "local(k1)"),
    ("ON +s(b) { q[x] += EXISTS(l[x]) * (y := l[x]) * y }", "local(k1)"),
    ("ON +s(b) { q[b] += l[x] }", "part"),
    ("ON +s(b) { q[b] += l[b] * (1 + l[b]) }", "local(k1)"),
    ("ON +s(b) { q[b] += l[5] }", "part"),
    ("ON +s(b) { q[b] += SUM[](l[x] * {l[x] > 2}) }", "part"),
    ("ON +s(b) { q[b] += e[b] }", "same"),
    ("ON +r(a, b) { q[a] += l[a] * {l[a] = 0} }", "local(k1)"),
    ("ON +r(a, b) { q[x] += e[x] * (1 + l[a]) }", "part"),
    ("ON +r(a, b) { q[x] += (x := a) }", "local(k1)"),
    ("ON +s(b) { top[x] := l[x] * {l[x] > 1} }", "local(k1)"),
    ("ON +r(a, b) { q[a] += (y := MAX[x](e[x] * l[a])) * y }", "local(k1)"),
    ("ON +s(b) { q[x] += l[x] * {MIN[y](l[x] * e[y]) < b} }", "local(k1)"),
    ("ON +s(b) { q[b] += {MIN[x](e[x]) = b} }", "same"),
    ("ON +r(a, b) { q[a] += l[a] } ON +s(b) { q[b] += e[b] }", "part"),
]


@pytest.mark.parametrize(("statement", "tag"), LEGAL)
def test_what_needs_no_other_bucket_gets_its_tag(statement, tag):
    layout = lay_out(parse(SPREAD + statement), {"r": ("a",)})
    name = "top" if "top" in statement else "q"
    assert layout.tag_text(name) == tag


VIEWED = """
RELATION r(a INT, b INT); RELATION s(b INT);
MAP la[a INT](v INT); MAP lx[a INT, x INT](v INT); MAP p[b INT](v INT); MAP e[b INT](v INT);
ON +r(a, b) { la[a] += 1; lx[a, b] += 1; p[b] += 1 }
ON +s(b) { e[b] += 1 }
"""
VIEWS = [
    ("VIEW w(a INT, y INT) FROM la SELECT a, MAX lx[a, *]", ""),
    ("VIEW w(a INT, y INT) FROM la SELECT a, MIN[x](lx[a, x])", ""),
    ("VIEW w(a INT, y INT) FROM la SELECT a, v WHERE v > e[a] ORDER BY MAX e[*]", ""),
    ("VIEW w(b INT, y INT) FROM p SELECT b, v + e[b]", ""),
    ("VIEW w(b INT) FROM e SELECT b WHERE v > p[b]", "v > p[b].v, a condition or function needs the whole of p"),
    ("VIEW w(a INT) FROM la SELECT a REPEAT la[3]", "the whole of la, which lies in parts"),
    ("VIEW w(a INT) FROM la SELECT a ORDER BY la[v]", "it reads what lies in the bucket of v, where its rows do not"),
    (
        "VIEW w(b INT, y INT) FROM e SELECT b, MAX lx[b, *]",
        "it reads what lies in the bucket of b, where its rows do not",
    ),
    (
        "VIEW w(a INT, y INT) FROM la SELECT a, MAX[x](lx[x, a])",
        "MAX goes over x, and its values lie in different buckets",
    ),
    ("VIEW w(a INT, y INT) FROM la SELECT a, MAX lx[*, a]", "the whole of lx, which lies in parts"),
]


@pytest.mark.parametrize(("view", "reason"), VIEWS)
def test_a_view_reads_maps_only_where_its_rows_are(view, reason):
    program = parse(f"{VIEWED}{view};")
    if not reason:
        assert lay_out(program, {"r": ("a",)}).partitioned == {"r": ("a",)}
        return
    with pytest.raises(LayoutError) as caught:
        lay_out(program, {"r": ("a",)})
    assert caught.value.message.startswith("not one round with r by a: in VIEW w: ")
    assert reason in caught.value.message
    assert lay_out(program, {}).one_bucket


def test_a_view_that_needs_a_total_of_all_buckets_keeps_the_program_in_one():
    text = (
        VIEWED.replace("la[a] += 1;", "la[a] += 1; total[] += 1;") + "VIEW w(a INT) FROM la SELECT a WHERE v > total[];"
    )
    layout = choose_layout(parse(text), statistics=Statistics({"r": 1, "s": 0}))
    assert "r" not in layout.partitioned
    assert "r: not one round with r by a: in VIEW w: v > total[].v, a condition or function" in layout.explain()


def test_what_is_the_same_everywhere_goes_into_parts_only_once():
    layout = lay_out(parse(SPREAD + "ON +r(a, b) { q[b] += 1 } ON +s(b) { q[b] += e[b] }"), {"r": ("a",)})
    [(trigger, place)] = layout.first_only
    assert str(layout.program.triggers[trigger].statements[place].term) == "e[b].v"
    assert len(layout.bucket_program(0, 4).triggers[trigger].statements) == 1
    assert len(layout.bucket_program(1, 4).triggers[trigger].statements) == 0
    assert "Only in bucket 0:\n  ON +s: q[b] += e[b]" in layout.explain()


def test_batches_are_used_where_they_are_right():
    text = """
    RELATION r(a INT, b INT);
    ON +r(a, b) { m[a] += 1; q[b] += m[a] }
    ON BATCH r { m[a] += SUM[a](r(a, b)); q[b] += r(a, b) * m[a] }
    """
    program = parse(text)
    right = lay_out(program, {"r": ("a",)})
    assert right.batches == {"r"}
    assert right.bucket_program(1, 4).trigger(On.BATCH, "r") is not None
    # The batch sums b away before it meets m: by b, that would be a part where single events are at home.
    worse = parse(
        text.replace("q[b] += r(a, b) * m[a]", "q[x] += SUM[a](r(a, b)) * e[x]").replace("+= m[a] }", "+= 1 }")
    )
    assert lay_out(worse, {"r": ("b",)}).batches == frozenset()
    assert lay_out(worse, {"r": ("b",)}).bucket_program(1, 4).trigger(On.BATCH, "r") is None


def test_merging_adds_parts_and_drops_what_cancels():
    layout = lay_out(parse(SPREAD), {"r": ("a",)})
    assert layout.merged("p", [[((1,), (2,)), ((2,), (1,))], [((1,), (3,)), ((2,), (-1,))]]) == {(1,): (5,)}
    assert layout.merged("l", [[((1,), (2,))], [((2,), (1,))]]) == {(1,): (2,), (2,): (1,)}
    assert layout.merged("e", [[((1,), (2,))], [((1,), (2,))]]) == {(1,): (2,)}
    counted = lay_out(
        parse("RELATION r(a INT); MAP p[](n BIGINT, s BIGINT) COUNT n; ON +r(a) { p.n += 1 }"), {"r": "a"}
    )
    assert counted.merged("p", [[((), (1, 5))], [((), (-1, -4))]]) == {}


SALES = """
RELATION sales(id INT, day INT, amount INT) KEY (id, day);
MAP by_day[day INT](s HUGEINT) = SUM[day](sales(id, day, amount) * amount);
VIEW by_day(day INT, s HUGEINT) FROM by_day SELECT day, s;
ON +sales(id, day, amount) { by_day[day] += amount }
ON -sales(id, day, amount) { by_day[day] += -amount }
"""


def test_a_column_of_few_values_is_no_key_to_spread_by():
    program = parse(SALES)
    many = Statistics({"sales": 10**6}, {("sales", "id"): 500_000, ("sales", "day"): 20_000})
    assert choose_layout(program, many).partitioned == {"sales": ("day",)}  # nothing to add up
    few = Statistics({"sales": 10**6}, {("sales", "id"): 500_000, ("sales", "day"): 3})
    assert choose_layout(program, few).partitioned == {"sales": ("id",)}
    common = Statistics(many.rows, many.distinct, {("sales", "day"): 0.6})  # one day has most of the rows
    assert choose_layout(program, common).partitioned == {"sales": ("id",)}
    neither = Statistics({"sales": 10**6}, {("sales", "id"): 5, ("sales", "day"): 7})
    assert choose_layout(program, neither).partitioned == {"sales": ("id", "day")}


def test_shares_say_how_even_a_choice_is():
    loads = loads_of(parse(SALES), Statistics({"sales": 100}, {("sales", "day"): 1}))
    assert loads.heaviest({}, 4) == loads.heaviest({"sales": ("day",)}, 4) == 1.0
    assert 0.25 < loads.heaviest({"sales": ("id", "day")}, 4) < 0.4
    assert loads.distinct("sales", ("id", "day")) == 100
