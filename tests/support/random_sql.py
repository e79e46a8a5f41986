"""Random views over the tables of `random_tables`: what differential tests are fed.

One function per construct; `draw` chooses among the rows of a table, so that a construct is added by adding a row.
Expressions know the kind of their columns ("int", "decimal", "float", "text", "date", "timestamp", "bool"), and
divide, overflow or fail to cast nowhere: those are errors of a view, tested on their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from support.random_tables import COLUMNS

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
NUMBERS = ("int", "decimal", "float")


@dataclass
class From:
    """A FROM clause: its text, the columns that may be used with their kinds, and conditions for WHERE."""

    text: str
    columns: list[tuple[str, str]]
    wheres: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> list[str]:
        """Return the columns of some kinds."""
        return [name for name, kind in self.columns if kind in kinds]


# --- FROM -----------------------------------------------------------------------------------------------------------


@st.composite
def froms(draw: st.DrawFn) -> From:
    """One to three tables, the same one perhaps several times, joined in every way."""
    if draw(st.integers(0, 7)) == 0:
        return draw(merged_joins())
    count = draw(st.sampled_from([1, 2, 2, 3]))
    sources = [(draw(st.sampled_from([*COLUMNS, "r"])), f"q{index}") for index in range(count)]
    columns = [(f"{alias}.{column}", kind) for table, alias in sources for column, kind in COLUMNS[table].items()]
    text = f"{sources[0][0]} {sources[0][1]}"
    wheres: list[str] = []
    for index in range(1, count):
        table, alias = sources[index]
        before = {source for _, source in sources[:index]}
        equalities = draw(
            st.lists(
                equal_columns(
                    [c for c in columns if c[0].split(".")[0] in before],
                    [c for c in columns if c[0].startswith(f"{alias}.")],
                ),
                max_size=2,
            )
        )
        equalities = [each for each in equalities if each]
        if equalities and draw(st.booleans()):
            text += f" JOIN {table} {alias} ON {' AND '.join(equalities)}"
        else:
            text += f"{draw(st.sampled_from([', ', ' CROSS JOIN ']))}{table} {alias}"
            wheres += equalities
    return From(text, columns, wheres)


@st.composite
def merged_joins(draw: st.DrawFn) -> From:
    """USING and NATURAL, with the merged column under its bare name."""
    return draw(
        st.sampled_from(
            [
                From("r q0 JOIN s q1 USING (a)", [("a", "int"), ("q1.a", "int"), ("q0.d", "decimal"), ("e", "date")]),
                From("r q0 NATURAL JOIN s q1", [("a", "int"), ("b", "int"), ("c", "text"), ("f", "float")]),
                From("r NATURAL JOIN t", [("b", "int"), ("a", "int"), ("d", "decimal"), ("g", "decimal")]),
                From("r JOIN t USING (b) JOIN s USING (a)", [("a", "int"), ("b", "int"), ("h", "int"), ("e", "date")]),
                From("r q0 JOIN r q1 USING (a, b)", [("a", "int"), ("b", "int"), ("q0.d", "decimal")]),
            ]
        )
    )


@st.composite
def equal_columns(draw: st.DrawFn, left: list[tuple[str, str]], right: list[tuple[str, str]]) -> str:
    """An equality of two columns of kinds that compare, of different types more often than not."""
    name, kind = draw(st.sampled_from(left))
    numeric = kind in NUMBERS
    others = [n for n, k in right if k == kind or (numeric and k in NUMBERS)]
    return f"{name} = {draw(st.sampled_from(others))}" if others else ""


# --- Expressions ----------------------------------------------------------------------------------------------------

# Kind → templates of group keys; {0} is a column of that kind.
KEYS = {
    "int": ["{0} + 1", "CASE WHEN {0} > 0 THEN 'p' ELSE 'n' END", "CASE {0} WHEN 1 THEN 'one' END", "{0} % 2", "-{0}"],
    "text": ["upper({0})", "COALESCE({0}, 'none')", "{0} || '!'", "NULLIF({0}, 'x')", "length({0})"],
    "date": ["year({0})", "extract(month FROM {0})", "{0} + INTERVAL '1 month'", "date_trunc('year', {0})", "{0} + 1"],
    "timestamp": ["CAST({0} AS DATE)", "hour({0})", "{0} - INTERVAL 1 DAY"],
    "decimal": ["({0} > 1)", "{0} * 2", "CAST({0} AS DECIMAL(12,1))", "round({0}, 1)"],
    "float": ["({0} > 1)", "{0} + 1"],
    "bool": ["NOT {0}", "CASE WHEN {0} THEN 1 WHEN NOT {0} THEN 2 END"],
}

# Kind → templates of predicates; {1} is a comparison operator.
PREDICATES = {
    "int": [
        "{0} {1} 1", "{0} IN (0, 1, 2)", "{0} NOT IN (0, 1)", "{0} BETWEEN 0 AND 2", "{0} IN (1, NULL)",
        "{0} NOT IN (1, NULL)", "{0} NOT BETWEEN 1 AND NULL", "{0} {1} 0.5", "{0}", "{0} IS DISTINCT FROM 1",
        "({0} > 0) IS NOT TRUE", "{0} {1} NULL",
    ],
    "text": [
        "{0} LIKE 'x%'", "{0} NOT LIKE '%y'", "{0} {1} 'x'", "{0} NOT IN ('x', 'y')", "{0} NOT ILIKE 'X_'",
        "{0} LIKE NULL", "{0} = 'o''k'", "{0} LIKE 'é!%' ESCAPE '!'",
    ],
    "decimal": ["{0} {1} 1.5", "{0} BETWEEN 0 AND 1.50", "{0} IN (1, 1.5)", "{0} {1} 1"],
    "date": [
        "{0} {1} DATE '2020-12-31'", "year({0}) = 2020", "{0} {1} '2020-12-31'",
        "{0} > TIMESTAMP '2020-12-31 06:00:00'",
    ],
    "timestamp": ["{0} {1} TIMESTAMP '2020-12-31 00:00:00'", "{0} {1} DATE '2020-12-31'"],
    "float": ["{0} {1} 0.5", "{0} {1} 0", "{0} IN (0, 3)", "{0} IS NOT DISTINCT FROM 0.5"],
    "bool": ["{0}", "NOT {0}", "{0} IS TRUE", "{0} IS NOT FALSE", "{0} = FALSE"],
}  # fmt: skip

# Templates of exact numbers; {0} and {1} are exact columns, {2} is a condition.
NUMBER_TEMPLATES = [
    "{0}", "{0} + {1}", "{0} - {1}", "{0} * {1}", "-{0}", "{0} * (1 - {1})", "CASE WHEN {2} THEN {0} ELSE 0 END",
    "CASE WHEN {2} THEN {0} END", "CASE WHEN {2} THEN {0} WHEN {1} > 0 THEN CASE WHEN {2} THEN 1 END ELSE {1} END",
    "COALESCE({0}, {1})", "COALESCE({0}, 0) - {1}", "NULLIF({0}, {1})", "NULLIF({0}, 1)", "2", "{0} + {1} + {0}",
    "least({0}, {1})", "abs({0})", "CAST({0} AS DOUBLE)",
]  # fmt: skip


@st.composite
def keys(draw: st.DrawFn, source: From) -> str:
    """A group key: mostly a column, sometimes computed."""
    column, kind = draw(st.sampled_from(source.columns))
    return column if draw(st.integers(0, 2)) else draw(st.sampled_from(KEYS[kind])).format(column)


@st.composite
def conditions(draw: st.DrawFn, source: From, depth: int = 0) -> str:
    """A condition with every kind of predicate, NULLs included."""
    column, kind = draw(st.sampled_from(source.columns))
    operator = draw(st.sampled_from(OPERATORS))
    match draw(st.integers(0, 9 if depth < 2 else 6)):
        case 0:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            return f"{column} {operator} {draw(st.sampled_from(source.of(kind)))}"
        case 2 if kind in NUMBERS:
            return f"{column} {operator} {draw(st.sampled_from(source.of(*NUMBERS)))}"
        case 7 | 8:
            left, right = draw(conditions(source, depth + 1)), draw(conditions(source, depth + 1))
            return f"({left} {draw(st.sampled_from(['OR', 'AND']))} {right})"
        case 9:
            return f"NOT ({draw(conditions(source, depth + 1))})"
        case _:
            return draw(st.sampled_from(PREDICATES[kind])).format(column, operator)


@st.composite
def numbers(draw: st.DrawFn, source: From) -> str:
    """Something that SUM and AVG take."""
    floats, exact = source.of("float"), source.of("int", "decimal")
    if floats and (not exact or draw(st.integers(0, 3)) == 0):
        return draw(st.sampled_from(["{0}", "-{0}", "{0} + 1"])).format(draw(st.sampled_from(floats)))
    if not exact:
        return "1.5"
    first, second = draw(st.sampled_from(exact)), draw(st.sampled_from(exact))
    return draw(st.sampled_from(NUMBER_TEMPLATES)).format(first, second, draw(conditions(source, 1)))


@st.composite
def aggregate_calls(draw: st.DrawFn, source: From) -> str:
    """SUM, COUNT or AVG, filtered or not."""
    match draw(st.integers(0, 4)):
        case 0:
            call = "COUNT(*)"
        case 1:
            call = f"COUNT({draw(st.sampled_from(source.columns))[0]})"
        case _:
            call = f"{draw(st.sampled_from(['SUM', 'SUM', 'COUNT', 'AVG']))}({draw(numbers(source))})"
    return call if draw(st.integers(0, 4)) else f"{call} FILTER (WHERE {draw(conditions(source, 1))})"


# --- SELECT ---------------------------------------------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn, name: str = "v") -> str:
    """A CREATE VIEW."""
    source = draw(froms())
    wheres = source.wheres + draw(st.lists(conditions(source), max_size=2))
    groups = draw(st.lists(keys(source), max_size=2, unique=True))
    calls = draw(st.lists(aggregate_calls(source), min_size=0 if groups else 1, max_size=3))
    where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
    named = [f"{key} AS k{index}" for index, key in enumerate(groups)]
    constants = draw(st.sampled_from([[], [], [], [], ["'k' AS const"], ["1 AS const", "2.50 AS other"]]))
    head = f"CREATE VIEW {name} AS SELECT"
    if groups and draw(st.integers(0, 5)) == 0:
        return f"{head} {', '.join(named + constants)} FROM {source.text}{where}"
    items = named + constants + [f"{call} AS a{index}" for index, call in enumerate(calls)]
    grouping = ""
    if groups:
        # By expression, alias or position, each in its turn.
        ways = [draw(st.sampled_from([key, f"k{index}", str(index + 1)])) for index, key in enumerate(groups)]
        grouping = f" GROUP BY {', '.join(ways)}"
    elif constants and draw(st.booleans()):
        grouping = " GROUP BY const"
    having = draw(st.sampled_from(["", "", "", " HAVING COUNT(*) > 1", None]))
    if having is None:
        having = f" HAVING {draw(aggregate_calls(source))} {draw(st.sampled_from(OPERATORS))} 1"
    return f"{head} {', '.join(items)} FROM {source.text}{where}{grouping}{having}"


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """One to three views, which may share maps."""
    return ";\n".join(draw(views(name=f"v{index}")) for index in range(draw(st.sampled_from([1, 1, 2, 3]))))
