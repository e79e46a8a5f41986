"""Keys and references where rows are kept: every named error."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.integrity import Integrity
from cumulus.engine.protocol import Engine
from cumulus.errors import AbsentRowError, DuplicateKeyError, OrphanError
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")

SCHEMA = """
CREATE TABLE parents (id INT PRIMARY KEY, x INT);
CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents (id));
CREATE VIEW v AS SELECT COUNT(*) AS n FROM parents p, children c WHERE p.id = c.parent;
"""


def loaded(parents=(), children=()) -> tuple[Engine, Integrity]:
    program = compile_sql(SCHEMA)
    engine = engine_of(program)
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
    deferred: list = []
    engine.begin()
    assert integrity.check(1, "children", (1, 5), deferred) is None
    engine.on_event(1, "children", (1, 5))
    assert isinstance(integrity.first_violation(deferred), OrphanError)
    engine.on_event(1, "parents", (5, 0))
    assert integrity.first_violation(deferred) is None


def test_a_row_may_refer_to_itself() -> None:
    program = compile_sql(
        "CREATE TABLE e (id INT PRIMARY KEY, boss INT, FOREIGN KEY (boss) REFERENCES e (id));"
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM e;"
    )
    engine = engine_of(program)
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
    integrity = Integrity(program, engine_of(program))
    assert not integrity.covers("r")
    assert integrity.check(-1, "r", (1,)) is None
