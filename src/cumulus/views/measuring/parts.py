"""Parts of a view as a table for DuckDB, and what makes measures of sums over them, as SQL.

A row of the table has the grouping columns and the numbers that are added. The values of which a view reads ends, or
which it counts once, are further rows, with NULL in all other columns. So each measure is right under any grouping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.algebra.terms import Apply, Cast, MapExtremum, Term, Var
from cumulus.catalog.arrow import array_of
from cumulus.catalog.types import DOUBLE, VARCHAR, Kind, SqlType, coerce
from cumulus.errors import EvaluationError
from cumulus.scalars.duckdb_text import ScalarText
from cumulus.views.entries import Key
from cumulus.views.folding import Partial
from cumulus.views.folding.partial import weigher
from cumulus.views.folding.plan import FoldedNumber, end_maps
from cumulus.views.measuring.functions import DISTINCT_TOTAL, EXACT_TOTAL, SPREADS


class PartsTable:
    """Parts of a view for DuckDB.

    Parameters
    ----------
    partial
        The parts, folded over the grouping columns that a query names.
    values
        Of the view whose maps were read: the name of a value column → which of its maps, and which column.
    alias
        What the query calls the table.
    """

    def __init__(self, partial: Partial, values: Mapping[str, tuple[int, int]], alias: str) -> None:
        self._partial, self._plan = partial, partial.plan
        self._alias = quoted(alias)
        self._prefix = "parts"
        while any(name.lower().startswith(self._prefix) for name in self._plan.shown):
            self._prefix += "_"
        self._first = self._plan.program.map(self._plan.view.maps[0])
        self._added = {number: place for place, number in enumerate(self._plan.added)}
        self._untidy = {
            counted
            for counted, held in partial.pairs.items()
            if any(count <= 0 for found in held.values() for count in found.values())
        }
        numbers = {(number.place, number.column): number for number in self._plan.numbers}
        self._names = {name: numbers[place] for name, place in values.items() if place in numbers}

    # --- the table --------------------------------------------------------------------------------------------------

    def table(self) -> pa.Table:
        """Return the rows.

        Raises
        ------
        EvaluationError
            If a number is beyond what DuckDB holds.
        """
        try:
            tables = [self._sums(), *self._ends(), *self._values()]
        except (pa.ArrowInvalid, OverflowError) as problem:
            raise EvaluationError(
                f"view {self._plan.source}: a number is beyond what DuckDB adds up: {problem}",
                view=self._plan.source,
                hint="Ask for it by fold(), which adds numbers of any size.",
            ) from None
        return pa.concat_tables(tables, promote_options="default")

    def _groups(self, keys: list[Key]) -> pa.Table:
        """Return grouping columns."""
        names = [key.name for key in self._first.keys]
        shown = self._plan.view.columns[: len(self._plan.shown)]
        arrays, columns = [], []
        for scalar, column in zip(self._plan.view.select, shown, strict=False):
            key = scalar.arg if isinstance(scalar, Cast) else scalar
            assert isinstance(key, Var)
            assert column.type is not None
            place, kind = names.index(key.name), column.type
            found = [each[place] for each in keys]
            if scalar is not key:
                found = [None if value is None else coerce(value, kind) for value in found]
            arrays.append(array_of(found, kind))
            columns.append(column.name)
        # A table without columns would have no rows.
        return pa.Table.from_arrays([*arrays, pa.nulls(len(keys), pa.bool_())], names=[*columns, self._prefix])

    def _sums(self) -> pa.Table:
        rows = list(self._partial.groups.items())
        table = self._groups([key for key, _ in rows])
        for number, place in self._added.items():
            name, given = self._column(number), [numbers[place] for _, numbers in rows]
            if number.type.is_float:
                # A sum that has grown beyond DOUBLE has its parts in another unit: it is inf.
                pairs = [each[:2] if isfinite(each[0]) else (each[0], 0.0) for each in given]
                table = table.append_column(name, array_of([first for first, _ in pairs], DOUBLE))
                table = table.append_column(f"{name}c", array_of([rest for _, rest in pairs], DOUBLE))
            elif number.type.kind is Kind.BIGDECIMAL:
                table = table.append_column(name, array_of([_text(each) for each in given], VARCHAR))
            else:
                table = table.append_column(name, array_of(given, number.type))
        return table

    def _ends(self) -> Iterator[pa.Table]:
        for place, (name, ends) in enumerate(zip(end_maps(self._plan), self._partial.ends, strict=True)):
            axis = self._plan.program.map(name).keys[-1]
            yield self._groups(list(ends)).append_column(
                f"{self._prefix}e{place}", array_of(list(ends.values()), axis.type)
            )

    def _values(self) -> Iterator[pa.Table]:
        for counted, held in self._partial.pairs.items():
            numbers = [each for each in self._plan.numbers if each.distinct and each.distinct.counted == counted]
            ids: dict[Key, int] = {}
            rows = [(group, value, n) for group, found in held.items() for value, n in found.items()]
            table = self._groups([group for group, _, _ in rows])
            marks = [ids.setdefault(value, len(ids)) for _, value, _ in rows]
            for number in numbers:
                assert number.distinct is not None
                weigh, kind = weigher(number.distinct), self._weight_type(number)
                weights = {value: weigh(value) or 0 for value in ids}
                values = [weights[value] for _, value, _ in rows]
                given = [_text(each) for each in values] if kind == VARCHAR else values
                fields = {"v": pa.array(marks, pa.int64()), "w": array_of(given, kind)}
                if kind == VARCHAR:
                    fields["n"] = pa.array([n for _, _, n in rows], pa.int64())
                column = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
                table = table.append_column(self._column(number), column)
            yield table

    def _weight_type(self, number: FoldedNumber) -> SqlType:
        assert number.distinct is not None
        is_text = number.distinct.counted in self._untidy or number.type.kind is Kind.BIGDECIMAL
        kind: SqlType = VARCHAR if is_text else number.type
        return kind

    def _column(self, number: FoldedNumber) -> str:
        return f"{self._prefix}{number.place}_{number.column}"

    # --- SQL --------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> str:
        """How many rows the groups count, as SQL; "" for a view without GROUP BY."""
        place = self._plan.count_place
        return "" if place is None else f"SUM({self._in_table(self._column(self._plan.added[place]))})"

    @property
    def has_gaps(self) -> bool:
        """Whether some group counts nothing, or less: rows were taken away that have not come yet."""
        place = self._plan.count_place
        return place is not None and any(numbers[place] <= 0 for numbers in self._partial.groups.values())

    def measure(self, name: str, nothing: str) -> str:
        """Return a measure as SQL.

        Parameters
        ----------
        nothing
            What it is over no rows, as SQL.
        """
        place = len(self._plan.shown) + [each for each, _ in self._plan.kinds].index(name)
        ends = {
            each: f"{end.end}({self._in_table(f'{self._prefix}e{number}')})"
            for number, (each, end) in enumerate(zip(end_maps(self._plan), self._plan.ends, strict=True))
        }
        texts = {each: self._number(number) for each, number in self._names.items()}
        exact = {
            each: self._as_text(number) for each, number in self._names.items() if number.type.kind is Kind.BIGDECIMAL
        }
        made = _Finishing(texts, exact, ends).scalar(self._plan.view.select[place])
        text = f"CAST({made} AS {self._plan.view.columns[place].type})"
        return f"CASE WHEN {self.count} > 0 THEN {text} ELSE {nothing} END" if self.count else text

    def _in_table(self, column: str) -> str:
        return f"{self._alias}.{column}"

    def _number(self, number: FoldedNumber) -> str:
        """Return a value column, put together."""
        column, kind = self._in_table(self._column(number)), number.type
        if kind.kind is Kind.BIGDECIMAL:
            return f"CAST({self._as_text(number)} AS DOUBLE)"
        if number.distinct is not None:
            if number.distinct.counted in self._untidy:
                return f"CAST({self._as_text(number)} AS {kind})"
            if number.distinct.weight is None:
                return f"CAST(COUNT(DISTINCT {column}.v) AS {kind})"
            total = "fsum" if kind.is_float else "sum"
            # DuckDB has no lambdas in HAVING, but maps.
            entries = f"map_from_entries(list(DISTINCT {column}) FILTER (WHERE {column} IS NOT NULL))"
            return f"CAST(COALESCE(list_aggregate(map_values({entries}), '{total}'), 0) AS {kind})"
        if kind.is_float:
            return f"COALESCE(fsum({column}), 0) + COALESCE(fsum({column}c), 0)"
        return f"CAST(COALESCE(SUM({column}), 0) AS {kind})"

    def _as_text(self, number: FoldedNumber) -> str:
        function = EXACT_TOTAL if number.distinct is None else DISTINCT_TOTAL
        return f"{function}(list({self._in_table(self._column(number))}))"


class _Finishing(ScalarText):
    """Writes what makes a row of numbers and ends.

    Parameters
    ----------
    exact
        The numbers that DuckDB's types do not hold, as texts.
    """

    def __init__(self, numbers: Mapping[str, str], exact: Mapping[str, str], ends: Mapping[str, str]) -> None:
        super().__init__(numbers, numbers)
        self._exact, self._ends = exact, ends

    def scalar(self, term: Term) -> str:
        """Return a SQL value."""
        match term:
            case MapExtremum(_, map, _):
                return self._ends[map]
            case Apply("variance_of" | "deviation_of" as function, args):
                given = [self._exact_text(arg) for arg in args]
                return f"{SPREADS[function]}({', '.join(given)})"
            case _:
                return super().scalar(term)

    def _exact_text(self, term: Term) -> str:
        if isinstance(term, Var) and term.name in self._exact:
            return self._exact[term.name]
        return f"CAST({self.scalar(term)} AS VARCHAR)"


def _text(number: Any) -> str:
    return format(number, "f") if isinstance(number, Decimal) else repr(number)
