"""What a grid shows of a cube: from what it is asked for to a selection, and from that one's rows to a tree.

A grid groups by levels, splits by levels, sorts and filters; all of it becomes one selection with totals. So each row
of the tree, at every level, is folded from parts, and none is made of other rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from cumulus.algebra.order import order_key
from cumulus.algebra.printing import quoted
from cumulus.errors import UsageError
from cumulus.olap import Answered, Axis, CubeShape, CubeSource, Like, Selection
from cumulus.olap.conditions import Matching
from cumulus.olap.levels import ShownLevels
from cumulus.views.folding import Between, Bound, MeasureKind

GridConfig: TypeAlias = Mapping[str, Any]
"""What a grid asks for: `group_by`, `split_by`, `columns`, `filter` and `sort`, as Perspective writes them."""

TEXT, NUMBER = "string", "float"
OPERATORS = {TEXT: ("==", "in", ">=", "<=", "LIKE")}
_TYPES = {"VARCHAR": TEXT, "BOOLEAN": "boolean", "DATE": "date", "TIMESTAMP": "datetime", "INTERVAL": TEXT}
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_MOST_WHOLE = 2**31 - 1
"""Perspective's integers have 32 bits."""
MOST_ROWS = 200_000
"""A grid of more rows is refused."""


def grid_type(name: str) -> str:
    """Return what a grid calls a type of SQL; what is neither number nor time nor truth is shown as text."""
    return _TYPES.get(name, NUMBER)


def formats(types: Mapping[str, str]) -> dict[str, Any]:
    """Return how a grid is to write columns of these types of SQL: whole numbers without decimals."""
    whole = {"number_format": {"maximumFractionDigits": 0}}
    return {name: whole for name, type_ in types.items() if type_ in _WHOLE}


def table_schema(shape: CubeShape) -> dict[str, str]:
    """Return the columns that a grid may choose from: levels, as texts, then measures."""
    levels = {column.name: TEXT for column in shape.columns}
    return levels | {each.name: grid_type(each.type) for each in shape.measures if each.kind != MeasureKind.FIXED}


def selection_for(source: CubeSource, shape: CubeShape, config: GridConfig) -> Selection:
    """Return the selection that a grid asks for.

    Raises
    ------
    UsageError
        For what is no selection, such as a level without those above it.
    """
    levels = {column.name for column in shape.columns}
    columns = [name for name in config.get("columns", ()) if name]
    split = _axes(shape, config.get("split_by", ()))
    rows = _axes(shape, config.get("group_by", ()))
    if not rows and not split:  # rows without a tree: by the levels among the columns, as deep as they go
        rows = _deepest(shape, [name for name in columns if name in levels])
    twice = {axis.dimension.name for axis in rows} & {axis.dimension.name for axis in split}
    if twice:
        raise UsageError(f"{', '.join(twice)} is in rows and in columns", hint="Take it out of one of them.")
    measures = tuple(name for name in columns if name not in levels)
    pivoted = tuple(axis.dimension.name for axis in split)
    made = Selection(shape, ShownLevels((*rows, *split), pivoted), measures, source=source)
    for name, operator, value in config.get("filter", ()):
        made = _filtered(made, name, operator, value)
    order = [(name, way) for name, way in config.get("sort", ()) if way != "none"]
    shown = {*made.row_columns, *made.shown_measures}
    made = made.order_by(*(f"-{name}" if "desc" in way else name for name, way in order if name in shown))
    has_totals = config.get("group_by") and not _is_flat(config)
    return made.totals(*(axis.dimension.name for axis in rows)) if has_totals else made


def _is_flat(config: GridConfig) -> bool:
    """Whether only the members of the finest level are wanted: charts would take a total for one more member."""
    return config.get("group_rollup_mode") == "flat"


def _axes(shape: CubeShape, names: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes that stand one after the other in a list of levels, each from its coarsest level on."""
    axes: list[Axis] = []
    for name in names:
        last = axes[-1] if axes else None
        if last is not None and last.depth < len(last.dimension.levels) and last.dimension.levels[last.depth] == name:
            axes[-1] = Axis(last.dimension, last.depth + 1)
            continue
        found = next((each for each in shape.dimensions if each.levels[0] == name), None)
        if found is None or found in [axis.dimension for axis in axes]:
            of = next((each for each in shape.dimensions if name in each.levels), None)
            path = "" if of is None else ", ".join(of.levels[: of.levels.index(name) + 1])
            raise UsageError(
                f"{name} cannot be here: it is no coarsest level, nor the next one below",
                hint=f"Group by {path}, one after the other." if path else "Group by levels.",
            )
        axes.append(Axis(found, 1))
    return tuple(axes)


def _deepest(shape: CubeShape, names: Sequence[str]) -> tuple[Axis, ...]:
    found: dict[str, Axis] = {}
    for name in names:
        dimension = next(each for each in shape.dimensions if name in each.levels)
        depth = dimension.levels.index(name) + 1
        known = found.get(dimension.name)
        found[dimension.name] = Axis(dimension, max(depth, known.depth if known else 0))
    return tuple(found.values())


def _filtered(made: Selection, name: str, operator: str, value: Any) -> Selection:
    if name not in {column.name for column in made.shape.columns}:
        raise UsageError(f"{name} is a measure", hint="Filter levels; order by a measure to see its greatest first.")
    match operator:
        case "==":
            return made.dice(**{name: [member_of(value)]})
        case "in":
            values = value if isinstance(value, (list, tuple)) else [value]
            return made.dice(**{name: list(map(member_of, values))})
        case ">=":
            return made.dice(**{name: Between(value, None)})
        case "<=":
            return made.dice(**{name: Between(None, value)})
        case "LIKE":
            return made.dice(**{name: Like(str(value))})
    raise UsageError(f"{name} {operator}: there is no such filter", hint=f"There are {', '.join(OPERATORS[TEXT])}.")


def config_for(selection: Selection) -> dict[str, Any]:
    """Return what a grid is to ask for, to show a selection: the way back from `selection_for`."""
    filters: list[list[Any]] = []
    for each in selection.where:
        if isinstance(each, Bound) and isinstance(each.within, Between):
            ends = ((">=", each.within.low), ("<=", each.within.high))
            filters += ([each.column, sign, label(end)] for sign, end in ends if end is not None)
        elif isinstance(each, Bound):
            assert isinstance(each.within, tuple)
            texts = [label(value) for value in each.within]
            filters.append([each.column, "==", texts[0]] if len(texts) == 1 else [each.column, "in", texts])
        elif isinstance(each, Matching):
            filters.append([each.column, "LIKE", each.pattern])
        else:
            raise UsageError("a grid has no filter for several members of a dimension", hint="Filter its levels.")
    return {
        "group_by": list(selection.row_columns),
        "split_by": list(selection.pivot_columns),
        "columns": list(selection.shown_measures) or list(selection.row_columns),
        "filter": filters,
        "sort": [[name, "desc" if descending else "asc"] for name, descending in selection.order],
        "columns_config": formats({each.name: each.type for each in selection.shape.measures}),
        "aggregates": dict.fromkeys(table_schema(selection.shape), "measure"),
    }


def label(value: Any) -> str:
    """Return a member as a grid writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.isoformat(" ")
        case str() if value.strip("'") == "NULL":  # a text of that name is told from none
            return f"'{value}'"
    return str(value)


def member_of(text: Any) -> Any:
    """Return the member that a grid writes so; a level makes a value of its type of it."""
    if not isinstance(text, str) or text.strip("'") != "NULL":
        return text
    return None if text == "NULL" else text[1:-1]


@dataclass
class TreeRow:
    """A row of a grid: the members above it and its own, and its cells by column."""

    path: tuple[str, ...]
    cells: dict[str, Any] = field(default_factory=dict)
    children: dict[str, TreeRow] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """What a grid shows.

    Parameters
    ----------
    schema
        Its columns with their types, members of what it is split by with them.
    rows
        From the top, each before what is below it.
    depth
        How many levels the tree has; 0 where the rows are no tree.
    is_flat
        Whether only the rows of the finest level are there, with their paths.
    """

    selection: Selection
    answered: Answered
    schema: dict[str, str]
    rows: tuple[TreeRow, ...]
    depth: int
    is_flat: bool = False


def grid_of(source: CubeSource, shape: CubeShape, config: GridConfig) -> Grid:
    """Return what a grid shows now.

    Raises
    ------
    UsageError
        For what is no selection, and for more rows than a browser is to be given.
    """
    selection = selection_for(source, shape, config)
    answered = selection.pivot().read()
    if answered.table.num_rows > MOST_ROWS:
        raise UsageError(
            f"{answered.table.num_rows:,} rows are more than a grid shows", hint="Group by coarser levels, or filter."
        )
    types = table_schema(shape)
    columns = [name for name in config.get("columns", ()) if name]
    if not config.get("group_by") and not selection.pivot_columns:
        return _flat(selection, answered, {name: types[name] for name in columns})
    tree = _tree(selection, answered, columns, types)
    if not _is_flat(config):
        return tree
    return replace(tree, rows=tuple(row for row in tree.rows if len(row.path) == tree.depth), is_flat=True)


def _flat(selection: Selection, answered: Answered, schema: dict[str, str]) -> Grid:
    levels = {column.name for column in selection.shape.columns}
    rows = []
    for found in answered.table.select(list(schema)).to_pylist() if schema else []:
        cells = {name: label(value) if name in levels else _cell(value) for name, value in found.items()}
        rows.append(TreeRow((), cells))
    return Grid(selection, answered, schema, tuple(rows), 0)


def _tree(selection: Selection, answered: Answered, columns: Sequence[str], types: Mapping[str, str]) -> Grid:
    """Return the rows of each length of path, in the order of the answer among those with the same parent."""
    group, split = selection.row_columns, selection.pivot_columns
    shown = [*group, *split]
    # SQL's GROUPING of all columns of the answer, the last one's bit the least: which ones a row has no value of.
    depths = {
        sum(1 << (len(shown) - 1 - place) for place in range(depth, len(group))): depth
        for depth in range(len(group) + 1)
    }
    measures = [name for name in columns if name in selection.shown_measures]
    table: pa.Table = answered.table
    marks = [name for name in table.column_names if name not in {*shown, *selection.shown_measures}]
    groupings = table.column(marks[0]).to_pylist() if marks else [0] * table.num_rows
    raw = [table.column(name).to_pylist() for name in shown]
    members = [list(map(label, values)) for values in raw]
    values = {name: list(map(_cell, table.column(name).to_pylist())) for name in measures}
    top, heads = TreeRow(()), dict[str, tuple[Any, ...]]()
    places = sorted((depths[grouping], at) for at, grouping in enumerate(groupings) if grouping in depths)
    for depth, at in places:  # parents first, so that rows stand as the answer orders their own measures
        row = top
        for name in [column[at] for column in members[:depth]]:
            row = row.children.setdefault(name, TreeRow((*row.path, name)))
        head = "".join(f"{column[at].replace('|', '¦')}|" for column in members[len(group) :])
        heads.setdefault(
            head,
            tuple(
                (column[at] is None, 0 if column[at] is None else order_key(column[at])) for column in raw[len(group) :]
            ),
        )
        row.cells |= {head + name: found[at] for name, found in values.items()}
    whole = {each.name for each in selection.shape.measures if each.type in _WHOLE}
    for name in whole.intersection(measures):
        if all(value is None or abs(value) <= _MOST_WHOLE for value in values[name]):
            types = {**types, name: "integer"}  # a column of a pivot has no format of its own
    schema = {head + name: types[name] for head in sorted(heads, key=heads.__getitem__) for name in measures}
    rows: list[TreeRow] = []
    waiting = [top]
    while waiting:
        rows.append(waiting.pop())
        waiting += reversed(rows[-1].children.values())
    return Grid(selection, answered, schema, tuple(rows), len(group))


def _cell(value: Any) -> Any:
    """Return a value as a grid takes it: numbers as floats, times as they are, the rest as text."""
    if value is None or isinstance(value, (bool, str, dt.date)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return None if number != number else number


def sql_of(selection: Selection) -> str:
    """Return the SQL that says the same as a selection."""
    rows = ", ".join(map(quoted, selection.row_columns))
    shown = ", ".join(map(quoted, (*selection.row_columns, *selection.pivot_columns)))
    measures = [f"MEASURE({quoted(name)}) AS {quoted(name)}" for name in selection.shown_measures]
    text = f"SELECT {', '.join([*([shown] if shown else []), *measures])} FROM {quoted(selection.shape.name)}"
    tests = [_test(quoted(name), sign, value) for name, sign, value in config_for(selection)["filter"]]
    text += f" WHERE {' AND '.join(tests)}" if tests else ""
    if shown:
        pivots = "".join(f", {quoted(name)}" for name in selection.pivot_columns)
        text += f" GROUP BY ROLLUP ({rows}){pivots}" if rows and selection.levels.totals else f" GROUP BY {shown}"
    order = [f"{quoted(name)}{' DESC' if descending else ''}" for name, descending in selection.order]
    return text + (f" ORDER BY {', '.join(order)}" if order else "")


def _test(name: str, sign: str, value: Any) -> str:
    members = [member_of(each) for each in (value if sign == "in" else [value])]
    written = [_literal(each) for each in members if each is not None]
    if sign in (">=", "<=", "LIKE"):
        return f"{name} {sign} {written[0]}"
    tests = [f"{name} = {written[0]}" if len(written) == 1 else f"{name} IN ({', '.join(written)})"] if written else []
    tests += [f"{name} IS NULL"] if None in members else []
    return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"


def _literal(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"
