"""TPC-H as a warehouse is refreshed: all tables change, epoch by epoch, and every epoch ends with keys that hold.

The first epoch brings the dimensions and most of the orders. Each further one brings orders, takes others away whole,
changes customers and suppliers that are referred to, and has a few *visitors*: a new customer, and a new part of a new
supplier, of whom some of the new orders are. Visitors leave an epoch or two later, as soon as their last order goes or
an epoch after that, and the next visitors get their keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.errors import UsageError
from cumulus.workloads.tpch.schema import BENCHMARK, TABLES, query_columns
from cumulus_lab.workloads.tpch.table_reader import TableReader

UNREAD = {"customer": ("c_acctbal", "c_comment"), "supplier": ("s_acctbal", "s_comment")}
"""Columns that change and that no view over the others reads."""

_FIRST = 0.6
"""Share of the orders that the first epoch brings."""

_MOST_DELETIONS = 0.4

_ORDERS_PER_VISITOR = 4
_NEW_ORDERS_PER_VISITOR = 100
_VISITORS = ("customer", "supplier", "part")


@dataclass(frozen=True)
class Refreshes:
    """A stream of refreshes, not yet made; `refreshes` describes the parameters."""

    tables: Mapping[str, pa.Table]
    queries: tuple[str, ...]
    count: int
    deletions: float
    updates: float
    repeats: bool
    seed: int

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Table → columns that a script for the queries declares, parents first."""
        return columns_of(self.queries)

    def sql(self, keys: str) -> str:
        """Return one script with all the queries; `keys` is one of `KEYS`."""
        return BENCHMARK.script(self.queries, self.columns, keys=keys)

    def epochs(self, *, upserts: bool = True) -> Iterator[dict[str, pa.Table]]:
        """Yield the changes of each epoch (module `changes`) of the tables that the queries read; all are in all.

        Parameters
        ----------
        upserts
            Whether an update is the new row alone, ``u``; otherwise it is a deletion of the old row and an insertion
            of the new, which tables without keys take, too.
        """
        maker = _Maker(self)
        told = 0
        for _ in range(self.count):
            steps = [step for step in maker.epoch() if step.table in self.columns and step.rows.num_rows]
            epoch: dict[str, list[pa.Table]] = {name: [self._empty(name)] for name in self.columns}
            for step in steps:
                for op, rows in step.operations(upserts=upserts):
                    epoch[step.table].append(self._changes(step.table, op, told, rows))
                    told += rows.num_rows
            yield {name: pa.concat_tables(parts).combine_chunks() for name, parts in epoch.items()}

    def _changes(self, table: str, op: str, told: int, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        places = pa.array(np.arange(told, told + count))
        columns = rows.select(self.columns[table])
        return columns.add_column(0, "op", pa.repeat(pa.scalar(op), count)).add_column(1, "seq", places)

    def _empty(self, table: str) -> pa.Table:
        return self._changes(table, "i", 0, self.tables[table].slice(0, 0))


def columns_of(queries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return table → columns that the queries read, the keys, and `UNREAD`; parents first."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for query in queries:
        for name, columns in query_columns(query, "used").items():
            wanted[name].update(columns, UNREAD.get(name, ()))
    return {
        name: tuple(column for column in TABLES[name].column_names if column in wanted[name])
        for name in TABLES
        if name in wanted
    }


def read_tables(folder: Path, queries: Sequence[str]) -> dict[str, pa.Table]:
    """Return the tables in `folder`, made by `generate`, with the columns that `refreshes` of the queries needs."""
    wanted = columns_of(queries)
    tables = {}
    for name, relation in TABLES.items():
        needed = {*wanted.get(name, ()), *UNREAD.get(name, ()), *relation.key}
        needed.update(column for key in relation.foreign_keys for column in key.columns)
        columns = tuple(column for column in relation.column_names if column in needed)
        reader = TableReader(folder, name, columns)
        tables[name] = reader.take(reader.count)
    return tables


def refreshes(
    tables: Mapping[str, pa.Table],
    *,
    queries: Sequence[str],
    epochs: int = 10,
    deletions: float = 0.1,
    updates: float = 0.1,
    repeats: bool = True,
    seed: int = 0,
) -> Refreshes:
    """Return a stream of refreshes; the same parameters give the same stream, bit for bit.

    Parameters
    ----------
    tables
        All eight, by `read_tables` or `sample`; the orders and lineitems are those that come.
    queries
        What reads the stream: it has the tables and columns that they need.
    deletions
        Share of deletions among the insertions and deletions of orders, 0 to 0.4.
    updates
        Share of the customers and of the suppliers that change in each epoch but the first, 0 to 1: half of them the
        nation, half of them columns that no query reads.
    repeats
        Whether visitors change, too, some of them in the epoch in which they come or go; without it, no key has two
        changes in an epoch.

    Raises
    ------
    UsageError
        A parameter out of its range.
    """
    if epochs < 2:
        raise UsageError(f"epochs is {epochs}", hint="There are at least two: the first fills the tables.")
    if not 0 <= deletions <= _MOST_DELETIONS:
        raise UsageError(f"deletions is {deletions}", hint=f"It can be 0 to {_MOST_DELETIONS}.")
    if not 0 <= updates <= 1:
        raise UsageError(f"updates is {updates}", hint="It can be 0 to 1.")
    if seed < 0:
        raise UsageError(f"seed is {seed}", hint="It can be any number from 0.")
    return Refreshes(tables, tuple(queries), epochs, deletions, updates, repeats, seed)


@dataclass(frozen=True, slots=True)
class _Step:
    """Rows of a table that come, go, or take the place of others."""

    op: str
    table: str
    rows: pa.Table
    before: pa.Table | None = None

    def operations(self, *, upserts: bool) -> list[tuple[str, pa.Table]]:
        if self.before is None or upserts:
            return [(self.op, self.rows)]
        return [("d", self.before), ("i", self.rows)]


class _Maker:
    """The state of a stream: what stands, and what leaves when."""

    def __init__(self, plan: Refreshes) -> None:
        self._updates, self._repeats = plan.updates, plan.repeats
        self._random = np.random.default_rng(plan.seed)
        orders = plan.tables["orders"]
        self._to_come = orders.take(pa.array(self._random.permutation(orders.num_rows)))
        self._lines = plan.tables["lineitem"]
        self._here = {**plan.tables, "orders": orders.slice(0, 0), "lineitem": self._lines.slice(0, 0)}
        later = plan.count - 1
        self._first = round(orders.num_rows * _FIRST)
        self._arriving = (orders.num_rows - self._first) // later
        self._leaving = round(orders.num_rows * plan.deletions / (1 - plan.deletions)) // later
        self._first_visitor = 1 + max(pc.max(self._here[name][TABLES[name].key[0]]).as_py() for name in _VISITORS)
        self._next_visitor = self._first_visitor
        self._free: list[int] = []
        self._orders_due: dict[int, list[int]] = defaultdict(list)
        self._visitors_due: dict[int, list[int]] = defaultdict(list)
        self._number = 0

    def epoch(self) -> list[_Step]:
        """Return the steps of the next epoch: parents before children, then changes, then children before parents."""
        self._number += 1
        if self._number == 1:
            dimensions = [_Step("i", name, rows) for name, rows in self._here.items() if rows.num_rows]
            return [*dimensions, *self._arrive(self._orders(self._first), [])]
        orders = self._orders(self._arriving)
        visitors = self._keys(min(max(orders.num_rows // _NEW_ORDERS_PER_VISITOR, 1), orders.num_rows // 4))
        comings = [*self._visit(visitors), *self._arrive(orders, visitors)]
        return [*comings, self._update("customer"), self._update("supplier"), *self._leave()]

    def _orders(self, count: int) -> pa.Table:
        found, self._to_come = self._to_come.slice(0, count), self._to_come.slice(count)
        return found

    def _keys(self, count: int) -> list[int]:
        """Return keys for so many visitors: of those who have gone, then new ones."""
        again, self._free = self._free[:count], self._free[count:]
        new = range(self._next_visitor, self._next_visitor + count - len(again))
        self._next_visitor = new.stop
        return [*again, *new]

    def _visit(self, keys: list[int]) -> list[_Step]:
        """Bring a customer, a supplier and a part for each key, and let the supplier sell the part."""
        steps = []
        for name in (*_VISITORS, "partsupp"):
            rows = self._here[name]
            made = rows.take(pa.array(self._random.integers(rows.num_rows, size=len(keys))))
            for column in TABLES[name].key:
                made = _with(made, column, keys)
            steps.append(self._come(name, made))
        return steps

    def _arrive(self, orders: pa.Table, visitors: list[int]) -> list[_Step]:
        """Bring orders with their lineitems; the first orders are the visitors', and their first lines of the parts."""
        theirs = np.repeat(np.array(visitors, np.int64), _ORDERS_PER_VISITOR)
        customers = orders["o_custkey"].to_numpy().copy()
        customers[: len(theirs)] = theirs
        lines = self._lines.filter(pc.is_in(self._lines["l_orderkey"], value_set=_keys_of(orders, "o_orderkey")))
        places = pc.index_in(lines["l_orderkey"], value_set=_keys_of(orders, "o_orderkey")).to_numpy()
        chosen = (places < len(theirs)) & (lines["l_linenumber"].to_numpy() == 1)
        for column in ("l_partkey", "l_suppkey"):
            values = lines[column].to_numpy().copy()
            values[chosen] = theirs[places[chosen]]
            lines = _with(lines, column, values)
        for place, key in enumerate(visitors):
            turn = self._number + place
            leaves = self._number + 1 + turn % 2
            first = place * _ORDERS_PER_VISITOR
            self._orders_due[leaves].extend(orders["o_orderkey"].slice(first, _ORDERS_PER_VISITOR).to_pylist())
            self._visitors_due[leaves + turn // 2 % 2].append(key)
        return [self._come("orders", _with(orders, "o_custkey", customers)), self._come("lineitem", lines)]

    def _update(self, name: str) -> _Step:
        """Change the nation of some rows and what nobody reads of as many others."""
        rows, random = self._here[name], self._random
        able = np.arange(rows.num_rows)
        if not self._repeats:
            able = np.flatnonzero(rows[TABLES[name].key[0]].to_numpy() < self._first_visitor)
        count = min(max(round(len(able) * self._updates), 2), len(able)) if self._updates else 0
        chosen = random.choice(able, size=count, replace=False)
        before = rows.take(pa.array(chosen))
        moving, staying = before.slice(0, count // 2), before.slice(count // 2)
        nations, nation = np.sort(self._here["nation"]["n_nationkey"].to_numpy()), f"{name[0]}_nationkey"
        steps = random.integers(1, len(nations), size=moving.num_rows)
        places = np.searchsorted(nations, moving[nation].to_numpy()) + steps
        moving = _with(moving, nation, nations[places % len(nations)])
        balance, comment = UNREAD[name]
        staying = _with(staying, balance, pc.add(staying[balance], pa.scalar(Decimal("1.00"))))
        staying = _with(staying, comment, pc.binary_join_element_wise(staying[comment], f"({self._number})", " "))
        left = np.ones(rows.num_rows, np.bool_)
        left[chosen] = False
        changed = pa.concat_tables([moving, staying])
        self._here[name] = pa.concat_tables([rows.filter(pa.array(left)), changed])
        return _Step("u", name, changed, before)

    def _leave(self) -> list[_Step]:
        """Take away the visitors' orders that are due, the oldest of the others, and the visitors without orders."""
        due = self._orders_due.pop(self._number, [])
        orders = self._here["orders"]
        others = orders.filter(pc.less(orders["o_custkey"], self._first_visitor))["o_orderkey"]
        going = pa.array([*due, *others.slice(0, max(self._leaving - len(due), 0)).to_pylist()], pa.int64())
        steps = [self._go("lineitem", "l_orderkey", going), self._go("orders", "o_orderkey", going)]
        visitors = pa.array(self._visitors_due.pop(self._number, []), pa.int64())
        steps.append(self._go("partsupp", "ps_suppkey", visitors))
        steps.extend(self._go(name, TABLES[name].key[0], visitors) for name in _VISITORS)
        self._free.extend(visitors.to_pylist())
        return steps

    def _come(self, name: str, rows: pa.Table) -> _Step:
        self._here[name] = pa.concat_tables([self._here[name], rows])
        return _Step("i", name, rows)

    def _go(self, name: str, column: str, keys: pa.Array) -> _Step:
        rows = self._here[name]
        goes = pc.is_in(rows[column], value_set=keys)
        self._here[name] = rows.filter(pc.invert(goes))
        return _Step("d", name, rows.filter(goes))


def _keys_of(rows: pa.Table, column: str) -> pa.Array:
    return rows[column].combine_chunks()


def _with(rows: pa.Table, column: str, values: Any) -> pa.Table:
    """Return a table with other values in a column, of its type."""
    place = rows.schema.get_field_index(column)
    kind = rows.schema.field(place).type
    made = values.cast(kind) if isinstance(values, pa.ChunkedArray) else pa.array(values, kind)
    return rows.set_column(place, rows.schema.field(place), made)
