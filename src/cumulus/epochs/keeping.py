"""Programs that keep the rows of tables and no views: of `cumulus recheck`, of judges, of the intake of clusters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cumulus.algebra.terms import Atom, number
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger


def keeping_program(program: Program) -> tuple[Program, dict[str, str]]:
    """Return a program that keeps the rows of every table and nothing else, and table → map.

    Tables whose rows `program` does not keep are not checked here either: their counts may pass below 0.
    """
    names = {relation.name: f"{relation.name}_rows" for relation in program.relations}
    counted = [count_rows(relation, [names[relation.name]]) for relation in program.relations]
    maps = [each for found, _ in counted for each in found]
    triggers = [each for _, found in counted for each in found]
    kept = tuple((name, names[name]) for name, _ in program.kept)
    return Program(program.relations, tuple(maps), (), tuple(triggers), kept), names


def count_rows(relation: Relation, names: Sequence[str]) -> tuple[list[MapDef], list[Trigger]]:
    """Return maps with some names that all count the rows of a table, and the triggers that keep them."""
    columns = relation.column_names
    definition = Atom(relation.name, columns)
    count = next(name for name in ("n", "n_2", "n_3") if name not in columns) if columns else "n"
    keys = tuple(Column(column.name, column.type, column.not_null) for column in relation.columns)
    value = (Column(count, BIGINT),)
    maps = [MapDef(name, keys, value, count=count, definitions=(definition,)) for name in names]
    triggers = []
    for on, term in ((On.INSERT, number(1)), (On.DELETE, number(-1)), (On.BATCH, definition)):
        variables = () if on is On.BATCH else columns
        statements = tuple(Statement(name, count, columns, "+=", term) for name in names)
        triggers.append(Trigger(on, relation.name, variables, statements))
    return maps, triggers


def judging_program(program: Program, tables: Collection[str] | None = None) -> tuple[Program, dict[str, str]]:
    """Return a program that keeps the rows of those tables which `program` keeps, and the net change of all; and table
    → map of its net change.

    Parameters
    ----------
    tables
        Those that count; all if None.
    """
    # Rows that refer to others need not move where no view is.
    mine = tuple(_without_enforced(each) for each in program.relations if tables is None or each.name in tables)
    known = {each.name for each in mine}
    kept = {name: judging_maps(name)[0] for name, _ in program.kept if name in known}
    nets = {each.name: judging_maps(each.name)[1] for each in mine}
    counted = [
        count_rows(each, [kept[each.name], nets[each.name]] if each.name in kept else [nets[each.name]])
        for each in mine
    ]
    maps = tuple(each for found, _ in counted for each in found)
    triggers = tuple(each for _, found in counted for each in found)
    return Program(mine, maps, (), triggers, tuple(kept.items())), nets


def judging_maps(table: str) -> tuple[str, str]:
    """Return what a judging program calls the rows of a table, if it keeps them, and its net change."""
    return f"{table} rows", f"{table} net"


def _without_enforced(relation: Relation) -> Relation:
    """Return a table of whose references nobody counts on that they are checked."""
    return replace(relation, foreign_keys=tuple(replace(key, enforced=False) for key in relation.foreign_keys))
