"""CREATE TABLE to a catalog relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from cumulus.catalog.schema import Column, ForeignKey, Relation
from cumulus.catalog.types import BIGDECIMAL, SqlType, type_named
from cumulus.sql.source import SqlText, identifier, offset_of
from cumulus.sql.syntax.advice import type_advice
from cumulus.sql.syntax.known_clauses import check_taken

_TYPE_NAMES = {"TIMESTAMPNTZ": "TIMESTAMP", "INT128": "HUGEINT", "FLOAT": "REAL"}


def sql_type(source: SqlText, node: exp.DataType) -> SqlType:
    """Return the type that a type node names; UnsupportedError if Cumulus has none."""
    name = node.this.name if hasattr(node.this, "name") else str(node.this)
    written = str(node.meta.get("word") or node.sql(dialect="duckdb"))
    digits = [str(part.this.name) for part in node.expressions if isinstance(part, exp.DataTypeParam)]
    is_plain = not node.args.get("nested") and all(map(str.isdecimal, digits))
    found = type_named(_TYPE_NAMES.get(name, name), tuple(map(int, digits))) if is_plain else None
    if found is None or found == BIGDECIMAL:
        raise source.unsupported(
            f"the type {written} is not supported",
            offset_of(node),
            feature=written,
            hint=type_advice("" if name == "USERDEFINED" else name, written),
        )
    return found


def create_table(source: SqlText, tree: exp.Create, options: Mapping[str, tuple[str, int]]) -> Relation:
    """Return the relation that a CREATE TABLE declares.

    Parameters
    ----------
    options
        The WITH clause: `static = true|false`, `keep = auto|all|none` and `changes = rarely|often`, each with its
        offset.
    """
    at = offset_of(tree)
    name = identifier(tree.this.this.this)
    columns: list[Column] = []
    key: tuple[str, ...] = ()
    key_rely = False
    foreign: list[ForeignKey] = []
    for item in tree.this.expressions:
        is_column = isinstance(item, (exp.ColumnDef, exp.Identifier))
        column = identifier(item) if is_column else ""
        not_null = False
        for part in _constraints(item):
            match part:
                case exp.NotNullColumnConstraint() if is_column:
                    not_null = not part.args.get("allow_null")
                case exp.PrimaryKeyColumnConstraint() if is_column:
                    key, key_rely = (column,), _relies(source, part)
                case exp.Reference() if is_column:
                    foreign.append(_reference(source, (column,), part))
                case exp.PrimaryKey() if not is_column:
                    key, key_rely = tuple(map(identifier, part.expressions)), _relies(source, part)
                case exp.ForeignKey() if not is_column:
                    foreign.append(_reference(source, tuple(map(identifier, part.expressions)), part.args["reference"]))
                case _:
                    _refuse(source, item, part)
        if is_column:
            if item.args.get("kind") is None:
                told = f"column {column} has no type"
                raise source.bind_error(told, offset_of(item), hint="Write it behind the name.")
            columns.append(Column(column, sql_type(source, item.args["kind"]), not_null))
    names = [column.name for column in columns]
    for each in names:
        if names.count(each) > 1:
            raise source.bind_error(f"{name} has two columns called {each}", at)

    def spelled(parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return columns as they are written where they are declared."""
        for part in parts:
            if part not in names:
                hint = f"Its columns are {', '.join(names)}."
                raise source.bind_error(f"{name} has no column {part}", at, hint=hint)
        return tuple(str(names[names.index(part)]) for part in parts)

    keyed = tuple(Column(str(c.name), c.type, c.not_null or c.name in key) for c in columns)
    references = (replace(each, columns=spelled(each.columns)) for each in foreign)
    return Relation(str(name), keyed, spelled(key), key_rely, tuple(references), **_options(source, options))


def _constraints(item: exp.Expression) -> list[exp.Expression]:
    """Return what an item of a CREATE TABLE says of a column, or of the table."""
    match item:
        case exp.ColumnDef():
            return [constraint.kind for constraint in item.args.get("constraints") or ()]
        case exp.Identifier():
            return []
        case exp.Constraint():
            return list(item.expressions)
        case _:
            return [item]


def _relies(source: SqlText, node: exp.Expression) -> bool:
    """Whether a key is trusted; UnsupportedError for any other promise or action than RELY."""
    check_taken(source, node)
    words = {str(option).upper() for option in node.args.get("options") or ()}
    for word in sorted(words - {"RELY", "NORELY", "NOT ENFORCED", "ENFORCED"}):
        at = offset_of(node)
        if at < 0 and isinstance(node.parent, exp.Expression):
            at = offset_of(node.parent)
        raise source.unsupported(
            f"{word} is not supported on a key",
            at,
            feature=word,
            hint="A key takes RELY; delete children before their parent.",
        )
    return "RELY" in words


def _reference(source: SqlText, columns: tuple[str, ...], node: exp.Reference) -> ForeignKey:
    target, rely = node.this, _relies(source, node)
    if isinstance(target, exp.Schema):
        parent = identifier(target.this.this)
        return ForeignKey(columns, parent, tuple(map(identifier, target.expressions)), rely)
    return ForeignKey(columns, identifier(target.this), (), rely)


def _as_name(kind: exp.Expression) -> str:
    """Return the advice for a clause that begins with a word that may have been meant as the column's name."""
    words = {exp.LikeProperty: "like", exp.UniqueColumnConstraint: "unique"}
    return f'; a column of this name is quoted: "{words[type(kind)]}"' if type(kind) in words else ""


def _refuse(source: SqlText, node: exp.Expression, kind: exp.Expression) -> None:
    written = kind.sql(dialect="duckdb")
    raise source.unsupported(
        f"{written!r} in CREATE TABLE is not supported",
        offset_of(node),
        feature=written,
        hint=f"A column takes NOT NULL, PRIMARY KEY and REFERENCES{_as_name(kind)}.",
    )


_OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"true": True, "false": False},
    "keep": {"auto": "auto", "all": "all", "none": "none"},
    "changes": {"rarely": "rarely", "often": "often"},
}
"""Option of a table → the values that may be written, and what they are."""


def _options(source: SqlText, options: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    for name, (value, at) in options.items():
        if value not in _OPTIONS.get(name, ()):
            known = [f"{option} = {'|'.join(values)}" for option, values in _OPTIONS.items()]
            raise source.bind_error(
                f"unknown table option {name} = {value}",
                at,
                hint=f"The options are {', '.join(known[:-1])} and {known[-1]}.",
            )
    return {name: _OPTIONS[name][value] for name, (value, _) in options.items()}
