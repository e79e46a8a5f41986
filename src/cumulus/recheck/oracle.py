"""What views and maps should be, computed from base rows and nothing else.

Two ways that share nothing with the engines: DuckDB runs the SQL of the views as the user wrote it, or the SQL that is
a map's definition; the reference evaluator computes the terms of definitions that have no SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import localcontext
from math import prod
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.algebra.terms import Atom, Term
from cumulus.calculus.evaluate import evaluate
from cumulus.catalog.arrow import table_of, values_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import EXACT, SqlType, coerce
from cumulus.compiler.declarations import declarations
from cumulus.errors import EvaluationError, UsageError
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef
from cumulus.sql.syntax.parse import parse_script
from cumulus.sql.syntax.words import for_duckdb
from cumulus.views.duckdb_sql.functions import set_utc

Base: TypeAlias = Mapping[str, Mapping[Row, int]]
"""Table → row → how often it stands."""

Entries: TypeAlias = list[tuple[Row, tuple[Any, ...]]]


MAX_PAIRS = 1_000_000
"""How many combinations of rows the reference evaluator is given to find the magnitude of a sum of floats."""


class Oracle:
    """Recomputes views and maps over base rows; a table that is left out of them is empty.

    `script` is the SQL that declares tables and views; None for a program written in M3.
    """

    def __init__(self, relations: Iterable[Table], base: Base, script: str | None = None) -> None:
        self._base = base
        self._tables = {relation.name: relation for relation in relations}
        self._connection = duckdb.connect(config={"python_enable_replacements": "false"})
        set_utc(self._connection)
        for name, table in self._tables.items():
            self._register(table, base.get(name, {}))
        self._views: dict[str, str] = {}
        if script is not None:
            self._declare(script)

    def close(self) -> None:
        """Give up the database."""
        self._connection.close()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _register(self, table: Table, rows: Mapping[Row, int]) -> None:
        every = [row for row, count in rows.items() for _ in range(count)]
        if all(column.type is not None for column in table.columns):
            self._connection.register(table.name, table_of(table.columns, every))

    def _declare(self, script: str) -> None:
        """Create the views in order, so that later ones may read earlier ones."""
        for view in declarations(parse_script(script).check()).views.values():
            columns = f" ({', '.join(map(quoted, view.columns))})" if view.columns else ""
            self._views[str(view.name)] = view.text
            try:
                self._connection.execute(f"CREATE VIEW {quoted(view.name)}{columns} AS {for_duckdb(view.text)}")
            except duckdb.Error as problem:
                raise UsageError(
                    f"DuckDB does not take view {view.name}: {problem}", hint="Compare it with a query of your own."
                ) from None

    def has_sql(self, view: str) -> bool:
        """Whether there is SQL of the user's for a view."""
        return view in self._views

    def view(self, name: str, columns: Sequence[Column]) -> list[Row]:
        """Return the rows of a view, by the user's SQL, as values of the columns' types.

        Raises
        ------
        EvaluationError
            If DuckDB cannot compute it.
        """
        return self._rows(f"SELECT * FROM {quoted(name)}", name, columns)

    def entries(self, definition: MapDef, *, failures_are_zero: bool = False) -> Entries:
        """Return the entries of a map, by its definition.

        Parameters
        ----------
        failures_are_zero
            Whether what cannot be evaluated is left out, as hosts do; then the terms are evaluated, not their SQL.

        Raises
        ------
        UsageError
            If the map has no definition.
        EvaluationError
            If DuckDB cannot compute it.
        """
        width = len(definition.keys)
        if definition.sql and not failures_are_zero:
            columns = (*definition.keys, *definition.values)
            rows = self._rows(definition.sql, definition.name, columns)
            found = [(row[:width], tuple(0 if item is None else item for item in row[width:])) for row in rows]
        elif definition.definitions:
            found = self._evaluated(definition, failures_are_zero)
        else:
            raise UsageError(f"map {definition.name} has no definition", hint="Give it one: `= term`.")
        count = definition.column_index(definition.count) if definition.count else None
        return [each for each in found if (each[1][count] if count is not None else any(each[1]))]

    def greatest(self, term: Term) -> float:
        """Return the greatest number of a term over its keys; 0 if its tables are too large to look at every pair."""
        atoms = [node.name for node in nodes(term) if isinstance(node, Atom)]
        if prod(len(self._base.get(name, {})) for name in atoms) > MAX_PAIRS:
            return 0.0
        with localcontext(EXACT):
            return max((float(number) for number in evaluate(term, self._base).values()), default=0.0)

    def _evaluated(self, definition: MapDef, failures_are_zero: bool) -> Entries:
        """Compute the terms of a definition one by one, slowly."""
        keys = tuple(key.name for key in definition.keys)
        found: dict[Row, list[Any]] = {}
        with localcontext(EXACT):
            for place, term in enumerate(definition.definitions):
                for binding, number in evaluate(term, self._base, failures_are_zero=failures_are_zero).items():
                    named = dict(binding)
                    values = found.setdefault(tuple(named[name] for name in keys), [0] * len(definition.definitions))
                    values[place] = number
        return [(key, tuple(values)) for key, values in found.items()]

    def _rows(self, sql: str, name: str, columns: Sequence[Column] = ()) -> list[Row]:
        try:
            table = self._connection.sql(sql).to_arrow_table()
        except duckdb.Error as problem:
            raise EvaluationError(f"DuckDB cannot compute {name}: {problem}", view=name) from None
        return rows_of(table, columns)


def rows_of(table: pa.Table, columns: Sequence[Column] = ()) -> list[Row]:
    """Return the rows of an Arrow table as plain values, of the columns' types where they have some."""
    types = [column.type for column in columns] or [None] * table.num_columns
    values = []
    for array, sql_type in zip(table.columns, types, strict=True):
        found = values_of(array, sql_type)
        values.append([_typed(item, sql_type) for item in array.to_pylist()] if found is None else found)
    return list(zip(*(column or [] for column in values), strict=True))


def _typed(value: Any, sql_type: SqlType | None) -> Any:
    """Return a value of a wider type, such as a SUM, in the type of its column; as it is if it does not fit."""
    if sql_type is None:
        return value
    try:
        return coerce(value, sql_type)
    except (TypeError, ValueError, ArithmeticError):
        return value
