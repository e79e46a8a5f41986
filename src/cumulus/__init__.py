"""Cumulus keeps SQL aggregates exact while the data changes.

The life of an update
---------------------

Before the first one, `compile` turns CREATE TABLE and CREATE VIEW statements into one M3 program: maps, and triggers
that say how each map changes when a row comes or goes (`cumulus.sql`, `cumulus.calculus`, `cumulus.compiler`). Then:

1. A row is inserted or deleted: by `Warehouse.insert`, by a client of a server (`cumulus.server`), by a file of a
   folder or by a stream (`cumulus.epochs`, `cumulus.spark`; these, and clusters, take epochs of many rows).
2. The row is checked against its table: columns, types, NULLs (`cumulus.catalog.schema.Relation.checked`; whole Arrow
   tables in `cumulus.engine.rows_in`). It is an event now: a sign, a relation, a row.
3. A transaction begins. Where rows are kept, keys and references are checked: an absent row, a duplicate key or an
   orphan is a named error (`cumulus.engine.integrity`).
4. The trigger of the event fires: as machine code (`cumulus.engine.native`), or, where there is none for the program or
   `engine="interpreter"` says so, as Python (`cumulus.engine.interpreter`). Its statements look a few entries up,
   multiply, and so find what must be added to each map: all of them read the state before the event. What cannot be
   evaluated counts as 0 and becomes an error of the views concerned (`cumulus.engine.failures`).
5. What they found is added. The entries as they were go into a journal, from which a failure takes everything back.
6. The transaction ends: maps that are computed anew (`:=`) are computed, the journal is forgotten, and the watched maps
   tell what changed.
7. Subscribers hear which rows of their view were which before (`cumulus.views.differences`,
   `cumulus.warehouse.subscriptions`).
8. Reading a view makes its rows from the entries of its maps: ratios, NULLs, HAVING, ORDER BY
   (`cumulus.views`). Any SQL over views is DuckDB's work, on the same rows as Arrow (`Warehouse.query`).

Names here are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cumulus.version import VERSION

if TYPE_CHECKING:
    from cumulus import errors, m3
    from cumulus.compiler import compile_sql as compile
    from cumulus.connecting import connect
    from cumulus.cubes import Cube
    from cumulus.errors import CumulusError
    from cumulus.olap import like
    from cumulus.scalars.user import UserFunction, function
    from cumulus.views.folding import between
    from cumulus.warehouse import Change, ChangeStream, ViewChanges, Warehouse

__version__ = VERSION

__all__ = [
    "Change",
    "ChangeStream",
    "Cube",
    "CumulusError",
    "UserFunction",
    "ViewChanges",
    "Warehouse",
    "__version__",
    "between",
    "compile",
    "connect",
    "errors",
    "function",
    "like",
    "m3",
]

_HOMES = {
    "Change": ("cumulus.warehouse", "Change"),
    "ChangeStream": ("cumulus.warehouse", "ChangeStream"),
    "Cube": ("cumulus.cubes", "Cube"),
    "CumulusError": ("cumulus.errors", "CumulusError"),
    "UserFunction": ("cumulus.scalars.user", "UserFunction"),
    "ViewChanges": ("cumulus.warehouse", "ViewChanges"),
    "Warehouse": ("cumulus.warehouse", "Warehouse"),
    "between": ("cumulus.views.folding", "between"),
    "compile": ("cumulus.compiler", "compile_sql"),
    "connect": ("cumulus.connecting", "connect"),
    "errors": ("cumulus.errors", ""),
    "function": ("cumulus.scalars.user", "function"),
    "like": ("cumulus.olap", "like"),
    "m3": ("cumulus.m3", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cumulus' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
