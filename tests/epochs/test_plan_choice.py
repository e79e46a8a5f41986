"""The sentence of a plan: who is uneven, which view holds others back, which columns have too few values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler import compile_sql
from cumulus.durable.store import store_of
from cumulus.epochs.first_counts import count_first_files, counts_for, read_counts, with_given, write_counts
from cumulus.epochs.plan_choice import choice_of_plan, choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError
from cumulus.explain.sizes import Statistics
from cumulus.m3 import parse

BAG = "CREATE TABLE sales (shop INT, day INT, amount INT);"
BY_SHOP = "CREATE VIEW by_shop AS SELECT shop, SUM(amount) AS s FROM sales GROUP BY shop;"
PAIRS = "CREATE VIEW pairs AS SELECT a.day, COUNT(*) AS n FROM sales a, sales b WHERE a.day = b.day GROUP BY a.day;"
ABOVE = """
CREATE VIEW above AS SELECT COUNT(*) AS n FROM (SELECT shop, SUM(amount) AS s FROM sales GROUP BY shop) x
WHERE s > (SELECT SUM(amount) / 2 FROM sales);
"""


def test_a_column_with_fewer_values_than_buckets_is_told() -> None:
    program = compile_sql(BAG + PAIRS, rely=False)
    chosen = choice_of_plan(program, "one-round", 8, Statistics({"sales": 1000}, {("sales", "day"): 3}))
    assert "day of sales has 3 values, so no more buckets have rows of it" in chosen.plan.why
    assert "times its part" in chosen.plan.why


def test_a_view_that_holds_others_back_is_named() -> None:
    why = choose_plan(compile_sql(BAG + BY_SHOP + ABOVE, rely=False), "auto", 4).why
    assert why.startswith(
        "one bucket, since no table can be partitioned: above holds the others back: without, sales by "
    )


def test_a_layout_that_is_not_legal_names_the_view() -> None:
    program = compile_sql(BAG + BY_SHOP + PAIRS, rely=False)
    with pytest.raises(LayoutError, match="view pairs: not one round with sales by shop: "):
        choose_plan(program, "one-round:sales=shop", 2)


def test_first_files_are_counted_in_proportion(tmp_path: Path) -> None:
    program = compile_sql(BAG + BY_SHOP, rely=False)
    for number in range(3):
        rows = {"shop": list(range(1000)), "day": [0] * 900 + [1] * 100, "amount": [None] * 1000}
        (tmp_path / "in" / "sales").mkdir(parents=True, exist_ok=True)
        table = pa.table(rows, schema=pa.schema([(name, pa.int32()) for name in rows]))
        pq.write_table(table, tmp_path / "in" / "sales" / f"{number}.parquet")
    sources = sources_from([str(tmp_path / "in")], program)
    found = count_first_files(program, sources)
    assert found.rows == {"sales": 3000}
    assert [found.distinct["sales", name] for name in ("shop", "day", "amount")] == [3000, 2, 1]
    assert [found.commonest["sales", name] for name in ("shop", "day", "amount")] == [0.001, 0.9, 1.0]
    given = with_given(found, Statistics({"sales": 5}, {("sales", "day"): 400}))
    assert (given.rows["sales"], given.distinct["sales", "day"]) == (5, 400)
    assert ("sales", "day") not in given.commonest
    assert counts_for(program, sources, "auto", 1, None) == Statistics()
    checkpoint = store_of(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").mkdir()
    assert read_counts(checkpoint) == Statistics()
    write_counts(checkpoint, found)
    assert read_counts(checkpoint) == found


def test_files_that_tell_nothing_are_left_to_the_run(tmp_path: Path) -> None:
    program = compile_sql(BAG + BY_SHOP, rely=False)
    (tmp_path / "in" / "sales").mkdir(parents=True)
    sources = sources_from([str(tmp_path / "in")], program)
    assert count_first_files(program, sources) == Statistics()
    (tmp_path / "in" / "sales" / "0.parquet").write_bytes(b"no parquet")
    assert count_first_files(program, sources) == Statistics()


def test_a_cyclic_program_has_one_bucket() -> None:
    program = parse(
        """
        RELATION s(a INT) KEY (a) KEPT rows; RELATION t(b INT);
        MAP rows[a INT](n BIGINT) = s(a); MAP m1[a INT](v BIGINT); MAP m2[a INT](v BIGINT);
        VIEW v(a INT, x BIGINT) FROM m1 SELECT a, v;
        ON +s(a) { rows[a] += 1; m1[a] += m2[a] } ON +t(b) { m2[b] += m1[b] }
        """
    )
    assert "the maps of the program form a cycle: m1 → m2 → m1" in choose_plan(program, "auto", 3).why
