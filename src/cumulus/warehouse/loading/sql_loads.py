"""Maps computed by their definition SQL: by DuckDB, over Arrow tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.algebra.printing import quoted
from cumulus.catalog.arrow import values_of
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import SqlType, coerce
from cumulus.engine.protocol import Engine
from cumulus.errors import EvaluationError, UsageError
from cumulus.m3.access import Pattern, accesses
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.user import Given
from cumulus.views.duckdb_sql.functions import create_functions, set_utc
from cumulus.views.duckdb_sql.selects import fetch


class Computer:
    """One connection of DuckDB for all maps of a program, which closes when the block ends.

    The columns of `tables` have the types that the program declares, or types of the same family.
    """

    def __init__(self, program: Program, tables: Mapping[str, pa.Table], functions: Mapping[str, Given]) -> None:
        self._groups = _groups(program)
        relations = {relation.name: relation for relation in program.relations}
        # What has no room in memory must not go to the folder where the user works, which is the default.
        spill = os.path.join(tempfile.gettempdir(), f"cumulus-{os.getpid()}.duckdb")
        self._connection = duckdb.connect(config={"python_enable_replacements": "false", "temp_directory": spill})
        self._worker = ThreadPoolExecutor(1)
        set_utc(self._connection)
        create_functions(self._connection, functions)
        for name, rows in tables.items():
            self._register(relations.get(name), name, rows)

    def __enter__(self) -> Computer:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        self._connection.close()

    def _register(self, relation: Relation | None, name: str, rows: pa.Table) -> None:
        """Make rows known under the table's name, with the types that arithmetic in its columns has."""
        types = {} if relation is None else {column.name: column.type for column in relation.columns}
        self._connection.register(f"the rows of {name}", rows)
        shown = [
            quoted(each) if types.get(each) is None else f"CAST({quoted(each)} AS {types[each]}) AS {quoted(each)}"
            for each in rows.column_names
        ]
        source = quoted(f"the rows of {name}")
        self._connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT {', '.join(shown) or '1'} FROM {source}")

    def ask(self, sql: str) -> pa.Table:
        """Return the result of a SELECT over the tables; duckdb.Error if it has none, KeyboardInterrupt by Ctrl-C."""
        answer = self._worker.submit(fetch, self._connection, sql)
        try:
            return answer.result()
        except BaseException:
            while not answer.done():  # Ctrl-C, which would wait for DuckDB if this thread ran it
                self._connection.interrupt()
                wait([answer], 0.01)
            raise

    def compute(self, definition: MapDef) -> pa.Table:
        """Return what a map holds, keys and values.

        Raises
        ------
        UsageError
            If the map has no SQL.
        EvaluationError
            If DuckDB cannot compute it.
        """
        if not definition.sql:
            raise UsageError(
                f"map {definition.name} cannot be computed from rows: its definition has no SQL",
                hint="Create the warehouse with the view from the start.",
            )
        try:
            return self.ask(definition.sql + self._order(definition))
        except duckdb.Error as problem:
            raise EvaluationError(f"map {definition.name}: {problem}", view=definition.name) from None

    def _order(self, definition: MapDef) -> str:
        """Return an ORDER BY that brings the rows of a slice together: machine code links them twice as fast then."""
        places = self._groups.get(definition.name, ())
        if not places:
            return ""
        return f" ORDER BY {', '.join(str(place + 1) for place in places)}"


def _groups(program: Program) -> dict[str, tuple[int, ...]]:
    """Return map → the keys that are known where a slice of it is read first."""
    found: dict[str, tuple[int, ...]] = {}
    for statement in accesses(program):
        for read in statement.reads:
            places = tuple(place for place, pattern in enumerate(read.patterns) if pattern is Pattern.BOUND)
            if 0 < len(places) < len(read.patterns):
                found.setdefault(read.map, places)
    return found


def put(engine: Engine, definition: MapDef, found: pa.Table) -> None:
    """Make what SQL has computed the contents of a map."""
    columns = _columns(definition, found)
    if columns is not None and engine.restore_columns(definition.name, columns):
        return
    keys = [_values(found.column(place), key.type) for place, key in enumerate(definition.keys)]
    numbers = [
        [0 if value is None else value for value in _values(found.column(len(definition.keys) + place), column.type)]
        for place, column in enumerate(definition.values)
    ]
    rows_of_keys: Iterable[tuple[Any, ...]] = zip(*keys, strict=True) if keys else [()] * found.num_rows
    engine.load(definition.name, zip(rows_of_keys, zip(*numbers, strict=True), strict=True))


def _columns(definition: MapDef, found: pa.Table) -> list[pa.ChunkedArray] | None:
    """Return what SQL has computed as a map keeps it: see `Engine.restore_columns`."""
    width = len(definition.keys)
    columns: list[pa.ChunkedArray] = found.columns[:width]
    for value, column in zip(found.columns[width:], definition.values, strict=True):
        if pa.types.is_null(value.type):
            return None
        value = pc.fill_null(value, pa.scalar(0).cast(value.type))
        if column.type is None or not column.type.is_float:
            columns.append(value)
            continue
        value = value.cast(pa.float64())
        if not pc.all(pc.is_finite(value)).as_py():
            return None  # who loads it one by one says what is wrong
        columns += [value, pa.chunked_array([np.zeros(len(value))]), pc.abs(value)]
    return columns


def _values(column: pa.ChunkedArray, sql_type: SqlType | None) -> list[Any]:
    values = values_of(column, sql_type)
    if values is not None:
        return values
    assert sql_type is not None, "without a type any value is right"
    return [coerce(value, sql_type) for value in column.to_pylist()]  # a SUM is wider than the column that it fills
