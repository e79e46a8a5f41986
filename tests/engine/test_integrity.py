"""Keys and references where rows are kept: every named error, and net changes split as brute force splits them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.compiler import compile_sql
from cumulus.engine.integrity import Integrity
from cumulus.engine.interpreter import Interpreter
from cumulus.errors import AbsentRowError, DuplicateKeyError, OrphanError

SCHEMA = """
CREATE TABLE parents (id INT PRIMARY KEY, x INT);
CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents (id));
CREATE VIEW v AS SELECT COUNT(*) AS n FROM parents p, children c WHERE p.id = c.parent;
"""


def loaded(parents=(), children=()) -> tuple[Interpreter, Integrity]:
    program = compile_sql(SCHEMA)
    engine = Interpreter(program)
    integrity = Integrity(program, engine)
    engine.begin()
    for row in parents:
        engine.on_event(1, "parents", row)
    for row in children:
        engine.on_event(1, "children", row)
    engine.commit()
    return engine, integrity


def test_a_row_that_is_not_there_cannot_be_deleted() -> None:
    _, integrity = loaded(parents=[(1, 10)])
    assert integrity.check(-1, "parents", (1, 10)) is None
    problem = integrity.check(-1, "parents", (1, 11))
    assert isinstance(problem, AbsentRowError)
    assert (problem.relation, problem.row) == ("parents", (1, 11))


def test_a_primary_key_stands_once() -> None:
    _, integrity = loaded(parents=[(1, 10)])
    assert integrity.check(1, "parents", (2, 10)) is None
    for row in [(1, 10), (1, 11)]:
        problem = integrity.check(1, "parents", row)
        assert isinstance(problem, DuplicateKeyError)
        assert "id=1" in str(problem)


def test_a_child_needs_its_parent_and_null_needs_none() -> None:
    _, integrity = loaded(parents=[(1, 10)])
    assert integrity.check(1, "children", (1, 1)) is None
    assert integrity.check(1, "children", (2, None)) is None
    assert isinstance(integrity.check(1, "children", (3, 7)), OrphanError)


def test_a_parent_stays_while_it_has_children() -> None:
    _, integrity = loaded(parents=[(1, 10), (2, 20)], children=[(1, 1)])
    assert integrity.check(-1, "parents", (2, 20)) is None
    assert isinstance(integrity.check(-1, "parents", (1, 10)), OrphanError)


def test_in_a_transaction_a_reference_need_only_hold_at_its_end() -> None:
    engine, integrity = loaded()
    duties: list = []
    engine.begin()
    assert integrity.check(1, "children", (1, 5), duties) is None
    engine.on_event(1, "children", (1, 5))
    assert isinstance(integrity.settle(duties), OrphanError)
    engine.on_event(1, "parents", (5, 0))
    assert integrity.settle(duties) is None


ROWS = {
    "parents": st.tuples(st.integers(1, 2), st.integers(0, 1)),
    "children": st.tuples(st.integers(1, 2), st.sampled_from([1, 2, None])),
}


def is_whole(tables) -> bool:
    """Whether a state keeps every rule, looked at row by row."""
    counts = [count for rows in tables.values() for count in rows.values()]
    if any(count < 0 or count > 1 for count in counts):
        return False
    rows = {name: [row for row, count in held.items() if count] for name, held in tables.items()}
    if any(len({row[0] for row in held}) < len(held) for held in rows.values()):
        return False
    parents = {row[0] for row in rows["parents"]}
    return all(row[1] is None or row[1] in parents for row in rows["children"])


def after(tables, changes):
    result = {name: dict(rows) for name, rows in tables.items()}
    for name, rows in changes.items():
        for row, count in rows.items():
            result[name][row] = result[name].get(row, 0) + count
    return result


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ROWS["parents"], unique_by=lambda row: row[0], max_size=2),
    st.lists(ROWS["children"], unique_by=lambda row: row[0], max_size=2),
    st.fixed_dictionaries(
        {name: st.dictionaries(rows, st.sampled_from([-1, 1]), max_size=3) for name, rows in ROWS.items()}
    ),
)
def test_the_good_part_of_a_net_change_leaves_a_whole_state(parents, children, changes) -> None:
    children = [row for row in children if row[1] is None or row[1] in {parent[0] for parent in parents}]
    _, integrity = loaded(parents, children)
    tables = {"parents": dict.fromkeys(parents, 1), "children": dict.fromkeys(children, 1)}
    good, rejected = integrity.check_net(changes)
    assert is_whole(after(tables, good))
    told = {(each.relation, each.row): each.multiplicity for each in rejected}
    everything = {(name, row): count for name, rows in changes.items() for row, count in rows.items()}
    kept = {(name, row): count for name, rows in good.items() for row, count in rows.items()}
    assert told | kept == everything
    assert told.keys().isdisjoint(kept)
    assert bool(rejected) != is_whole(after(tables, changes))


def test_an_update_of_a_parent_is_a_good_net_change_and_a_lost_parent_takes_its_new_child_along() -> None:
    _, integrity = loaded(parents=[(1, 10)], children=[(1, 1)])
    good, rejected = integrity.check_net({"parents": {(1, 10): -1, (1, 11): 1}, "children": {}})
    assert not rejected
    assert good["parents"] == {(1, 10): -1, (1, 11): 1}
    # (2, …) comes twice: the second is refused; of the children, only the one with a parent stays.
    changes = {"parents": {(2, 0): 1, (2, 1): 1}, "children": {(5, 2): 1, (6, 3): 1}}
    good, rejected = integrity.check_net(changes)
    assert good == {"parents": {(2, 0): 1}, "children": {(5, 2): 1}}
    assert [(each.row, type(each.error)) for each in rejected] == [((2, 1), DuplicateKeyError), ((6, 3), OrphanError)]


def test_a_row_may_refer_to_itself() -> None:
    program = compile_sql(
        "CREATE TABLE e (id INT PRIMARY KEY, boss INT, FOREIGN KEY (boss) REFERENCES e (id));"
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM e;"
    )
    engine = Interpreter(program)
    integrity = Integrity(program, engine)
    assert integrity.check(1, "e", (1, 1)) is None
    assert isinstance(integrity.check(1, "e", (2, 9)), OrphanError)
    engine.begin()
    for row in [(1, 1), (2, 1)]:
        engine.on_event(1, "e", row)
    engine.commit()
    assert isinstance(integrity.check(-1, "e", (1, 1)), OrphanError)
    assert integrity.check(-1, "e", (2, 1)) is None


def test_what_is_not_kept_is_not_checked() -> None:
    program = compile_sql("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    integrity = Integrity(program, Interpreter(program))
    assert not integrity.covers("r")
    assert integrity.check(-1, "r", (1,)) is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_changes_in_a_net_change_does_not_matter_to_references(order) -> None:
    _, integrity = loaded(parents=[(1, 10)])
    rows = [("parents", (2, 0), 1), ("children", (1, 2), 1), ("children", (2, 1), 1)]
    changes: dict = {"parents": {}, "children": {}}
    for place in order:
        name, row, count = rows[place]
        changes[name][row] = count
    assert integrity.check_net(changes)[1] == []
