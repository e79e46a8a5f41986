"""From a selection to its rows: one fold, larger groups put together from its parts, and what is done with rows.

Each row, cell and total is finished from parts: nothing is ever made of finished numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from cumulus.algebra.order import order_key
from cumulus.catalog.schema import Column
from cumulus.catalog.text_values import value_of
from cumulus.catalog.types import Kind, coerce
from cumulus.errors import EvaluationError, UsageError
from cumulus.olap.blocks import RowSet, key_values, stacked
from cumulus.olap.ordering import OrderColumn, sorted_places
from cumulus.olap.pivoting import Pivoted, free_name
from cumulus.olap.planning import plan_of
from cumulus.views import Finisher
from cumulus.views.entries import Key
from cumulus.views.folding import Bound, Partial
from cumulus.views.folding.regrouping import Regrouping

if TYPE_CHECKING:
    from cumulus.olap.question import Having, Question

Folding: TypeAlias = Callable[[Sequence[str], Sequence[Bound], Sequence[str]], Partial]


@dataclass(frozen=True, slots=True)
class CubeRows:
    """The rows of a question, and the partial that they were made of."""

    table: pa.Table
    partial: Partial


def answer(question: Question, fold: Folding, finisher_of: Callable[[str], Finisher]) -> CubeRows:
    """Return the rows of a question.

    Parameters
    ----------
    fold
        Takes levels, bounds and measures; returns the parts of the groups.
    finisher_of
        From a view's name to what makes its rows.

    Raises
    ------
    UsageError
        If a measure cannot be folded so.
    """
    plan = plan_of(question)
    partial = fold(plan.by, plan.where, plan.columns)
    finisher = finisher_of(partial.choice.view)
    regrouping = Regrouping(finisher, partial)
    keep: Callable[[Key], bool] | None = None
    if plan.test is not None:
        key_of, test = regrouping.key_of(plan.tested), plan.test
        keep = lambda group: test(key_of(group))  # noqa: E731
    whole = regrouping.to((*question.row_columns, *question.pivot_columns), keep)

    def again(by: Sequence[str]) -> pa.Table:
        found = fold(by, plan.where, plan.columns)
        if found.at != partial.at:
            raise EvaluationError(
                f"{question.shape.name} has changed while it was read", hint="Read it again, or leave the totals out."
            )
        return found.finish()

    # What is fixed is not put together: each set of levels is looked up in a map of its own.
    refold = again if partial.plan.fixed and keep is None else None
    rows = _Rows(question, Regrouping(finisher, whole), plan.rows, plan.pivots, refold)
    return CubeRows(rows.table(), partial)


class _Rows:
    """Makes the rows of one selection from parts."""

    def __init__(
        self,
        question: Question,
        regrouping: Regrouping,
        rows: tuple[tuple[str, ...], ...],
        pivots: tuple[tuple[str, ...], ...],
        refold: Callable[[Sequence[str]], pa.Table] | None,
    ) -> None:
        self._refold = refold
        self._question, self._regrouping = question, regrouping
        self._row_sets, self._pivot_sets = rows, pivots
        self._rows, self._pivots = question.row_columns, question.pivot_columns
        self._measures = question.shown_measures
        best = question.best
        if question.order or best is None:
            self._order = question.order
        else:
            self._order = (*((name, False) for name in best.per if name in self._rows), (best.by, not best.least))

    def table(self) -> pa.Table:
        """Return the rows."""
        blocks = self._with_top(self._blocks())
        made, order = self._pivoted(blocks) if self._pivots else self._plain(blocks)
        if order:
            made = made.take(sorted_places(order))
        most = self._question.most
        return made if most is None else made.slice(0, min(most, made.num_rows))

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _blocks(self) -> list[RowSet]:
        found = [
            self._kept(RowSet(self._finished(rows, pivots), rows, pivots))
            for rows in self._row_sets
            for pivots in self._pivot_sets
        ]
        if self._orders_cells:
            found += [RowSet(self._finished(rows, ()), rows, (), is_hidden=True) for rows in self._row_sets]
        return found

    @property
    def _orders_cells(self) -> bool:
        """Whether pivoted rows are ordered by a measure: that of the row, over all its columns."""
        return bool(self._pivots) and any(name in self._measures for name, _ in self._order)

    def _finished(
        self, rows: tuple[str, ...], pivots: tuple[str, ...], keep: Callable[[Key], bool] | None = None
    ) -> pa.Table:
        by = (*rows, *pivots)
        if self._refold is not None and keep is None and by != self._regrouping.by:
            return self._refold(by)
        return self._regrouping.to(by, keep).finish()

    def _kept(self, block: RowSet) -> RowSet:
        """Return the rows that all conditions on measures leave."""
        table = block.table
        for each in self._question.keeps:
            wanted = _typed(each, self._column(each.measure))
            kept = [_compares(value, each.operator, wanted) for value in table.column(each.measure).to_pylist()]
            table = table.filter(pa.array(kept, pa.bool_()))
        return replace(block, table=table)

    # --- top --------------------------------------------------------------------------------------------------------

    def _with_top(self, blocks: list[RowSet]) -> list[RowSet]:
        best = self._question.best
        if best is None:
            return blocks
        ranked = (*self._rows, *(name for name in self._pivots if name in best.per))
        kept, rest = self._ranked(ranked)
        found = []
        for block in blocks:
            if block.rows == self._rows:
                names = [name for name in ranked if name in self._rows or name in block.pivots]
                wanted = {tuple([key[ranked.index(name)] for name in names]) for key in kept}
                keys = key_values(block.table, self._columns(names))
                block = replace(block, table=block.table.filter(pa.array([key in wanted for key in keys], pa.bool_())))
            found.append(block)
        if best.others and rest:
            key_of = self._regrouping.key_of(ranked)
            rows = tuple(name for name in self._rows if name in best.per)
            sets = [*((pivots, False) for pivots in self._pivot_sets), *([((), True)] * self._orders_cells)]
            for pivots, is_hidden in sets:
                table = self._finished(rows, pivots, lambda group: key_of(group) in rest)
                found.append(RowSet(table, rows, pivots, is_others=True, is_hidden=is_hidden))
        return found

    def _ranked(self, ranked: tuple[str, ...]) -> tuple[set[Key], set[Key]]:
        """Return the groups that are in the top, and those that are not."""
        best = self._question.best
        assert best is not None
        block = RowSet(self._finished(ranked, ()), ranked, ())
        if set(ranked) == {*self._rows, *self._pivots}:
            block = self._kept(block)
        others = [name for name in ranked if name not in best.per]
        order = [OrderColumn(block.table.column(name)) for name in best.per]
        order.append(OrderColumn(block.table.column(best.by), not best.least))
        order += [OrderColumn(block.table.column(name)) for name in others]
        table = block.table.take(sorted_places(order))
        counts: dict[Key, int] = {}
        kept: set[Key] = set()
        rest: set[Key] = set()
        for group, key in zip(
            key_values(table, self._columns(best.per)), key_values(table, self._columns(ranked)), strict=True
        ):
            counts[group] = counts.get(group, 0) + 1
            (kept if counts[group] <= best.count else rest).add(key)
        return kept, rest

    # --- rows -------------------------------------------------------------------------------------------------------

    def _plain(self, blocks: list[RowSet]) -> tuple[pa.Table, list[OrderColumn]]:
        schema = blocks[0].table.schema
        made = stacked(blocks, self._columns(self._rows), self._measures, schema)
        sizes = [block.table.num_rows for block in blocks]
        groupings = _repeated([block.grouping(self._rows) for block in blocks], sizes, pa.int64())
        is_others = _repeated([block.is_others for block in blocks], sizes, pa.bool_())
        order = self._ordered({name: made.column(name) for name in made.column_names}, groupings, is_others)
        for name, values in self._marks({*made.column_names}, groupings, is_others).items():
            made = made.append_column(name, values)
        return made, order

    def _pivoted(self, blocks: list[RowSet]) -> tuple[pa.Table, list[OrderColumn]]:
        pivoted = Pivoted(blocks, self._columns(self._rows), self._columns(self._pivots), self._measures)
        schema = blocks[0].table.schema
        columns: dict[str, Any] = {}
        for name in self._rows:
            values = [
                table.column(name)[at].as_py() if name in block.rows else None for block, table, at in pivoted.first
            ]
            columns[name] = pa.array(values, schema.field(name).type)
        groupings = pa.array([block.grouping(self._rows) for block, _, _ in pivoted.first], pa.int64())
        is_others = pa.array([block.is_others for block, _, _ in pivoted.first], pa.bool_())
        cells = {**columns, **self._marks({*columns}, groupings, is_others)}
        for name, values in pivoted.columns({*cells}).items():
            cells[name] = values
        known = dict(columns)
        if self._orders_cells:
            known |= {
                name: pivoted.measure(name, (), (), is_hidden=True) for name, _ in self._order if name in self._measures
            }
        return pa.table(cells), self._ordered(known, groupings, is_others)

    def _marks(self, taken: set[str], groupings: pa.Array, is_others: pa.Array) -> dict[str, pa.Array]:
        """Return the columns that tell totals and the rest from other rows, where there are such."""
        found = {}
        if len(self._row_sets) > 1:
            found[free_name("grouping", taken)] = groupings
        if self._question.best is not None and self._question.best.others:
            found[free_name("others", taken)] = is_others
        return found

    def _ordered(self, columns: dict[str, Any], groupings: pa.Array, is_others: pa.Array) -> list[OrderColumn]:
        """Return what rows are ordered by: what was asked for, then their levels, each total after its rows."""
        per = () if self._question.best is None else self._question.best.per
        found: list[OrderColumn] = []
        is_told = False
        for name, descending in self._order:
            if name not in per and not is_told:
                found.append(OrderColumn(is_others))
                is_told = True
            found.append(OrderColumn(columns[name], descending))
        bits = groupings.to_numpy()
        for place, name in enumerate(self._rows):
            if len(self._row_sets) > 1:
                found.append(OrderColumn(pa.array((bits >> (len(self._rows) - 1 - place)) & 1)))
            found.append(OrderColumn(columns[name]))
        return found

    # --- columns ----------------------------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> dict[str, Column]:
        return {column.name: column for column in self._question.shape.columns}

    def _columns(self, names: Sequence[str]) -> list[Column]:
        return [self._known[name] for name in names]

    def _column(self, measure: str) -> Column:
        found: Column = next(column for column in self._regrouping.columns if column.name == measure)
        return found


def grouping_of(table: pa.Table, question: Question) -> list[int]:
    """Return GROUPING of the rows of a question: 0 for those that are no totals."""
    if len(plan_of(question).rows) == 1:
        return [0] * int(table.num_rows)
    known = {*question.row_columns, *question.shown_measures}
    name = next(name for name in table.column_names if name not in known and name.rstrip("_") == "grouping")
    found: list[int] = table.column(name).to_pylist()
    return found


def _repeated(values: Sequence[Any], sizes: Sequence[int], type: pa.DataType) -> pa.Array:
    return pa.array([value for value, size in zip(values, sizes, strict=True) for _ in range(size)], type)


def _typed(having: Having, column: Column) -> Any:
    """Return the value of a condition as the measure has it; numbers are compared as they are."""
    value = having.value
    if not isinstance(value, str) or column.type is None or column.type.kind is Kind.VARCHAR:
        return value
    try:
        found = value_of(value, column.type)
        return found if column.type.is_numeric else coerce(found, column.type)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"having {having.measure}: {problem}", hint=f"It is a {column.type}.") from None


def _compares(value: Any, sign: str, wanted: Any) -> bool:
    if wanted is None:
        return (value is None) is (sign == "=")
    if value is None:
        return False
    left, right = _place(value), _place(wanted)
    try:
        return bool(_OPERATORS[sign](left, right))
    except TypeError:
        raise UsageError(
            f"having: {value!r} does not compare with {wanted!r}", hint="Give a value of the measure's type."
        ) from None


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _place(value: Any) -> Any:
    """Return what numbers of all types are compared by: NaN is the greatest."""
    if isinstance(value, (int, float, Decimal)):
        return (value != value, 0 if value != value else value)
    return order_key(value)
