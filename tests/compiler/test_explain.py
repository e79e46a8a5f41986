"""What `explain` says a view costs, and what it cannot know."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.compiler.explain import explain
from cumulus.errors import UnknownNameError

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
    return {f"{event.on.value}{event.relation}": event.kind for event in explain(program, view).events}


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
    assert set(costs("NOT NULL", "pairs").values()) == {"O(map)"}


def test_shared_maps_are_named_with_who_shares_them():
    program = compile_sql(SHOP.format(key="NOT NULL"), keep="none")
    shared = dict(explain(program, "revenue").shared_with)
    assert ["sold"] in [list(who) for who in shared.values()]


def test_an_unknown_view_is_told_with_those_that_are_there():
    program = compile_sql(SHOP.format(key="NOT NULL"))
    with pytest.raises(UnknownNameError, match=r"no view nothing\nThe views are revenue, sold, pairs\."):
        explain(program, "nothing")
