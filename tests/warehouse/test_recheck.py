"""`Warehouse.recheck`: views against kept rows, and the witnesses of what somebody broke."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from cumulus import Warehouse
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3 import parse

SQL = """
CREATE TABLE c (cid INT PRIMARY KEY, nation VARCHAR);
CREATE TABLE o (oid INT PRIMARY KEY, cid INT NOT NULL, price DECIMAL(8,2), weight DOUBLE, day DATE);
CREATE VIEW revenue AS SELECT nation, SUM(price) AS s, AVG(weight) AS w FROM c, o WHERE c.cid = o.cid GROUP BY nation;
CREATE VIEW heavy AS SELECT SUM(weight) AS w, COUNT(*) AS n FROM o WHERE weight > 1;
CREATE VIEW dear AS SELECT oid, nation, price FROM c JOIN o USING (cid) WHERE price > 3;
CREATE VIEW best AS SELECT nation, COUNT(*) AS n FROM c JOIN o USING (cid) GROUP BY nation ORDER BY n DESC LIMIT 2;
"""


def filled(sql: str = SQL, **options: str) -> Warehouse:
    draw = random.Random(7)
    wh = Warehouse(sql, **options)  # type: ignore[arg-type]
    wh.insert("c", [(k, draw.choice(["Peru", "Japan", "Mali", None])) for k in range(12)])
    orders = [
        (k, draw.randrange(14), Decimal(draw.randrange(900)) / 100, draw.choice([None, 0.1, 1.7, 1e9, -1e9]), None)
        for k in range(60)
    ]
    wh.insert("o", orders)
    wh.delete("o", orders[10:30])
    return wh


def corrupt(wh: Warehouse, name: str, change: dict[tuple, tuple | None]) -> None:
    """Write other entries into a map, as a bug would."""
    entries = dict(wh._state.session.engine.items(name)) | change
    wh._state.session.engine.load(name, [(key, values) for key, values in entries.items() if values is not None])


def test_what_was_kept_by_changes_is_what_sql_computes():
    wh = filled()
    report = wh.recheck()
    assert report.is_equal, str(report)
    assert [each.name for each in report.views] == ["revenue", "heavy", "dear", "best"]
    assert {each.by for each in report.views} == {"SQL"}
    assert str(report.views[1]) == "heavy: 1 row, equal"


def test_a_wrong_entry_is_shown_with_both_rows():
    wh = filled()
    definition = wh.program.map("revenue")
    values = list(dict(wh._state.session.engine.items("revenue"))[("Peru",)])
    was = wh.view("revenue").get("Peru")
    values[definition.column_index("s")] += 1
    corrupt(wh, "revenue", {("Peru",): tuple(values)})
    report = wh.recheck("revenue")
    assert not report
    (witness,) = report.views[0].witnesses
    assert witness.key == ("Peru",)
    assert witness.recomputed[:2] == was[:2]
    assert witness.stored[1] == was[1] + 1
    assert "at ('Peru'): stored (" in str(report)
    assert wh.recheck("dear", "heavy").is_equal  # the others are as they should be


def test_a_lost_entry_and_one_too_many_are_told_apart():
    wh = filled()
    values = dict(wh._state.session.engine.items("revenue"))[("Mali",)]
    corrupt(wh, "revenue", {("Mali",): None, ("Atlantis",): values})
    told = str(wh.recheck("revenue"))
    assert "missing: ('Mali', " in told
    assert "should not be there: ('Atlantis', " in told


def test_maps_are_compared_with_their_definitions():
    wh = filled()
    report = wh.recheck(maps=True)
    assert report.is_equal, str(report)
    others = {*wh.views, *dict(wh.program.kept).values()}
    inner = next(each.name for each in wh.program.maps if each.name not in others)
    key, values = next(iter(wh._state.session.engine.items(inner)))
    corrupt(wh, inner, {key: tuple(value * 2 for value in values)})
    report = wh.recheck(maps=True)
    assert all(view.is_equal for view in report.views)  # nothing has read the map since
    assert [(each.name, each.different) for each in report.maps if not each.is_equal] == [(inner, 1)]
    assert report.maps[0].by == "definition"


def test_all_maps_are_compared_whatever_views_are():
    wh = Warehouse(
        "CREATE TABLE r (a INT PRIMARY KEY); CREATE TABLE s (b INT PRIMARY KEY); CREATE VIEW v AS SELECT a FROM r"
    )
    wh.insert("r", [(1,)])
    wh.insert("s", [(2,)])
    report = wh.recheck("v", maps=True)
    assert report.is_equal, str(report)
    assert "s_rows" in [each.name for each in report.maps]


def test_witnesses_are_few_and_counted():
    wh = filled()
    corrupt(wh, "dear", {key: None for key, _ in wh._state.session.engine.items("dear")})
    (checked,) = wh.recheck("dear", limit=2).views
    assert (checked.rows, len(checked.witnesses)) == (0, 2)
    assert checked.different > 2
    assert f"… and {checked.different - 2} more" in str(wh.recheck("dear", limit=2))


def test_rows_that_are_not_kept_are_named():
    wh = Warehouse(SQL.replace("oid INT PRIMARY KEY", "oid INT NOT NULL"))
    wh.insert("o", [(1, 1, Decimal(2), 1.5, None)])
    with pytest.raises(UsageError, match=r"the rows of o are not kept.*\n.*keep='all'"):
        wh.recheck()
    assert filled(SQL.replace("oid INT PRIMARY KEY", "oid INT NOT NULL"), keep="all").recheck().is_equal
    with pytest.raises(UnknownNameError):
        wh.recheck("nothing")


def test_a_tie_at_the_limit_is_no_difference():
    wh = Warehouse("""
        CREATE TABLE r (a INT PRIMARY KEY, x INT NOT NULL);
        CREATE VIEW top AS SELECT a, x FROM r ORDER BY x DESC LIMIT 2;
        CREATE VIEW one AS SELECT a FROM r LIMIT 1;
    """)
    rows = [(a, 5) for a in range(20)]
    random.Random(3).shuffle(rows)
    wh.insert("r", [*rows, (100, 9)])
    assert wh.recheck().is_equal
    corrupt(
        wh,
        "top",
        {key: (2 * n[0],) if key[-1] == 9 or key[0] == 100 else n for key, n in wh._state.session.engine.items("top")},
    )
    assert not wh.recheck("top").is_equal  # the row with 9 stands twice now


def test_sums_of_floats_that_cancel_may_differ_by_their_magnitude():
    wh = Warehouse("CREATE TABLE r (a INT PRIMARY KEY, x DOUBLE); CREATE VIEW v AS SELECT SUM(x) AS s FROM r")
    wh.insert("r", [(0, 1e17), *((k, 1.0) for k in range(1, 60)), (60, -1e17)])
    assert wh.view("v").get() == (59.0,)  # DuckDB, adding one by one, may say something else
    assert wh.recheck().is_equal
    corrupt(wh, "r_rows", {(0, 1e17): None, (60, -1e17): None})
    assert wh.recheck().is_equal
    corrupt(wh, "r_rows", {(1, 1.0): None})
    assert not wh.recheck().is_equal  # without what cancels, one is a difference


def test_m3_is_checked_by_the_definitions_of_its_maps():
    wh = Warehouse(
        parse("""
        RELATION r(a INT, x INT) KEPT rows;
        MAP rows[a INT, x INT](n BIGINT) COUNT n = r(a, x);
        MAP q[a INT](s BIGINT) = SUM[a](r(a, x) * x);
        VIEW v(a INT, s BIGINT) FROM q SELECT a, s;
        ON +r(a, x) { rows[a, x] += 1; q[a] += x }
        ON -r(a, x) { rows[a, x] += -1; q[a] += -x }
    """)
    )
    wh.insert("r", [(1, 5), (1, 6), (2, 7)])
    report = wh.recheck(maps=True)
    assert report.is_equal, str(report)
    assert {each.by for each in report.views} == {"definition"}
    corrupt(wh, "q", {(1,): (12,)})
    assert str(wh.recheck().views[0].witnesses[0]) == "at (1): stored (1, 12), recomputed (1, 11)"


def test_a_map_without_a_definition_cannot_be_checked():
    wh = Warehouse(parse("RELATION r(a INT); VIEW v(n) FROM q SELECT v; ON +r(a) { q[] += 1 }"))
    with pytest.raises(UsageError, match="map q has no definition"):
        wh.recheck()
