"""One suite for all hosts: the same views, the same questions, the same answers; what a host lacks is in `GAPS`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from cumulus import between
from cumulus.errors import DelayError, HistoryError, NotOfferedError, UnknownNameError, UsageError
from cumulus.hosts import Freshness, RowRequest, TableRows, WriteRequest
from cumulus.views import Consistency
from cumulus.views.folding import Bound
from support.four_hosts import NAMES, SCRIPT, VIEWS, Hosted, hosted
from support.oracle import Oracle, same_bag

pytestmark = pytest.mark.xdist_group("hosts")  # one worker has what is made once

TABLE = SCRIPT.split(";", 1)[0]
_SUMS = "SUM(amount) AS total, AVG(amount) AS mean, COUNT(*) AS n FROM sales"
SELECTS = {
    "by_country": f"SELECT country, {_SUMS} GROUP BY country",
    "ordered": "SELECT day, COUNT(*) AS n, MAX(amount) AS most FROM sales GROUP BY day",
    "whole": "SELECT COUNT(*) AS n, SUM(amount) AS total FROM sales",
    "sold": f"SELECT country, day, {_SUMS} GROUP BY country, day",
}
GAPS: dict[tuple[str, str], str] = {
    ("folder", "write"): "a run takes its rows from its sources",
    ("cluster", "write"): "its client writes; a served cluster has requests",
    ("http", "program"): "a server keeps its program to itself",
    ("http", "fold"): "a server answers questions about cubes, not with parts of groups",
    ("folder", "fold of a view that is no cube"): "a run writes the parts of cubes alone",
    ("cluster", "fold of a view that is no cube"): "its committed parts are those of cubes",
    ("folder", "facts"): "a run writes views, not tables",
    ("cluster", "facts"): "the rows of tables are spread over nodes and gates",
    ("folder", "part_changes"): "it is read again instead",
    ("cluster", "part_changes"): "it is read again instead",
    ("http", "part_changes"): "it is read again instead",
    ("warehouse", "listen"): "a warehouse of this process has subscriptions",
    ("http", "listen"): "a server calls nobody",
}
"""What a host does not offer, and why; each raises `NotOfferedError` or a `UsageError` that says so."""


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    with hosted(name, tmp_path_factory.mktemp(name)) as found:
        yield found


def expected(made: Hosted, sql: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB says of the rows that are in the table."""
    oracle = Oracle(TABLE)
    oracle.database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", [list(row) for row in made.rows])
    return oracle.rows(sql)


def offered(name: str, what: str, call: Callable[[], Any]) -> bool:
    """Whether a host offers something; if it is a gap, that the call says so with a way out."""
    if (name, what) not in GAPS:
        return True
    with pytest.raises(UsageError) as problem:
        call()
    assert problem.value.hint
    return False


def test_every_gap_is_of_a_host_that_there_is() -> None:
    assert {host for host, _ in GAPS} <= set(NAMES)
    assert all(GAPS.values())


def test_it_names_its_views(name: str, made: Hosted) -> None:
    assert set(VIEWS) <= set(made.host.view_names)
    if offered(name, "program", lambda: made.host.program):
        assert {view.name for view in made.host.program.shown_views} == set(VIEWS)


@pytest.mark.parametrize("view", VIEWS)
def test_a_whole_view_is_what_sql_says(made: Hosted, view: str) -> None:
    found = made.host.read(RowRequest(view))
    assert same_bag(found.rows(), expected(made, SELECTS[view]))
    assert (found.at, found.consistency) == (made.host.at, Consistency.COMMITTED)


def test_rows_are_in_the_order_of_the_view(made: Hosted) -> None:
    rows = made.host.read(RowRequest("ordered")).rows()
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
    for limit in (0, 1, 3, 10**6):
        assert made.host.read(RowRequest("ordered", limit=limit)).rows() == rows[:limit]


def test_names_have_any_case(made: Hosted) -> None:
    found = made.host.read(RowRequest("BY_country", ("N", "Country")))
    assert found.table.column_names == ["n", "country"]
    assert same_bag(found.rows(), expected(made, "SELECT COUNT(*), country FROM sales GROUP BY country"))


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ({"country": "France"}, "country = 'France'"),
        ({"country": None}, "country IS NULL"),
        ({"country": ""}, "country = ''"),
        ({"country": ["spain", None, "nowhere"]}, "country = 'spain' OR country IS NULL"),
        ({"country": []}, "FALSE"),
        ({"n": between(1, 10)}, "n BETWEEN 1 AND 10"),
        ({"n": between(low=11)}, "n >= 11"),
        ({"country": between("A", "T"), "n": between(high=100)}, "country BETWEEN 'A' AND 'T' AND n <= 100"),
        ({"total": Decimal("9999999999999999.99")}, "total = 9999999999999999.99"),
    ],
)
def test_rows_within_bounds(made: Hosted, where: dict[str, Any], condition: str) -> None:
    found = made.host.read(RowRequest.of("by_country", where=where))
    assert same_bag(found.rows(), expected(made, f"SELECT * FROM ({SELECTS['by_country']}) WHERE {condition}"))


def test_a_row_by_its_key(made: Hosted) -> None:
    for key in ("France", "", "Ünïted ☃", None):
        (row,) = made.host.read(RowRequest("by_country", key=(key,))).rows()
        value = "NULL" if key is None else f"'{key}'"
        sql = f"SELECT * FROM ({SELECTS['by_country']}) WHERE country IS NOT DISTINCT FROM {value}"
        assert same_bag([row], expected(made, sql))
    assert made.host.read(RowRequest("by_country", key=("nowhere",))).rows() == []
    assert made.host.read(RowRequest("by_country", ("n",), key=("France",))).table.column_names == ["n"]
    assert len(made.host.read(RowRequest("whole", key=())).rows()) == 1
    assert len(made.host.read(RowRequest("sold", key=("France", "9999-12-31"))).rows()) == 1


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (RowRequest("nothing"), UnknownNameError, "nothing"),
        (RowRequest("by_country", ("nothing",)), UnknownNameError, "nothing"),
        (RowRequest.of("by_country", where={"nothing": 1}), UnknownNameError, "nothing"),
        (RowRequest.of("by_country", where={"n": "many"}), UsageError, "many"),
        (RowRequest("by_country", key=()), UsageError, r"looked up by \(country\), 0 values"),
        (RowRequest("by_country", key=(1, 2)), UsageError, r"looked up by \(country\), 2 values"),
        (RowRequest("ordered", key=("no day",)), UsageError, "no day"),
    ],
)
def test_what_is_wrong_is_named(made: Hosted, request_: RowRequest, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made.host.read(request_)


@pytest.mark.parametrize(
    "given",
    [
        {"columns": "n"},
        {"limit": -1},
        {"limit": 1.5},
        {"limit": True},
        {"key": (1,), "limit": 1},
        {"key": (1,), "where": (Bound("n", (1,)),)},
    ],
)
def test_a_request_that_says_two_things_is_none(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RowRequest("by_country", **given)


def test_sql_over_the_views(made: Hosted) -> None:
    found = made.host.query("SELECT SUM(n) AS n, COUNT(*) AS groups FROM by_country WHERE n > ?", [3])
    counted = f"SELECT SUM(n), COUNT(*) FROM ({SELECTS['by_country']}) WHERE n > 3"
    assert same_bag(found.rows(), expected(made, counted))
    assert found.at == made.host.at
    for sql in ("DROP TABLE by_country", "SELECT 1; SELECT 2", "SELEC 1", "SELECT * FROM nothing"):
        with pytest.raises(UsageError):
            made.host.query(sql)


def test_parts_of_groups(name: str, made: Hosted) -> None:
    if not offered(name, "fold", lambda: made.host.fold("sold", ["country"])):
        return
    found = made.host.fold("sold", ["country"])
    assert same_bag(list(zip(*found.finish().to_pydict().values(), strict=True)), expected(made, SELECTS["by_country"]))
    one = made.host.fold("SOLD", [], [Bound("country", ("France",))], ["n"])
    assert one.finish().to_pylist() == [{"n": len([row for row in made.rows if row[1] == "France"])}]
    assert found.at == one.at == made.host.at
    if offered(name, "fold of a view that is no cube", lambda: made.host.fold("by_country", [])):
        assert made.host.fold("by_country", []).finish().num_rows == 1


def test_a_cube_is_sliced(made: Hosted) -> None:
    cube = made.cube("sold")
    found = cube.rollup("country").rows()
    assert same_bag(found, expected(made, SELECTS["by_country"]))
    days = "SELECT day, COUNT(*) FROM sales WHERE country = 'France' GROUP BY day"
    assert same_bag(cube.rollup("day", measures=["n"]).slice(country="France").rows(), expected(made, days))


def test_base_rows_behind_a_group(name: str, made: Hosted) -> None:
    cube = made.cube("sold").rollup("country").slice(country="Spain")
    if offered(name, "facts", lambda: cube.facts()):
        assert same_bag(cube.facts().rows(), expected(made, "SELECT * FROM sales WHERE country = 'Spain'"))


def test_changes_add_up_to_what_is_read(made: Hosted) -> None:
    before = Counter(made.host.read(RowRequest("by_country")).rows())
    at, feed = made.host.changes("BY_COUNTRY")
    assert at <= made.host.at
    try:
        gone = made.rows[2]
        now = made.bring([(1001, "Chile", Decimal("1.50"), "2026-01-01"), (1002, "", None, None)], [gone])
        numbers: list[int] = []
        until = time.monotonic() + 30
        while not numbers or numbers[-1] < now:
            assert time.monotonic() < until, (numbers, now)
            for change in feed.take():
                assert change.number > at
                numbers.append(change.number)
                for old, new in change.rows:
                    before.subtract([] if old is None else [old])
                    before.update([] if new is None else [new])
            time.sleep(0.01)
        assert numbers == sorted(set(numbers))
    finally:
        feed.close()
    after = made.host.read(RowRequest("by_country"))
    assert +before == Counter(after.rows())
    assert not -before
    assert same_bag(after.rows(), expected(made, SELECTS["by_country"]))


def test_rows_are_written(name: str, made: Hosted) -> None:
    row = (2001, "Peru", Decimal("2.00"), None)
    request = WriteRequest((TableRows("insert", "SALES", [row, row]),))
    if not offered(name, "write", lambda: made.host.write(request)):
        return
    receipt = made.host.write(request).result(30)
    made.rows += [row, row]
    assert (receipt.rows, receipt.is_repeated) == (2, False)
    assert receipt.at == receipt.epoch == made.host.at
    assert made.host.read(RowRequest("by_country", ("n",), key=("Peru",))).rows() == [(2,)]
    with pytest.raises(UsageError):
        made.host.write(WriteRequest((TableRows("insert", "nothing", [row]),))).result(30)


def test_versions_never_go_back(made: Hosted) -> None:
    before = made.host.at
    at = made.bring([(3001, "Kenya", None, None)])
    assert made.host.at >= at
    assert made.host.at > before
    assert made.host.read(RowRequest("by_country", ("n",), key=("Kenya",))).rows() == [(1,)]


def test_an_older_state_is_refused_or_right(name: str, made: Hosted) -> None:
    now = made.host.at
    if name == "folder":  # which keeps epochs
        found = made.host.read(RowRequest("whole"), Freshness(at=now))
        assert found.at == now
        return
    with pytest.raises(HistoryError):
        made.host.read(RowRequest("whole"), Freshness(at=now + 1000))


def test_what_has_not_come_is_not_read(name: str, made: Hosted) -> None:
    later = Freshness(after=made.host.at + 1000)
    if name == "http":  # it waits as long as the server does
        return
    with pytest.raises((DelayError, UsageError)):
        made.host.read(RowRequest("whole"), later)


def test_a_read_is_committed_or_tentative(name: str, made: Hosted) -> None:
    with pytest.raises(UsageError, match="unknown read 'newest'"):
        Freshness("newest")
    whole = RowRequest("whole")
    assert made.host.read(whole, Freshness("committed")).rows() == made.host.read(whole).rows()
    found = made.host.read(whole, Freshness("tentative"))  # committed rows where there are no others
    assert (found.at is None) == (found.consistency is Consistency.TENTATIVE)
    if name == "cluster":
        with pytest.raises(UsageError, match="do not say how old"):
            made.host.read(whole, Freshness("tentative", max_staleness=60))
    elif name != "http":
        assert found.consistency is Consistency.COMMITTED


def test_it_says_how_it_is(name: str, made: Hosted) -> None:
    assert made.host.status()["at"] == made.host.at
    if name != "http":
        found = made.host.entry_count("sold")
        assert found is not None
        assert found >= len(made.host.read(RowRequest("sold")).rows())


@pytest.mark.parametrize("what", ["part_changes", "listen"])
def test_what_is_not_offered_says_so(name: str, made: Hosted, what: str) -> None:
    if (name, what) not in GAPS:
        return
    call = {"part_changes": lambda: made.host.part_changes("sold", 0), "listen": lambda: made.host.listen(print)}[what]
    with pytest.raises(NotOfferedError) as problem:
        call()
    assert problem.value.hint
