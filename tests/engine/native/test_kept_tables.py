"""Kept tables whose keys and references are checked: machine code beside the interpreter, after every transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cumulus.catalog.events import UPSERT
from cumulus.compiler import compile_sql
from cumulus.engine.batches import Changes, Rows, Upserts
from cumulus.engine.session import Session
from cumulus.errors import DataError

SQL = """
CREATE TABLE makers (name VARCHAR PRIMARY KEY, land INT);
CREATE TABLE things (
    maker VARCHAR NOT NULL, number INT NOT NULL, size INT, PRIMARY KEY (number, maker),
    FOREIGN KEY (maker) REFERENCES makers (name));
CREATE TABLE parts (
    id INT PRIMARY KEY, maker VARCHAR, thing INT, inside INT, x INT,
    FOREIGN KEY (thing, maker) REFERENCES things (number, maker),
    FOREIGN KEY (inside) REFERENCES parts (id));
CREATE TABLE sales (part INT, x INT, FOREIGN KEY (part) REFERENCES parts (id)) WITH (keep = all);
CREATE TABLE pairs (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b));
CREATE VIEW lands AS
    SELECT land, SUM(size * s.x) AS n FROM makers m, things t, parts p, sales s
    WHERE m.name = t.maker AND t.number = p.thing AND t.maker = p.maker AND p.id = s.part GROUP BY land;
CREATE VIEW inner_parts AS SELECT p.x, COUNT(*) AS n FROM parts p, parts q WHERE p.id = q.inside GROUP BY p.x;
CREATE VIEW few AS SELECT a, COUNT(*) AS n FROM pairs GROUP BY a;
"""
OFTEN = SQL.replace("land INT)", "land INT) WITH (changes = often)")
Event = tuple[int, str, tuple[Any, ...]]


class Rivals:
    """Two sessions of one program that are given the same, and compared."""

    def __init__(self, sql: str) -> None:
        program = compile_sql(sql)
        self.sessions = [Session(program, {}, engine) for engine in ("interpreter", "native")]
        self.program = program
        self.kept = dict(program.kept)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted((key for key, _ in self.sessions[0].engine.items(self.kept[table])), key=repr)

    def run(self, events: list[Event], way: str) -> bool:
        """Apply events as a transaction, or each as one; return whether they were accepted."""
        told = [self._told(session, events, way) for session in self.sessions]
        assert told[0] == told[1], events
        self.compare()
        return told[0] == ""

    def _told(self, session: Session, events: list[Event], way: str) -> str:
        """Return what is said of events: the error, or nothing."""
        changes = Changes(events, lambda event: event)
        try:
            if way == "each":
                for _, operation in session.each(changes):
                    session.commit([operation])
            elif way == "bulk" and events[0][0] == UPSERT:
                relation = session.relation(events[0][1])
                session.commit_bulk(Upserts(Rows(1, relation, [row for _, _, row in events], tuple)))
            elif way == "bulk":
                session.commit_bulk(changes)
            else:
                session.commit(events)
        except DataError as problem:
            return f"{type(problem).__name__}: {problem}"
        return ""

    def compare(self) -> None:
        interpreter, native = (session.engine for session in self.sessions)
        for each in self.program.maps:
            assert dict(native.items(each.name)) == dict(interpreter.items(each.name)), each.name
            assert native.code.store(each.name).view.problems() == []
        assert self.sessions[0].counters.rows == self.sessions[1].counters.rows


def a_row(choose: random.Random, table: str) -> tuple[Any, ...]:
    def number(most: int) -> int:
        return choose.randrange(most)

    match table:
        case "makers":
            return choose.choice("abc"), number(3)
        case "things":
            return choose.choice("abcd"), number(3), choose.choice([None, 1, 2])
        case "parts":
            thing, inside = choose.choice([None, 0, 1, 2]), choose.choice([None, None, 1, 5])
            return number(6), choose.choice([None, *"abc"]), thing, inside, number(4)
        case "sales":
            return choose.choice([None, 0, 1, 2, 3, 4, 5]), number(3)
        case _:
            return number(3), number(3)


def some_events(choose: random.Random, rivals: Rivals) -> Iterator[Event]:
    """Yield events, most of which can be applied: rows that come, go, or take the place of another."""
    tables = [each.name for each in rivals.program.relations]
    if choose.random() < 0.2:
        table = choose.choice(tables[:3])
        for _ in range(choose.randrange(1, 6)):
            yield UPSERT, table, a_row(choose, table)
        return
    for _ in range(choose.choice([1, 1, 2, 5, 12])):
        table = choose.choice(tables)
        there = rivals.rows(table)
        if there and choose.random() < 0.45:
            old = choose.choice(there)
            yield -1, table, old
            if choose.random() < 0.5:
                new = a_row(choose, table)
                places = rivals.program.relation(table).key_positions
                yield 1, table, tuple(old[at] if at in places else value for at, value in enumerate(new))
        else:
            sign = -1 if choose.random() < 0.03 else 1
            yield sign, table, a_row(choose, table)


@pytest.mark.parametrize("sql", [SQL, OFTEN], ids=["enforced", "often"])
@pytest.mark.parametrize("seed", range(4))
def test_code_checks_keys_as_the_interpreter_does(sql: str, seed: int) -> None:
    choose = random.Random(seed)
    rivals = Rivals(sql)
    accepted = {True: 0, False: 0}
    for _ in range(150):
        events = [*some_events(choose, rivals)]
        way = choose.choice(["commit", "bulk", "bulk", "each"])
        if way == "each" and events[0][0] == UPSERT:
            way = "commit"
        accepted[rivals.run(events, way)] += 1
    assert min(accepted.values()) > 20, accepted
