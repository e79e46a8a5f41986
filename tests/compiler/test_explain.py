"""What `explain` says a view costs, and what it cannot know."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import UnknownNameError
from cumulus.explain.lineage import MapReasons
from cumulus.explain.sizes import Statistics
from cumulus.explain.view_costs import explain, explain_views
from cumulus.m3 import parse
from cumulus.m3.program import On

SHOP = """
CREATE TABLE c (cid INT {key}, nation INT NOT NULL);
CREATE TABLE o (oid INT {key}, cid INT NOT NULL, discount INT NOT NULL);
CREATE TABLE l (oid INT NOT NULL, price INT NOT NULL);
CREATE VIEW revenue AS SELECT nation, SUM(discount * price) AS r FROM c, o, l
  WHERE c.cid = o.cid AND o.oid = l.oid GROUP BY nation;
CREATE VIEW sold AS SELECT oid, SUM(price) AS s FROM l GROUP BY oid;
CREATE VIEW pairs AS SELECT COUNT(*) AS n FROM l a, l b WHERE a.price < b.price;
"""


def costs(key: str, view: str) -> dict[str, str]:
    program = compile_sql(SHOP.format(key=key), keep="none")
    return {str(event): str(event.cost) for event in explain(program, view).events if event.on is not On.BATCH}


def test_without_keys_a_customer_may_have_many_entries():
    assert costs("NOT NULL", "revenue") == {
        "+c": "O(slice)", "-c": "O(slice)", "+o": "O(slice)", "-o": "O(slice)", "+l": "O(slice)", "-l": "O(slice)",
    }  # fmt: skip


def test_a_primary_key_makes_the_slice_of_its_parent_one_entry():
    found = costs("PRIMARY KEY", "revenue")
    assert found["+o"] == "O(1)"  # one customer, the sum of the order's items
    assert found["+l"] == "O(1)"  # one order, of one customer
    assert found["+c"] == "O(slice)"  # a customer has many orders


def test_a_sum_over_one_table_is_constant():
    assert set(costs("NOT NULL", "sold").values()) == {"O(1)"}


def test_an_inequality_between_two_rows_reads_a_whole_map():
    assert set(costs("NOT NULL", "pairs").values()) == {"O(n)"}


def test_shared_maps_are_named_with_who_shares_them():
    program = compile_sql(SHOP.format(key="NOT NULL"), keep="none")
    assert ("sold",) in [use.views for use in explain(program, "revenue").maps]


def test_an_unknown_view_is_told_with_those_that_are_there():
    program = compile_sql(SHOP.format(key="NOT NULL"))
    with pytest.raises(UnknownNameError, match=r"no view nothing\nViews: revenue, sold, pairs\."):
        explain(program, "nothing")


def test_an_inequality_is_named_as_the_reason_of_the_scan():
    program = compile_sql(SHOP.format(key="NOT NULL"), keep="none")
    reasons = explain(program, "pairs").reasons
    assert reasons
    assert all("only {" in reason and "ties it to the event" in reason for reason in reasons)


def test_a_product_without_a_condition_is_named_too():
    program = parse("VIEW v(n) FROM q SELECT v; ON +R(a) { q[] += a * m[x] }")
    assert explain(program, "v").reasons == ("q scans all of m: nothing ties it to the event",)


def test_what_is_computed_anew_is_told_with_its_term():
    program = parse("VIEW v(n) FROM q SELECT v; ON +R(a) { m[a] += 1; q[] := m[x] * x }")
    found = explain(program, "v")
    assert str(found.cost) == "re-evaluation"
    assert found.reasons == ("q is computed anew after every change, from m: m[x].v * x",)
    assert [each.rows for each in found.subscribed] == ["all rows that change when it is computed anew"]


def test_a_subscriber_hears_of_one_row_or_of_a_slice():
    program = compile_sql(SHOP.format(key="PRIMARY KEY"), keep="none")
    heard = {each.relation: each.rows for each in explain(program, "revenue").subscribed}
    assert heard["c"] == "1 row"  # the customer's nation
    assert heard["l"] == "1 row"
    program = compile_sql(SHOP.format(key="NOT NULL"), keep="none", batches=False)
    heard = {each.relation: each.rows for each in explain(program, "revenue").subscribed}
    assert heard["c"] == "1 row"
    assert heard["o"].startswith("a row for each entry of the slice of ")


def heard(text: str) -> dict[str, str]:
    return {each.relation: each.rows for each in explain(parse(text), "v").subscribed}


def test_a_subscriber_hears_of_the_old_and_the_new_group():
    # How many customers have n orders: an order takes its customer from one group to another.
    assert heard("""
        VIEW v(n, k) FROM q SELECT k1, v;
        ON +R(c) { q[n] += (n := m[c] + 1) * {n > 0}; q[n] += -1 * (n := m[c]) * {n > 0}; m[c] += 1 }
    """) == {"R": "2 rows"}


def test_a_loop_inside_a_nested_term_touches_one_row():
    assert heard("VIEW v(n, k) FROM q SELECT k1, v; ON +R(c) { q[c] += (n := SUM[](m[c, x] * x)) * n }") == {
        "R": "1 row"
    }
    assert heard("VIEW v(n, k) FROM q SELECT k1, v; ON +R(c) { q[x] += m[c, x] }") == {
        "R": "a row for each entry of the slice of m with that k1, over k2"
    }


def test_what_a_view_reads_beside_its_rows_touches_one_row_or_all():
    ends = "MAP e[g INT, x INT](n BIGINT) ORDERED x; VIEW v(g, hi) FROM q SELECT k1, MAX e[k1, *];"
    assert heard(f"{ends} ON +R(g, x) {{ q[g] += 1; e[g, x] += 1 }} ON +S(x) {{ e[x, x] += 1 }}") == {
        "R": "1 row",
        "S": "1 row",
    }
    having = "VIEW v(g, s) FROM q SELECT k1, v WHERE v > t[].v;"
    assert heard(f"{having} ON +R(g, x) {{ q[g] += x; t[] += x }} ON +S(g) {{ q[g] += 1 }}") == {
        "R": "all rows: the view reads a map of other keys when it is read",
        "S": "1 row",
    }


def test_sizes_are_formulas_until_counts_are_given():
    program = compile_sql(SHOP.format(key="PRIMARY KEY"), keep="none")
    sizes = {use.definition.name: use.size for use in explain(program, "revenue").maps}
    assert sizes["revenue"].formula == "distinct(c.nation)"
    assert sizes["revenue"].entries is None
    counts = Statistics({"c": 1000, "o": 5000, "l": 20_000}, {("c", "nation"): 25})
    found = explain(program, "revenue", counts)
    sizes = {use.definition.name: use.size for use in found.maps}
    assert sizes["revenue"].entries == 25
    assert all(size.entries is not None and size.entries <= 20_000 for size in sizes.values())
    assert found.bytes is not None
    assert "≤ 25 = distinct(c.nation) entries" in str(found)


def test_text_and_data_say_the_same():
    program = compile_sql(SHOP.format(key="NOT NULL"))
    found = explain(program, "revenue")
    text, data = str(found), found.as_dict()
    for event in data["events"]:
        if "BATCH" not in event["event"]:
            assert f"ON {event['event']}: {event['cost']}, {len(event['statements'])} statement" in text
    assert all(each["sql"] in text for each in data["maps"])
    assert {event["event"] for event in data["events"]} >= {"+c", "-c", "BATCH c"}


def test_a_trace_tells_every_delta_pass_by_pass():
    told: list[str] = []
    program = compile_sql(SHOP.format(key="NOT NULL"), keep="none", trace=told.append)
    heads = [line for line in told if line.startswith("ON ")]
    assert any(line.startswith("ON +c(cid, nation) of ") for line in heads)
    assert any(line.startswith("ON BATCH l of ") for line in heads)
    assert told[1].startswith("  delta: ")
    assert any("(cid' := cid)" in line for line in told)
    assert {line.split(":")[0].strip() for line in told if line.startswith("  ")} >= {"delta", "fold", "unify"}
    assert not any("\0" in line for line in told)
    assert str(program) == str(compile_sql(SHOP.format(key="NOT NULL"), keep="none"))


KEYED = """
    CREATE TABLE nation (nk INTEGER PRIMARY KEY, name VARCHAR, note VARCHAR);
    CREATE TABLE cust (ck INTEGER PRIMARY KEY, nk INTEGER REFERENCES nation, seg INTEGER);
    CREATE TABLE ord (ok INTEGER PRIMARY KEY, ck INTEGER REFERENCES cust, price INTEGER);
    CREATE VIEW v AS SELECT name, SUM(price * seg) AS s FROM nation JOIN cust USING (nk) JOIN ord USING (ck)
        GROUP BY name;
    CREATE VIEW w AS SELECT seg, COUNT(*) AS n FROM cust JOIN ord USING (ck) GROUP BY seg;
"""


def test_a_change_of_a_parent_is_said_in_both_settings() -> None:
    program, often = compile_sql(KEYED), compile_sql(KEYED, enforced=False)
    of_v, of_w = explain_views(program, often=often)
    assert [(each.table, each.columns, each.moves) for each in of_v.parents] == [
        ("nation", ("name",), ("cust", "ord")),
        ("cust", ("nk", "seg"), ("ord",)),
    ]
    assert [str(each.often) for each in of_v.parents] == ["O(slice)", "O(1)"]
    assert {each.more_maps for each in of_v.parents} == {len(often.maps) - len(program.maps)}
    assert [(each.table, each.columns) for each in of_w.parents] == [("cust", ("seg",))]
    assert "nation (name): moves the rows of cust and ord that refer to it; O(slice) and" in str(of_v)
    assert explain_views(often)[0].parents == ()


def test_a_count_of_an_outer_join_moves_rows_whatever_changes() -> None:
    view = "CREATE VIEW u AS SELECT seg, COUNT(*) AS n FROM cust LEFT JOIN ord USING (ck) GROUP BY seg;"
    of_u = explain(compile_sql(KEYED + view), "u")
    assert "  cust (nk, seg): moves the rows of ord that refer to it" in str(of_u).splitlines()
    absent = "CREATE VIEW x AS SELECT SUM(seg) AS s FROM cust WHERE NOT EXISTS (FROM ord o WHERE o.ck = cust.ck);"
    of_x = explain(compile_sql(KEYED + absent), "x")
    assert [(each.table, each.columns) for each in of_x.parents] == [("cust", ("nk", "seg"))]


def test_each_map_says_why_it_is_there() -> None:
    found = {use.definition.name: use.why for one in explain_views(compile_sql(KEYED)) for use in one.maps}
    assert found["v"] == ("the rows of v",)
    assert {why for clauses in found.values() for why in clauses if "changes" in why} == {
        "changes of cust need the rows of nation that join with them (v)",
        "changes of ord need the rows of nation and cust that join with them (v)",
        "changes of ord need the rows of cust that join with them (w)",
    }


def test_kept_rows_say_what_they_are_kept_for() -> None:
    program = compile_sql(KEYED)
    reasons = MapReasons(program, {})
    assert {table: reasons.of(program.map(name)) for table, name in program.kept} == {
        "nation": ("keeps the rows of nation, whose key is checked",),
        "cust": ("keeps the rows of cust, whose key is checked", "rows that refer to nation are found by it"),
        "ord": ("keeps the rows of ord, whose key is checked", "rows that refer to cust are found by it"),
    }


def test_a_map_without_a_definition_is_needed_by_changes_alone() -> None:
    text = "VIEW v(n) FROM q SELECT v; ON +R(a) { q[] += m[a]; m[a] += 1 }"
    found = explain(parse(text), "v")
    assert [use.why for use in found.maps] == [("the rows of v",), ("changes of R need it (v)",)]
    assert "    why: changes of R need it (v)" in str(found)
    assert [each["why"] for each in found.as_dict()["maps"]] == [list(use.why) for use in found.maps]
