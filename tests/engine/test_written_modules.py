"""A module that is written once runs over the maps of each engine, and for its own program alone."""

from __future__ import annotations

from cumulus.catalog.schema import Relation
from cumulus.compiler import compile_sql
from cumulus.engine.batches import Rows
from cumulus.engine.interpreter.compiled_module import written_module
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.session import Session
from cumulus.m3.program import Program

TABLE = "CREATE TABLE r (a INTEGER, b INTEGER);"
JOIN = f"{TABLE} CREATE VIEW v AS SELECT r.b, COUNT(*) AS n FROM r, r s WHERE r.a = s.a GROUP BY r.b;"


def contents(session: Session, program: Program) -> dict[tuple[object, ...], tuple[object, ...]]:
    return dict(session.engine.items(program.views[0].reads[0]))


def test_engines_of_equal_programs_have_maps_of_their_own() -> None:
    found = []
    for rows in ([(1, 2), (1, 3)], [(5, 2)]):
        program = compile_sql(JOIN)
        session = Session(program, None, Interpreter(program), is_trusting=True)
        relation: Relation = program.relation("r")
        session.commit_bulk(Rows(1, relation, rows, tuple))
        found.append(contents(session, program))
    assert found == [{(2,): (2,), (3,): (2,)}, {(2,): (1,)}]


def test_equal_programs_share_a_module_and_equal_numbers_do_not() -> None:
    one, again, other = (
        compile_sql(f"{TABLE} CREATE VIEW v AS SELECT SUM(a * {number}) AS q FROM r") for number in ("2", "2", "2.0")
    )
    assert written_module(one, {}, Interpreter(one)._stores) is written_module(again, {}, Interpreter(again)._stores)
    assert written_module(one, {}, Interpreter(one)._stores) is not written_module(
        other, {}, Interpreter(other)._stores
    )
