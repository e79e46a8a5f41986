"""Errors of views in a warehouse: the transaction commits, the view says what it lacks, others know nothing of it."""

from __future__ import annotations

import datetime as dt
import random
import warnings
from decimal import Decimal

import pytest

import cumulus
from cumulus import errors
from support.oracle import Oracle, same_bag

SQL = """
CREATE TABLE r (id INT PRIMARY KEY, g INT, a INT, b INT, t VARCHAR);
CREATE VIEW ratios AS SELECT g, SUM(a // b) AS s, COUNT(*) AS n FROM r GROUP BY g;
CREATE VIEW sums AS SELECT g, SUM(a) AS s, COUNT(*) AS n FROM r GROUP BY g;
"""


def test_a_division_by_zero_is_an_error_of_the_view_and_nothing_else() -> None:
    warehouse = cumulus.Warehouse(SQL)
    heard: list = []
    warehouse.subscribe("ratios", heard.extend)
    assert warehouse.insert("r", [(1, 1, 6, 2, ""), (2, 1, 7, 0, ""), (3, 2, 8, 0, "")]) == 3
    warehouse.insert("r", [(4, 1, 9, 3, "")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorted(warehouse.view("sums").rows()) == [(1, 22, 3), (2, 8, 1)]
    with pytest.warns(errors.EvaluationWarning, match=r"ratios lacks what 2 events should have added, .*\+r\(2, 1, 7"):
        assert sorted(warehouse.view("ratios").rows()) == [(1, 6, 3), (2, None, 1)]
    found = warehouse.view("ratios").errors()
    assert [(each.transaction, each.event, each.message) for each in found] == [
        (1, "+r(2, 1, 7, 0, '')", "intdiv(7, 0): division by zero"),
        (1, "+r(3, 2, 8, 0, '')", "intdiv(8, 0): division by zero"),
    ]
    assert found[1].row == (3, 2, 8, 0, "")
    assert len(warehouse.errors("sums")) == 0
    assert [each.view for each in warehouse.errors()] == ["ratios", "ratios"]
    assert warehouse.stats().errors == {"ratios": 2}
    assert heard[-1] == ((1, 3, 2), (1, 6, 3))
    with pytest.raises(errors.UnknownNameError):
        warehouse.errors("nope")


def test_errors_are_shown_below_the_rows_and_as_a_table() -> None:
    warehouse = cumulus.Warehouse(SQL)
    warehouse.insert("r", [(2, 1, 7, 0, "")])
    with pytest.warns(errors.EvaluationWarning):
        last = repr(warehouse.view("ratios")).splitlines()[-1]
    told = "ratios lacks what 1 event should have added, the first +r(2, 1, 7, 0, ''): intdiv(7, 0): division by zero"
    assert last == f"{told} (see errors())"
    with pytest.warns(errors.EvaluationWarning):
        assert "lacks what 1 event" in warehouse.view("ratios")._repr_html_()
    assert warehouse.errors("ratios").arrow().to_pylist() == [
        {
            "transaction": 1,
            "view": "ratios",
            "sign": 1,
            "relation": "r",
            "event": "+r(2, 1, 7, 0, '')",
            "message": "intdiv(7, 0): division by zero",
        }
    ]
    assert "1 row" in repr(warehouse.errors("ratios"))
    with pytest.warns(errors.EvaluationWarning):
        assert warehouse.query("SELECT n FROM ratios").rows() == [(1,)]


def test_wrong_rows_are_still_refused_and_their_transaction_leaves_no_errors() -> None:
    warehouse = cumulus.Warehouse(SQL)
    warehouse.insert("r", [(1, 1, 6, 2, "")])
    with pytest.raises(errors.DuplicateKeyError):
        warehouse.insert("r", [(2, 1, 7, 0, ""), (1, 1, 1, 1, "")])
    with pytest.raises(errors.AbsentRowError):
        warehouse.apply([(1, "r", (2, 1, 7, 0, "")), (-1, "r", (9, 1, 1, 1, ""))], per="call")
    assert warehouse.stats().errors == {}
    assert warehouse.view("ratios").rows() == [(1, 3, 1)]
    warehouse.upsert("r", [(1, 1, 6, 0, "")])
    warehouse.upsert("r", [(1, 1, 6, 3, "")])
    assert [each.event for each in warehouse.errors("ratios")] == ["+r(1, 1, 6, 0, '')", "-r(1, 1, 6, 0, '')"]
    with pytest.warns(errors.EvaluationWarning):
        assert warehouse.view("ratios").rows() == [(1, 2, 1)]


def test_errors_are_saved_and_loaded(tmp_path) -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE r (d DATE, x DECIMAL(9,2), f DOUBLE, b INT);"
        "CREATE VIEW v AS SELECT SUM(x / b) AS s, SUM(b // (b - 1)) AS q FROM r"
    )
    row = (dt.date(2024, 2, 29), Decimal("1.50"), 0.1, 1)
    warehouse.insert("r", [row])
    warehouse.apply([(1, "r", row)] * 1100)
    warehouse.save(tmp_path / "saved")
    loaded = cumulus.Warehouse.load(tmp_path / "saved")
    assert list(loaded.errors("v")) == list(warehouse.errors("v"))
    assert (len(loaded.errors("v")), loaded.errors("v").count) == (1000, 1101)
    assert "1101 errors, the first 1000 were kept" in repr(loaded.errors("v"))
    loaded.insert("r", [row])
    assert loaded.stats().errors == {"v": 1102}
    loaded.delete("r", [row])
    assert loaded.errors("v")[-1].row == row


def test_a_view_created_late_has_the_errors_of_the_rows_that_are_there() -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE p (k INT PRIMARY KEY, b INT); CREATE TABLE c (k INT REFERENCES p, a INT);"
        "CREATE VIEW n AS SELECT COUNT(*) AS n FROM c",
        keep="all",
    )
    warehouse.insert("p", [(1, 0), (2, 5)])
    warehouse.insert("c", [(1, 10), (2, 20), (2, 30)])
    warehouse.execute("CREATE VIEW late AS SELECT a // b AS q, COUNT(*) AS n FROM c JOIN p USING (k) GROUP BY 1")
    assert warehouse.errors("late").count == 1
    with pytest.warns(errors.EvaluationWarning):
        assert sorted(warehouse.view("late").rows()) == [(4, 1), (6, 1)]
    warehouse.delete("c", [(1, 10), (2, 20), (2, 30)])
    with pytest.warns(errors.EvaluationWarning):
        assert warehouse.view("late").rows() == []
    warehouse.execute("CREATE VIEW other AS SELECT COUNT(*) AS n FROM p")
    assert warehouse.errors("late").count == 2
    warehouse.execute("DROP VIEW late")
    assert warehouse.stats().errors == {}


VIEWS = {
    # view → its SQL, and what DuckDB must be asked so that it leaves out what cannot be computed
    "keys": ("SELECT CAST(t AS INT) AS k, COUNT(*) AS n FROM r GROUP BY 1", "WHERE t <> 'x' GROUP BY 1"),
    "wheres": ("SELECT g, COUNT(*) AS n, SUM(a) AS s FROM r WHERE a // b > 1 GROUP BY g", ""),
    "bags": ("SELECT r.g, a % c AS m FROM r JOIN s ON r.g = s.g", "r.g = s.g AND c <> 0"),
    "ratios": (
        "SELECT g, SUM(a // b) AS s, COUNT(a % b) AS c, AVG(a // b) AS m, AVG(CAST(t AS INT)) AS k, "
        "SUM(a * (a // b)) AS p, AVG(a / b) AS d, COUNT(*) AS n FROM r GROUP BY g",
        "",
    ),
    "fine": ("SELECT g, SUM(a) AS s, COUNT(*) AS n FROM r GROUP BY g", ""),
}
TRIED = [("a // b", "TRY(a // b)"), ("a % b", "TRY(a % b)"), ("a % c", "TRY(a % c)"), ("a / b", "a / NULLIF(b, 0)")]
TRIED += [("CAST(t", "TRY_CAST(t")]


def without_failures(view: str) -> str:
    """Return the SQL of a view in which what fails is NULL, and rows with a NULL key are left out."""
    sql, change = VIEWS[view]
    for failing, tried in TRIED:
        sql = sql.replace(failing, tried)
    if view == "keys":
        return sql.replace("GROUP BY 1", change)
    return sql.replace("r.g = s.g", change) if view == "bags" else sql


@pytest.mark.parametrize("null", ["", " NOT NULL"])
@pytest.mark.parametrize("seed", range(2))
def test_a_view_with_errors_is_the_view_without_what_fails(seed: int, null: str) -> None:
    schema = f"CREATE TABLE r (g INT{null}, a INT{null}, b INT{null}, t VARCHAR{null});CREATE TABLE s (g INT, c INT);"
    script = "".join(f"CREATE VIEW {name} AS {select};" for name, (select, _) in VIEWS.items())
    warehouse, oracle, chance = cumulus.Warehouse(schema + script), Oracle(schema), random.Random(seed)
    there: dict[str, list[tuple]] = {"r": [], "s": []}
    for step in range(120):
        name = chance.choice("rrs")
        if there[name] and chance.random() < 0.4:
            event = (-1, name, there[name].pop(chance.randrange(len(there[name]))))
        else:
            values = [chance.choice([0, 1, 2, 5]) for _ in range(3 if name == "r" else 2)]
            event = (1, name, (*values, chance.choice("12x")) if name == "r" else tuple(values))
            there[name].append(event[2])
        warehouse.apply([event])
        oracle.apply(*event)
        if step % 20:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.EvaluationWarning)
            for view in VIEWS:
                assert same_bag(warehouse.view(view).rows(), oracle.rows(without_failures(view))), view
    assert set(warehouse.stats().errors) == {"keys", "wheres", "bags", "ratios"}
    assert all(each.row is not None and each.row[3] == "x" for each in warehouse.errors("keys"))
