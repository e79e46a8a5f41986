"""Random views over a small schema, and random streams of events for it: what differential tests are fed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from hypothesis import strategies as st

SCHEMA = """
CREATE TABLE r (a INT NOT NULL, b INT, c VARCHAR, d DECIMAL(9,2));
CREATE TABLE s (a INT NOT NULL, e DATE, f DOUBLE);
CREATE TABLE t (b INT, g DECIMAL(9,2) NOT NULL, h BIGINT);
"""

COLUMNS = {
    "r": {"a": "int", "b": "int", "c": "text", "d": "decimal"},
    "s": {"a": "int", "e": "date", "f": "double"},
    "t": {"b": "int", "g": "decimal", "h": "int"},
}
_OPTIONAL = {("r", "b"), ("r", "c"), ("r", "d"), ("s", "e"), ("s", "f"), ("t", "b"), ("t", "h")}
_VALUES = {
    "int": st.integers(-2, 3),
    "text": st.sampled_from(["x", "y", "xy", ""]),
    "decimal": st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("10.00")]),
    "date": st.sampled_from([dt.date(2020, 2, 29), dt.date(2021, 1, 1), dt.date(2020, 12, 31)]),
    "double": st.sampled_from([0.0, 0.5, -1.25, 3.0]),
}


def values(table: str, column: str) -> st.SearchStrategy[object]:
    base = _VALUES[COLUMNS[table][column]]
    return st.one_of(base, st.none()) if (table, column) in _OPTIONAL else base


ROWS = {table: st.tuples(*(values(table, column) for column in columns)) for table, columns in COLUMNS.items()}


@st.composite
def streams(draw: st.DrawFn, max_size: int = 14) -> list[tuple[int, str, tuple[object, ...]]]:
    """Insertions, duplicates, and deletions of rows that are there."""
    events: list[tuple[int, str, tuple[object, ...]]] = []
    present: list[tuple[str, tuple[object, ...]]] = []
    for _ in range(draw(st.integers(1, max_size))):
        choice = draw(st.integers(0, 9))
        if present and choice < 3:
            relation, row = present.pop(draw(st.integers(0, len(present) - 1)))
            events.append((-1, relation, row))
            continue
        if present and choice == 3:
            relation, row = draw(st.sampled_from(present))
        else:
            relation = draw(st.sampled_from(sorted(ROWS)))
            row = draw(ROWS[relation])
        present.append((relation, row))
        events.append((+1, relation, row))
    return events


@st.composite
def views(draw: st.DrawFn, name: str = "v") -> str:
    """A CREATE VIEW over one to three tables, self-joins included."""
    count = draw(st.sampled_from([1, 2, 2, 3]))
    sources = [(draw(st.sampled_from(sorted(COLUMNS))), f"q{index}") for index in range(count)]
    columns = [(f"{alias}.{column}", kind) for table, alias in sources for column, kind in COLUMNS[table].items()]
    wheres: list[str] = []
    for index in range(1, count):
        for table, alias in sources[:index]:
            shared = [c for c in COLUMNS[sources[index][0]] if c in COLUMNS[table]]
            if shared and draw(st.integers(0, 5)):
                column = draw(st.sampled_from(shared))
                wheres.append(f"{alias}.{column} = {sources[index][1]}.{column}")
    wheres += draw(st.lists(conditions(columns), max_size=2))
    keys = draw(st.lists(expressions(columns), max_size=2, unique=True))
    aggregates = draw(st.lists(aggregate_calls(columns), min_size=0 if keys else 1, max_size=3))
    plain = draw(st.integers(0, 7)) == 0 and bool(keys)
    items = [f"{key} AS k{index}" for index, key in enumerate(keys)]
    if not plain:
        items += [f"{call} AS a{index}" for index, call in enumerate(aggregates)]
    sql = f"CREATE VIEW {name} AS SELECT {', '.join(items)} FROM {', '.join(f'{t} {a}' for t, a in sources)}"
    if wheres:
        sql += f" WHERE {' AND '.join(wheres)}"
    if keys and not plain:
        sql += f" GROUP BY {', '.join(keys)}"
        if aggregates and draw(st.integers(0, 4)) == 0:
            sql += " HAVING COUNT(*) > 1"
    return sql


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """One to three views, which may share maps."""
    return ";\n".join(draw(views(name=f"v{index}")) for index in range(draw(st.sampled_from([1, 1, 2, 3]))))


def _of(columns: list[tuple[str, str]], *kinds: str) -> list[str]:
    return [name for name, kind in columns if kind in kinds]


@st.composite
def expressions(draw: st.DrawFn, columns: list[tuple[str, str]]) -> str:
    """A group key: mostly a column, sometimes computed."""
    column, kind = draw(st.sampled_from(columns))
    if draw(st.integers(0, 3)):
        return column
    match kind:
        case "int":
            return draw(st.sampled_from([f"{column} + 1", f"CASE WHEN {column} > 0 THEN 'p' ELSE 'n' END"]))
        case "text":
            return draw(st.sampled_from([f"upper({column})", f"COALESCE({column}, 'none')"]))
        case "date":
            return draw(st.sampled_from([f"year({column})", f"extract(month FROM {column})"]))
        case "decimal":
            return f"({column} > 1)"
        case _:
            return column


@st.composite
def conditions(draw: st.DrawFn, columns: list[tuple[str, str]]) -> str:
    """A condition with every kind of predicate, NULLs included."""
    column, kind = draw(st.sampled_from(columns))
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    match draw(st.integers(0, 6)):
        case 0:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            other = draw(st.sampled_from(_of(columns, kind)))
            return f"{column} {op} {other}"
        case 2:
            left, right = draw(conditions(columns)), draw(conditions(columns))
            return f"({left} {draw(st.sampled_from(['OR', 'AND']))} {right})"
        case 3:
            return f"NOT ({draw(conditions(columns))})"
        case _:
            pass
    match kind:
        case "int":
            return draw(st.sampled_from([f"{column} {op} 1", f"{column} IN (0, 1, 2)", f"{column} BETWEEN 0 AND 2"]))
        case "text":
            return draw(st.sampled_from([f"{column} LIKE 'x%'", f"{column} {op} 'x'", f"{column} NOT IN ('x', 'y')"]))
        case "decimal":
            return f"{column} {op} 1.5"
        case "date":
            return draw(st.sampled_from([f"{column} {op} DATE '2020-12-31'", f"year({column}) = 2020"]))
        case _:
            return f"{column} {op} 0.5"


@st.composite
def aggregate_calls(draw: st.DrawFn, columns: list[tuple[str, str]]) -> str:
    """SUM, COUNT or AVG of a column or an expression."""
    numeric = _of(columns, "int", "decimal", "double")
    name = draw(st.sampled_from(["SUM", "SUM", "COUNT", "AVG"]))
    match draw(st.integers(0, 6)):
        case 0:
            return "COUNT(*)"
        case 1:
            return f"COUNT({draw(st.sampled_from(columns))[0]})"
        case 2:
            exact = _of(columns, "int", "decimal")
            if exact:
                first, second = draw(st.sampled_from(exact)), draw(st.sampled_from(exact))
                return f"{name}({first} {draw(st.sampled_from(['+', '-', '*']))} {second})"
        case 3 if numeric:
            chosen = draw(st.sampled_from(numeric))
            return f"{name}(CASE WHEN {draw(conditions(columns))} THEN {chosen} ELSE 0 END)"
        case 4 if numeric:
            chosen = draw(st.sampled_from(numeric))
            return f"{name}({chosen}) FILTER (WHERE {draw(conditions(columns))})"
        case _:
            pass
    return f"{name}({draw(st.sampled_from(numeric))})" if numeric else "COUNT(*)"
