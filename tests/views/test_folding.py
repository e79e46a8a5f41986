"""Folding views: what an average of several groups is, what selections mean, and what is refused with which words."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import pytest

import cumulus
from cumulus import errors, m3

FLIGHTS = """
CREATE TABLE flights (origin VARCHAR, carrier VARCHAR, month INT, delay INT, distance DOUBLE);
CREATE VIEW delays AS
SELECT origin, carrier, month, COUNT(*) AS flights, AVG(delay) AS mean_delay, MIN(delay) AS least, MAX(delay) AS most,
       COUNT(DISTINCT delay) AS delays, SUM(distance) AS miles
FROM flights GROUP BY origin, carrier, month;
"""
ROWS = [
    *[("EWR", "UA", 1, delay, 1000.5) for delay in (20, 20, 14, 16, 20)],
    ("EWR", "AA", 1, 4, 1e16),
    ("EWR", "AA", 2, -2, -1e16),
    ("JFK", "DL", 2, 20, None),
    ("JFK", None, 2, None, None),
]


@pytest.fixture(params=["interpreter", "native"])
def flights(request: pytest.FixtureRequest) -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(FLIGHTS, engine=request.param)
    warehouse.insert("flights", ROWS)
    return warehouse


def rows(partial: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in partial.finish().to_pylist()), key=repr)


def test_an_average_of_groups_is_that_of_their_rows(flights: cumulus.Warehouse) -> None:
    view = flights.view("delays")
    wrong = flights.query("SELECT AVG(mean_delay) FROM delays WHERE origin = 'EWR'").rows()
    assert wrong == [(pytest.approx(20 / 3),)]  # a mean of the means 18, 4 and -2
    partial = view.fold(by=["origin"], columns=["mean_delay"])
    assert rows(partial) == [("EWR", pytest.approx(92 / 7)), ("JFK", 20.0)]
    assert partial.map == "delays"
    assert partial.entries_read == len(view.rows()) == 5
    assert partial.at == 1
    assert partial.by == ("origin",)
    assert repr(partial) == "<parts of delays by (origin): 2 groups of 5 entries read>"


def test_ends_distinct_values_and_floats_of_groups_are_those_of_their_rows(flights: cumulus.Warehouse) -> None:
    partial = flights.view("delays").fold(["origin"], columns=["least", "most", "delays", "miles"])
    # 1e16 comes and goes: what it left out of the sum is kept beside it.
    assert rows(partial) == [("EWR", -2, 20, 5, 5002.5), ("JFK", 20, 20, 1, None)]
    assert {name: {str(kind) for kind in kinds} for name, kinds in partial.kinds.items()} == {
        "least": {"end"},
        "most": {"end"},
        "delays": {"distinct"},
        "miles": {"additive"},
    }


@pytest.mark.parametrize(
    ("where", "flown"),
    [
        ({"origin": "EWR"}, 7),
        ({"ORIGIN": "EWR", "month": 2}, 1),
        ({"carrier": None}, 1),
        ({"carrier": ["AA", None]}, 3),
        ({"carrier": cumulus.between("AA", "DL")}, 3),
        ({"carrier": cumulus.between(high="DL")}, 3),
        ({"month": cumulus.between(2)}, 3),
        ({"month": cumulus.between()}, 9),
        ({"carrier": cumulus.between()}, 8),  # NULL is in no range
        ({}, 9),
    ],
)
def test_groups_are_selected_by_values_lists_and_ranges(where: dict[str, Any], flown: int) -> None:
    warehouse = cumulus.Warehouse(FLIGHTS, engine="interpreter")
    warehouse.insert("flights", ROWS)
    assert rows(warehouse.view("delays").fold([], where, ["flights"])) == [(flown,)]


def test_no_groups_give_no_row_and_an_empty_list_selects_none(flights: cumulus.Warehouse) -> None:
    view = flights.view("delays")
    assert rows(view.fold([], {"carrier": []})) == []
    assert rows(view.fold(["origin"], {"month": 7})) == []


def test_a_view_without_grouping_columns_folds_to_its_row() -> None:
    warehouse = cumulus.Warehouse("CREATE TABLE r (x INT); CREATE VIEW v AS SELECT SUM(x) AS s, COUNT(*) AS n FROM r")
    assert rows(warehouse.view("v").fold([])) == [(None, 0)]


def test_a_view_of_ends_alone_folds_to_its_row() -> None:
    warehouse = cumulus.Warehouse("CREATE TABLE r (x INT); CREATE VIEW v AS SELECT MIN(x) AS least FROM r")
    assert rows(warehouse.view("v").fold([])) == [(None,)]
    warehouse.insert("r", [(5,), (3,)])
    assert rows(warehouse.view("v").fold([])) == [(3,)]


def test_parts_of_two_warehouses_are_the_whole(flights: cumulus.Warehouse) -> None:
    others = [cumulus.Warehouse(FLIGHTS, engine="interpreter") for _ in range(2)]
    for place, row in enumerate(ROWS):
        others[place % 2].insert("flights", [row])
    first, second = (each.view("delays").fold(["origin"]) for each in others)
    before = rows(first)
    assert rows(first + second) == rows(second + first) == rows(flights.view("delays").fold(["origin"]))
    assert rows(first) == before
    assert (first + second).at is None
    assert (first + second).entries_read == first.entries_read + second.entries_read


def test_a_group_that_is_negative_counts_until_another_share_heals_it() -> None:
    script = (
        "CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, x, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY a, x"
    )
    one, other = (cumulus.Warehouse(script, engine="interpreter") for _ in range(2))
    one.delete("r", [(1, 5)])
    other.insert("r", [(1, 5), (1, 5)])
    parts = one.view("v").fold(["a"])
    assert rows(parts) == []
    assert rows(parts + other.view("v").fold(["a"])) == [(1, 1, 5)]


def test_a_sum_beyond_its_type_is_named() -> None:
    script = "CREATE TABLE r (a INT, x HUGEINT); CREATE VIEW v AS SELECT a, SUM(x) AS total FROM r GROUP BY a"
    warehouse = cumulus.Warehouse(script, engine="interpreter")
    warehouse.insert("r", [(1, 2**126), (2, 2**126), (3, -(2**126))])
    view = warehouse.view("v")
    with pytest.raises(errors.EvaluationError, match=r"view v folded by \(\), total at \(\): .* does not fit 128 bits"):
        view.fold([], {"a": [1, 2]}).finish()
    assert rows(view.fold([])) == [(2**126,)]  # parts may be beyond it on the way


def test_columns_that_a_join_makes_equal_are_one_key() -> None:
    warehouse = cumulus.Warehouse("""
        CREATE TABLE r (a INT, x INT); CREATE TABLE s (a BIGINT, y INT);
        CREATE VIEW v AS SELECT r.a AS left_a, s.a AS right_a, y, SUM(x) AS s FROM r JOIN s ON r.a = s.a GROUP BY ALL
    """)
    warehouse.insert("r", [(1, 10), (2, 5)])
    warehouse.insert("s", [(1, 1), (1, 2), (2, 1)])
    view = warehouse.view("v")
    assert rows(view.fold(["right_a"])) == [(1, 20), (2, 5)]
    assert rows(view.fold(["left_a", "right_a"], {"right_a": 1})) == [(1, 1, 20)]


def test_what_tells_of_grouping_columns_is_left_out_with_them() -> None:
    warehouse = cumulus.Warehouse("""
        CREATE TABLE r (a INT, b INT, x DECIMAL(9,2));
        CREATE VIEW v AS SELECT a, a * 2 AS twice, b, SUM(x) AS s, a * SUM(x) AS mixed FROM r GROUP BY a, b ORDER BY s
    """)
    warehouse.insert("r", [(1, 1, "1.50"), (1, 2, "2.25"), (3, 1, 1)])
    view = warehouse.view("v")
    assert view.fold(["a"]).finish().to_pylist() == [
        {"a": 1, "twice": 2, "s": Decimal("3.75"), "mixed": Decimal("3.75")},
        {"a": 3, "twice": 6, "s": Decimal("1.00"), "mixed": Decimal("3.00")},
    ]
    with pytest.raises(
        errors.UsageError, match="column mixed of view v cannot be folded: it needs the grouping column a"
    ):
        view.fold(["b"])
    assert view.fold(["b"], columns=["s"]).finish().num_rows == 2


REFUSED = """
CREATE TABLE r (a INT, b INT, x INT); CREATE TABLE s (a INT, y INT);
CREATE VIEW plain AS SELECT a, b FROM r;
CREATE VIEW having_ AS SELECT a, b, COUNT(*) AS n FROM r GROUP BY a, b HAVING COUNT(*) > 1;
CREATE VIEW limited AS SELECT a, b, COUNT(*) AS n FROM r GROUP BY a, b ORDER BY n LIMIT 2;
CREATE VIEW cubed AS SELECT a, b, COUNT(*) AS n FROM r GROUP BY CUBE (a, b);
CREATE VIEW of_groups AS SELECT a, COUNT(*) AS n FROM (SELECT DISTINCT a, b FROM r) GROUP BY a;
CREATE VIEW other AS SELECT a, b, COUNT(*) AS n, (SELECT COUNT(*) FROM s WHERE s.a = r.a) AS k FROM r GROUP BY a, b;
CREATE VIEW good AS SELECT a, b, COUNT(*) AS n FROM r GROUP BY a, b;
CREATE VIEW finer AS SELECT a, b, x, COUNT(*) AS n FROM r GROUP BY a, b, x;
"""


def test_what_cannot_be_folded_is_refused_by_name() -> None:
    warehouse = cumulus.Warehouse(REFUSED, engine="interpreter")
    for view, why in [
        ("plain", "view plain cannot be folded: it is no GROUP BY"),
        ("having_", "view having_ cannot be folded: HAVING leaves groups out"),
        ("limited", "view limited cannot be folded: LIMIT or OFFSET leaves groups out"),
        ("cubed", "view cubed cannot be folded: its groups are of several grouping sets"),
        ("of_groups", "view of_groups cannot be folded: its FROM is made of groups of rows"),
        ("other", "column k of view other cannot be folded: it reads numbers that are not of its group"),
    ]:
        with pytest.raises(errors.UsageError, match=why) as problem:
            warehouse.view(view).fold([] if view == "of_groups" else ["a"])
        assert problem.value.hint
    assert warehouse.view("other").fold(["a"], columns=["n"]).finish().column_names == ["a", "n"]


def test_wrong_names_and_values_are_told_with_those_that_there_are() -> None:
    view = cumulus.Warehouse(REFUSED, engine="interpreter").view("good")
    with pytest.raises(errors.UnknownNameError, match=r"no grouping column of good c\nIts grouping columns: a, b"):
        view.fold(["c"])
    with pytest.raises(errors.UnknownNameError, match=r"no grouping column of good n\nwhere= bounds grouping columns"):
        view.fold(["a"], {"n": 1})
    with pytest.raises(errors.UnknownNameError, match="no column of good z"):
        view.fold(["a"], columns=["z"])
    with pytest.raises(errors.UsageError, match=r"b is a grouping column of view good\nName it in by"):
        view.fold(["a"], columns=["b"])
    with pytest.raises(errors.UsageError, match="has a grouping column twice"):
        view.fold(["a", "A"])
    with pytest.raises(errors.UsageError, match="has a column twice"):
        view.fold(["a"], columns=["n", "N"])
    with pytest.raises(errors.UsageError, match="by='a' is a text"):
        view.fold("a")
    with pytest.raises(errors.UsageError, match="columns='n' is a text"):
        view.fold(["a"], columns="n")
    with pytest.raises(errors.UsageError, match=r"good\.a: 'one' is not an integer\nIt is a INTEGER"):
        view.fold(["a"], {"a": "one"})


def test_parts_of_different_folds_do_not_add_up() -> None:
    warehouse = cumulus.Warehouse(REFUSED, engine="interpreter")
    good = warehouse.view("good")
    with pytest.raises(errors.UsageError, match=r"parts of good by \(a\) and of good by \(b\) do not add up"):
        good.fold(["a"]) + good.fold(["b"])
    with pytest.raises(errors.UsageError, match=r"parts of good by \(a\) and of finer by \(a\) do not add up"):
        good.fold(["a"]) + warehouse.view("finer").fold(["a"])
    with pytest.raises(TypeError):
        good.fold(["a"]) + 1


def test_maps_without_definitions_are_not_added() -> None:
    text = (
        "RELATION r(a INT, b INT); MAP m[a INT, b INT](n BIGINT); VIEW v(a INT, b INT, n BIGINT) FROM m SELECT a, b, n;"
    )
    program = m3.parse(f"{text} ON +r(a, b) {{ m[a, b] += 1 }} ON -r(a, b) {{ m[a, b] += -1 }}")
    with pytest.raises(errors.UsageError, match="its map m has no definition, so nobody knows what may be added"):
        cumulus.Warehouse(program).view("v").fold(["a"])


def test_values_of_several_maps_of_a_view_are_added() -> None:
    warehouse = cumulus.Warehouse(
        m3.parse("""
        RELATION r(a INT, b INT, x INT);
        MAP n[a INT, b INT](v BIGINT) COUNT v = SUM[a, b](r(a, b, x));
        MAP s[a INT, b INT](v BIGINT) = SUM[a, b](r(a, b, x) * x);
        VIEW w(a INT, b INT, n BIGINT, s BIGINT) FROM n, s SELECT a, b, v, s.v;
        ON +r(a, b, x) { n[a, b] += 1; s[a, b] += x }
        ON -r(a, b, x) { n[a, b] += -1; s[a, b] += -x }
    """)
    )
    warehouse.insert("r", [(1, 1, 0), (1, 2, 5), (2, 2, 1)])
    assert rows(warehouse.view("w").fold(["a"])) == [(1, 2, 5), (2, 1, 1)]
    assert rows(warehouse.view("w").fold([], columns=["s"])) == [(6,)]


@pytest.mark.parametrize("engine", ["interpreter", "auto"])
def test_a_sum_of_squares_may_be_beyond_its_columns_type(engine: str) -> None:
    """A find of the law: VAR_POP(10²⁰) is 0, and the square is no number of 128 bits."""
    script = "CREATE TABLE r (a INT, x HUGEINT); CREATE VIEW v AS SELECT a, VAR_POP(x) AS spread FROM r GROUP BY a"
    warehouse = cumulus.Warehouse(script, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.EngineWarning)
        warehouse.insert("r", [(1, 10**20), (1, 10**20), (2, 10**20)])
    assert warehouse.view("v").fold([]).finish().to_pylist() == [{"spread": 0.0}]
