"""Whether a view answers a query over base tables, which one, and if not, why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import duckdb

from cumulus.algebra.printing import quoted
from cumulus.algebra.terms import Var
from cumulus.m3.program import Program, ViewDef
from cumulus.view_answers.comparable import ComparableQueries, ComparableQuery, is_mean, parts_of_mean
from cumulus.view_answers.forms import Meaning, pairings
from cumulus.view_answers.query_shape import (
    QueryShape,
    Unanswerable,
    connected,
    same,
    shape_of,
    text_of,
)
from cumulus.view_answers.rewriting import ENDS, ROLLED_UP, ViewColumns, rewritten
from cumulus.views.duckdb_sql.trees import (
    Tree,
    everything,
    function_name,
    inner_queries,
)

MAX_EXTRA = 6
"""Up to how many conditions of a query, any of them may be those that a view does not have."""


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    """A query that a view answers.

    Parameters
    ----------
    view
        The view's name.
    sql
        The query over the view's rows, with the columns, names and types of the one that was asked.
    why
        One sentence that says which way.
    """

    view: str
    sql: str
    why: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A query that no view answers, and one sentence that says why."""

    why: str


Found: TypeAlias = ViewAnswer | NoAnswer


def view_answer(
    program: Program,
    sql: str,
    *,
    failed: Collection[str] = (),
    views: Collection[str] | None = None,
    functions: Collection[str] = (),
) -> Found:
    """Return how a view of a program answers a query over its base tables.

    Nothing is read: the answer holds for all rows of the tables. A query is answered that a view says in other words,
    or that puts groups of a view together, with conditions on grouping columns.

    Parameters
    ----------
    program
        The tables and views, with the maps' definitions.
    sql
        One SELECT in DuckDB's dialect.
    failed
        Views that lack what rows with errors should have added: they answer nothing.
    views
        The views that may answer; None for all that are shown.
    functions
        The names of functions of the user, beside the program's: a query that calls one is not answered.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> program = compile_sql('''
    ...     CREATE TABLE sales (shop VARCHAR, item VARCHAR, price DECIMAL(12,2));
    ...     CREATE VIEW revenue AS SELECT shop, item, SUM(price) AS total FROM sales GROUP BY shop, item''')
    >>> found = view_answer(program, "SELECT shop, SUM(price) AS r FROM sales WHERE item = 'tea' GROUP BY shop")
    >>> found.view, found.why
    ('revenue', 'revenue answers: its groups are put together, under the conditions that it does not have')
    >>> view_answer(program, "SELECT MAX(price) FROM sales").why
    'revenue has no column that gives max(sales.price)'
    """
    connection = connected(program)
    try:
        shape = shape_of(connection, program, sql, functions)
        return _Answering(connection, program, shape, failed, views).found()
    except Unanswerable as problem:
        return NoAnswer(str(problem))
    except duckdb.Error as problem:
        return NoAnswer(f"DuckDB does not take it: {str(problem).splitlines()[0]}")
    finally:
        connection.close()


class _Reason(Exception):  # noqa: N818 - why one view does not answer, and how near it came
    def __init__(self, nearness: int, why: str) -> None:
        super().__init__(why)
        self.nearness = nearness
        self.why = why


class _Answering:
    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        program: Program,
        shape: QueryShape,
        failed: Collection[str],
        views: Collection[str] | None,
    ) -> None:
        self.connection = connection
        self.program = program
        self.failed = failed
        self.views = [view for view in program.shown_views if views is None or view.name in views]
        self.shape = shape
        self.comparables = ComparableQueries(connection, program, shape)
        self.reason = _Reason(-1, "there are no views")

    def found(self) -> Found:
        for extra in self._extras():
            answers = [answer for view in self.views if (answer := self._try(view, extra))]
            if answers:  # equal before rolled up: fewer rows are read
                return min(answers, key=lambda each: not each[0])[1]
        return NoAnswer(self.reason.why)

    def _extras(self) -> Iterator[tuple[Tree, ...]]:
        """Iterate over the conditions that a view may lack, the fewest first."""
        able = [each for each in self.shape.conditions if _is_plain(each)]
        most = len(able) if len(able) <= MAX_EXTRA else 1
        for many in range(most + 1):
            yield from combinations(able, many)
        if most < len(able):
            yield tuple(able)

    def _try(self, view: ViewDef, extra: tuple[Tree, ...]) -> tuple[bool, ViewAnswer] | None:
        try:
            if view.name in self.failed:
                raise _Reason(6, f"{view.name} lacks what rows with errors should have added (see view_errors)")
            return self._compare(view, extra)
        except _Reason as reason:
            if reason.nearness > self.reason.nearness:
                self.reason = reason
        except Unanswerable as problem:
            if self.reason.nearness < 7:
                self.reason = _Reason(7, str(problem))
        return None

    def _compare(self, view: ViewDef, extra: tuple[Tree, ...]) -> tuple[bool, ViewAnswer]:
        theirs = Meaning(self.program, view)
        is_bag = view.repeat is not None
        if not theirs.main.definitions or not theirs.main.count:
            raise _Reason(0, f"{view.name} is kept by statements without definitions")
        if is_bag and view.repeat is not Var(theirs.main.count):
            raise _Reason(0, f"{view.name} repeats its rows in a way that is not compared")
        if not is_bag and not self.shape.is_grouped:
            raise _Reason(0, f"{view.name} has groups, and the query asks for single rows")
        hides = view.where is not None or view.limit is not None or bool(view.offset)
        mine = self.comparables.without(extra, is_bag)
        keys = tuple(name.name for name in mine.meaning.view.select[: len(mine.keys)] if isinstance(name, Var))
        if len(keys) != len(mine.keys) or len(set(keys)) != len(keys) or set(keys) - set(mine.meaning.keys):
            raise _Reason(0, "the query groups by something that is not compared")
        if not _same_rows(mine.meaning, theirs):
            raise _Reason(0, f"{view.name} is over other tables, or under other conditions")
        if view.limit is not None or view.offset:
            raise _Reason(
                5, f"{view.name} keeps only some rows of an order (LIMIT), where ties may be decided otherwise"
            )
        if hides and (extra or is_bag):
            raise _Reason(5, f"{view.name} leaves groups out (HAVING), and answers only the same query")
        pair, columns = self._paired(mine, keys, theirs)
        is_equal = not is_bag and len(pair) == len(theirs.keys) and bool(pair) == bool(self.shape.groups)
        is_equal = is_equal and len(mine.keys) == len(self.shape.groups)
        if hides:
            self._check_hidden(mine, theirs, pair, is_equal)
        if not is_equal and not is_bag:
            self._check_rolling(theirs, columns)
        text = rewritten(
            self.connection,
            self.shape,
            view,
            columns,
            extra,
            is_rolled_up=not is_equal,
            has_same_having=hides,
        )
        return is_equal, ViewAnswer(view.name, self._typed(view, text), _reason_of(view, extra, is_equal, is_bag))

    def _paired(
        self, mine: ComparableQuery, keys: tuple[str, ...], theirs: Meaning
    ) -> tuple[dict[str, str], ViewColumns]:
        """Return how keys are paired, and the columns; _Reason if there is no way."""
        view = theirs.view
        nearest = _Reason(2, self._missing(mine, keys, theirs))
        for pair in pairings(mine.meaning, keys, theirs):
            shown = {key: theirs.column_of(other) for key, other in pair.items()}
            labels = {key: f"key {place}" for place, key in enumerate(keys)}
            pins = {pair[key]: label for key, label in labels.items()}
            if mine.meaning.count_form(labels) != theirs.count_form(pins):
                continue
            lost = next((tree for key, tree in zip(keys, mine.keys, strict=True) if shown[key] is None), None)
            if lost is not None:
                nearest = _nearer(nearest, _Reason(3, f"{view.name} does not show {self._text(lost)}"))
                continue
            try:
                is_bag = view.repeat is not None
                numbers = {} if is_bag else self._numbers(mine, labels, theirs, pins)
            except _Reason as reason:
                nearest = _nearer(nearest, reason)
                continue
            places = {same(tree): int(shown[key] or 0) for key, tree in zip(keys, mine.keys, strict=True)}
            return pair, ViewColumns(places, numbers)
        raise nearest

    def _missing(self, mine: ComparableQuery, keys: tuple[str, ...], theirs: Meaning) -> str:
        there = {theirs.places(key) for key in theirs.keys}
        for key, tree in zip(keys, mine.keys, strict=True):
            if mine.meaning.places(key) not in there:
                is_group = same(tree) in map(same, self.shape.groups)
                use = "which the query groups by" if is_group else "which the query reads"
                return f"{theirs.view.name} has no column for {self._text(tree)}, {use}"
        return f"{theirs.view.name} has other grouping columns than those that the query reads"

    def _numbers(
        self, mine: ComparableQuery, labels: dict[str, str], theirs: Meaning, pins: dict[str, str]
    ) -> dict[str, tuple[int, ...]]:
        """Return the columns of the view that have each aggregate of the query."""
        shown: dict[tuple[str, str], int] = {}
        for place, (scalar, column) in enumerate(zip(theirs.view.select, theirs.view.columns, strict=True)):
            form = theirs.scalar_form(scalar, pins)
            if form is not None:
                shown.setdefault((form, str(column.type)), place)
        at: dict[str, int] = {}
        probe = mine.meaning.view
        for place, tree in enumerate(mine.numbers, len(mine.keys)):
            form = mine.meaning.scalar_form(probe.select[place], labels)
            kind = str(probe.columns[place].type)
            if form is not None and (form, kind) in shown:
                at[same(tree)] = shown[form, kind]
        found: dict[str, tuple[int, ...]] = {}
        is_whole = len(pins) == len(theirs.keys) and len(mine.keys) == len(self.shape.groups)
        for tree in self.shape.aggregate_calls:
            parts = [at.get(same(part)) for part in parts_of_mean(tree)] if is_mean(tree) else []
            own_column = at.get(same(tree))
            if own_column is not None and (is_whole or not parts):
                found[same(tree)] = (own_column,)
            elif parts and None not in parts:
                found[same(tree)] = tuple(int(part or 0) for part in parts)
            elif is_mean(tree) and own_column is not None:
                raise _Reason(5, f"{theirs.view.name} has {self._text(tree)} without the sum and the count behind it")
            elif not is_whole and not _rolls(tree):
                raise _Reason(4, _does_not_follow(self._text(tree), theirs.view))
            else:
                raise _Reason(4, f"{theirs.view.name} has no column that gives {self._text(tree)}")
        return found

    def _check_rolling(self, theirs: Meaning, columns: ViewColumns) -> None:
        for tree in self.shape.aggregate_calls:
            rolls = _rolls(tree) and not (is_mean(tree) and len(columns.numbers[same(tree)]) == 1)
            if not rolls:
                raise _Reason(5, _does_not_follow(self._text(tree), theirs.view))

    def _check_hidden(self, mine: ComparableQuery, theirs: Meaning, pair: dict[str, str], is_equal: bool) -> None:
        """Raise unless the query's HAVING keeps the rows that the view has."""
        labels = {key: f"key {place}" for place, key in enumerate(pair)}
        pins = {other: labels[key] for key, other in pair.items()}
        where = mine.meaning.view.where
        asked = None if where is None else mine.meaning.scalar_form(where, labels)
        has = None if theirs.view.where is None else theirs.scalar_form(theirs.view.where, pins)
        if not is_equal or asked is None or asked != has:
            raise _Reason(5, f"{theirs.view.name} leaves groups out (HAVING), and answers only the same query")

    def _typed(self, view: ViewDef, sql: str) -> str:
        """Return a query with the types of the one that was asked, if it has its names."""
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in view.columns)
        rows = duckdb.connect()
        try:
            rows.execute(f"CREATE TABLE {quoted(view.name)} ({columns})")
            found = [(str(row[0]), str(row[1])) for row in rows.execute(f"DESCRIBE {sql}").fetchall()]
        finally:
            rows.close()
        if found != [*self.shape.columns]:
            raise Unanswerable(f"{view.name} would give other types than the tables do")
        return sql

    def _text(self, tree: Tree) -> str:
        return text_of(self.connection, tree)


def _nearer(one: _Reason, other: _Reason) -> _Reason:
    return other if other.nearness > one.nearness else one


def _reason_of(view: ViewDef, extra: Sequence[Tree], is_equal: bool, is_bag: bool) -> str:
    conditions = ", under the conditions that it does not have" if extra else ""
    if is_bag:
        return f"{view.name} answers: it has the rows that the query reads{conditions}"
    if is_equal:
        return f"{view.name} answers: each of its rows is a group of the query{conditions}"
    return f"{view.name} answers: its groups are put together{conditions}"


def _same_rows(mine: Meaning, theirs: Meaning) -> bool:
    """Whether both count the same rows of the same tables."""
    return mine.count_form({}) == theirs.count_form({})


def _is_plain(condition: Tree) -> bool:
    """Whether a condition may be one on a view's rows."""
    return (
        not any("subquery" in each for each in everything(condition)) and next(inner_queries(condition), None) is None
    )


def _rolls(tree: Tree) -> bool:
    """Whether an aggregate of larger groups may follow from those of smaller ones."""
    name = function_name(tree)
    if tree.get("distinct"):
        return name in ENDS
    return name in ROLLED_UP or is_mean(tree)


def _does_not_follow(text: str, view: ViewDef) -> str:
    return f"{text} of larger groups does not follow from that of the groups of {view.name}"
