"""Incremental view maintenance for SQL: views with joins and aggregates stay exact while their tables change.

The life of an update
---------------------

`compile` turns CREATE TABLE and CREATE VIEW into one M3 program of maps and triggers (`cumulus.sql`,
`cumulus.calculus`, `cumulus.compiler`). A trigger says how each map changes for an inserted or deleted row. The native
engine translates the triggers to machine code with LLVM (`cumulus.engine.native`). Programs that it cannot translate,
such as M3 with columns of no declared type, run in the interpreter (`cumulus.engine.interpreter`), after an
`EngineWarning`; `engine="interpreter"` chooses it. Then, for each update:

1. A row arrives: from `Warehouse.insert` or `Warehouse.delete`, or from a request to a server (`cumulus.server`).
   Folders of files, Spark and clusters bring epochs of many rows (`cumulus.epochs`, `cumulus.spark`,
   `cumulus.cluster`).
2. If no view of the warehouse has subscribers, a builtin of machine code takes a single row of plain values and does
   steps 3 to 6 in one call (`cumulus.engine.native.intake.builtin`). It declines a row that fails a check; Python then
   repeats the checks and raises the error. Other rows are checked against the table's columns, types and NULLs by
   `cumulus.catalog.schema.Relation.checked`, Arrow tables by `cumulus.engine.rows_in`.
3. `cumulus.engine.session.Session` begins a transaction. If the rows of a table are kept, their keys and references
   are checked. A duplicate key, an absent row or an orphan raises a named error (`cumulus.engine.integrity`).
4. The trigger fires, once for a row or once for a batch. Each `+=` statement reads the maps as they were before the
   event, by hash look-ups, and computes what to add. If an expression fails, it counts as 0 and the error is recorded
   for the view (`cumulus.engine.failures`).
5. The amounts are added to the maps. Each changed entry is copied to the undo log first; a rollback restores it from
   there.
6. The transaction commits: the `:=` maps are evaluated, and the undo log is cleared. If a view has subscribers, the
   changed entries of its maps are collected first.
7. Subscribers and change streams receive the old and the new row for each changed row of their view
   (`cumulus.views.differences`, `cumulus.warehouse.subscriptions`).
8. A read computes rows from map entries: ratios, NULLs, HAVING, ORDER BY (`cumulus.views`). `Warehouse.query` runs any
   other SQL in DuckDB, over the same rows as Arrow tables.

Names of this module are imported on first use.
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
