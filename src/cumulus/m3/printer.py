"""Programs as M3 text, laid out for people: one thing a line, aligned, long terms broken at their weakest operator."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cumulus.algebra.printing import (
    print_call_name,
    print_literal,
    print_name,
    print_names,
    print_node,
    print_scalar,
    print_term,
    print_text,
)
from cumulus.algebra.terms import MapRead, Term, rebuild
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.schema import Column, ForeignKey, Relation
from cumulus.m3.program import CubeDef, Entry, MapDef, On, OrderItem, Program, Statement, Trigger, ViewDef

WIDTH = 110
"""Columns that a line fills before it is broken, where it can be."""

_ALIGNED = 36  # a longer target does not push the operators of its neighbours to the right


def print_program(program: Program) -> str:
    """Return `program` as text that `cumulus.m3.parse` reads back.

    Maps that the program does not declare are not declared in the text either. A column that is a map's only value is
    not written.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> print(print_program(parse("on R(A, B): m1 += m2[A]  m2[A] += m3[B] * 2")))
    RELATION R(A, B);
    <BLANKLINE>
    ON +R(A, B) {
      m1[]  += m2[A];
      m2[A] += 2 * m3[B];
    }
    <BLANKLINE>
    """
    short = _Short(program.only_columns)
    kept = dict(program.kept)
    maps = [definition for definition in program.maps if definition.declared]
    blocks = [
        "\n".join(_relation(relation, kept.get(relation.name, "")) for relation in program.relations),
        "\n".join(_function(signature) for signature in program.functions),
        "\n".join(_map(definition, short) for definition in maps),
        "\n".join(_view(view, short) for view in program.views),
        "\n".join(map(_cube, program.cubes)),
        *(_trigger(trigger, short) for trigger in program.triggers),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def print_statement(statement: Statement, program: Program | None = None) -> str:
    """Return one statement on one line, without its semicolon."""
    short = _Short(program.only_columns if program is not None else {})
    return f"{short.target(statement)} {statement.op} {print_term(short(statement.term))}"


class _Short:
    """Leaves out the column of maps that have only one."""

    def __init__(self, only: dict[str, str]) -> None:
        self._only = only

    def __call__(self, node: Any) -> Any:
        changed = rebuild(node, self)
        if isinstance(changed, MapRead) and changed.column and self._only.get(changed.map) == changed.column:
            return MapRead(changed.map, "", changed.keys, changed.state)
        return changed

    def term(self, term: Term) -> str:
        # A literal that stands alone keeps its type: nothing is rebuilt around it.
        return print_term(self(term))

    def target(self, statement: Statement) -> str:
        plain = self._only.get(statement.map) == statement.column
        return print_node(MapRead(statement.map, "" if plain else statement.column, ())).replace(
            "[]", f"[{print_names(statement.keys)}]", 1
        )


# -------------------------------------------------------------------- declarations


def _column(column: Column) -> str:
    return " ".join(
        [
            print_name(column.name),
            *([str(column.type)] if column.type is not None else []),
            *(["NOT NULL"] if column.not_null else []),
        ]
    )


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(_column(column) for column in columns)


def _relation(relation: Relation, kept: str) -> str:
    clauses = [
        *([f"KEY ({print_names(relation.key)}){' RELY' if relation.key_rely else ''}"] if relation.key else []),
        *(_foreign_key(key) for key in relation.foreign_keys),
        *(["STATIC"] if relation.static else []),
        *([f"KEEP {relation.keep.upper()}"] if relation.keep != "auto" else []),
        *(["CHANGES OFTEN"] if relation.changes == "often" else []),
        *([f"KEPT {print_call_name(kept)}"] if kept else []),
    ]
    name = print_call_name(relation.name)
    line = " ".join([f"RELATION {name}({_columns(relation.columns)})", *clauses]) + ";"
    if len(line) <= WIDTH:
        return line
    names = [print_name(column.name) for column in relation.columns]
    types = [str(column.type or "") for column in relation.columns]
    wide, wider = max(map(len, names), default=0), max(map(len, types), default=0)
    rows = [
        f"  {name:<{wide}} {kind:<{wider}}{' NOT NULL' if column.not_null else ''}".rstrip()
        for name, kind, column in zip(names, types, relation.columns, strict=True)
    ]
    end = "\n".join([")", *(f"  {clause}" for clause in clauses)])
    return f"RELATION {name}(\n" + ",\n".join(rows) + f"\n{end};"


def _function(signature: FunctionSignature) -> str:
    return f"FUNCTION {replace(signature, name=print_call_name(signature.name))};"


def _foreign_key(key: ForeignKey) -> str:
    known = (" RELY" if key.rely else "") + (" ENFORCED" if key.enforced else "")
    return (
        f"FOREIGN KEY ({print_names(key.columns)}) REFERENCES {print_call_name(key.parent)} "
        f"({print_names(key.parent_columns)}){known}"
    )


def _map(definition: MapDef, short: _Short) -> str:
    head = f"MAP {print_call_name(definition.name)}[{_columns(definition.keys)}]({_columns(definition.values)})"
    if definition.count:
        head += f" COUNT {print_name(definition.count)}"
    if definition.ordered:
        head += f" ORDERED {print_name(definition.ordered)}"
    if definition.initial:
        head += f" START {', '.join(map(_entry, definition.initial))}"
    terms = [short.term(term) for term in definition.definitions]
    sql = f"AS {print_text(definition.sql)}" if definition.sql else ""
    line = " ".join([head, *([f"= {', '.join(terms)}"] if terms else []), *([sql] if sql else [])])
    if len(line) < WIDTH and "\n" not in line:
        return f"{line};"
    defined = [wrap(("= " if not at else "  ") + text, 2, 6) for at, text in enumerate(terms)]
    parts = [wrap(head, 0, 4), *([",\n  ".join(defined)] if defined else []), *([sql] if sql else [])]
    return "\n  ".join(parts) + ";"


def _entry(entry: Entry) -> str:
    key, values = (", ".join(map(print_literal, part)) for part in entry)
    return f"({key}: {values})"


def _view(view: ViewDef, short: _Short) -> str:
    maps = ", ".join(print_call_name(name) for name in view.maps)
    clauses = [
        f"VIEW {print_call_name(view.name)}({_columns(view.columns)})",
        f"FROM {maps}",
        "SELECT " + ", ".join(print_scalar(short(item)) for item in view.select),
        *([f"WHERE {print_scalar(short(view.where))}"] if view.where is not None else []),
        *([f"REPEAT {print_scalar(short(view.repeat))}"] if view.repeat is not None else []),
        *(["ORDER BY " + ", ".join(_order_item(item, short) for item in view.order_by)] if view.order_by else []),
        *([f"LIMIT {view.limit}"] if view.limit is not None else []),
        *([f"OFFSET {view.offset}"] if view.offset else []),
    ]
    line = " ".join(clauses) + ";"
    if len(line) <= WIDTH:
        return line
    return "\n".join([wrap(clauses[0], 0, 4), *(f"  {wrap(clause, 2, 6)}" for clause in clauses[1:])]) + ";"


def _order_item(item: OrderItem, short: _Short) -> str:
    return (
        print_scalar(short(item.expression))
        + (" DESC" if item.descending else "")
        + (" NULLS FIRST" if item.nulls_first else "")
    )


def _cube(cube: CubeDef) -> str:
    lines = [
        f"CUBE {print_call_name(cube.name)}",
        *(f"DIMENSION {print_name(each.name)} ({print_names(each.levels)})" for each in cube.dimensions),
        *(
            f"LEVEL ({print_names(each.columns)}) FROM {print_call_name(each.view)}{' KEPT' if each.kept else ''}"
            for each in cube.levels
        ),
    ]
    line = " ".join(lines) + ";"
    return line if len(line) <= WIDTH else "\n  ".join(lines) + ";"


# -------------------------------------------------------------------- triggers


def _trigger(trigger: Trigger, short: _Short) -> str:
    variables = "" if trigger.on is On.BATCH else f"({print_names(trigger.variables)})"
    head = f"ON {trigger.on.event(print_call_name(trigger.relation))}{variables} {{"
    targets = [short.target(statement) for statement in trigger.statements]
    wide = max((len(target) for target in targets if len(target) <= _ALIGNED), default=0)
    lines = []
    for target, statement in zip(targets, trigger.statements, strict=True):
        start = f"  {target:<{wide}} {statement.op} "
        lines.append(start + wrap(short.term(statement.term), len(start), min(len(start), 44)) + ";")
    return "\n".join([head, *lines, "}"])


# -------------------------------------------------------------------- breaking lines

_WORD = re.compile(r"""(?:'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\s'"])+""")
_BREAK_BEFORE = frozenset({"+", "-", "*", "AND", "OR", "WHEN", "ELSE", "AS"})


def wrap(text: str, start: int, indent: int, width: int = WIDTH) -> str:
    """Break `text`, whose first character stands in column `start`, into lines indented by `indent`.

    A line is broken before an operator or after a comma, where the fewest brackets are open, as far right as possible;
    never inside quotes. A line that has no such place stays long.

    Examples
    --------
    >>> print(wrap("SUM[a](r(a, b) * s(b, c)) + SUM[a](r(a, b) * t(b))", 0, 2, width=30))
    SUM[a](r(a, b) * s(b, c))
      + SUM[a](r(a, b) * t(b))
    """
    words = [(found.start(), found.group()) for found in _WORD.finditer(text)]
    breaks: list[tuple[int, int]] = []  # where a new line may begin, and how many brackets are open there
    depth = 0
    for index, (at, word) in enumerate(words):
        if index and (word in _BREAK_BEFORE or words[index - 1][1].endswith(",")):
            breaks.append((at, depth))
        bare = re.sub(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""", "", word)
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
    places = [at for at, _ in breaks]
    lines: list[str] = []
    begin, room = 0, width - start
    while len(text) - begin > room:
        first, end = bisect_right(places, begin), bisect_right(places, begin + room + 1)
        fitting = breaks[first : max(end, first + 1)]
        if not fitting:
            break
        at = min(fitting, key=lambda each: (each[1], -each[0]))[0]
        lines.append(text[begin:at].rstrip())
        begin, room = at, width - indent
    lines.append(text[begin:])
    return f"\n{' ' * indent}".join(lines)
