"""What users give, as operations of a transaction: single events, pairs of old and new rows, rows named by their keys.

Operations by key find their rows when their turn comes: `cumulus.engine.keyed_events`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cumulus.catalog.events import DELETE_BY_KEY, UPDATE_BY_KEY, Row
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Interval
from cumulus.engine.keyed_events import Operation
from cumulus.engine.rows_in import checked_rows
from cumulus.engine.session import Session
from cumulus.errors import AbsentRowError, ArityError, DataError, NullError, UsageError


def deletions(relation: Relation, keys: Any) -> list[tuple[int, str, Row]]:
    """Return the operations that delete the rows with some keys."""
    return [(DELETE_BY_KEY, relation.name, key) for key in checked_keys(relation, keys)]


def updates(relation: Relation, keys: Any, values: Mapping[str, Any]) -> list[tuple[int, str, Row]]:
    """Return the operations that give columns other values in the rows with some keys."""
    if not values:
        raise UsageError(f"no column of {relation.name} gets a value", hint='Write {"column": value, …}.')
    names = relation.columns_named(values, dict(values))
    places = tuple(map(relation.position, names))
    changed = replace(relation, columns=tuple(relation.columns[place] for place in places), foreign_keys=())
    new = changed.checked(tuple(values.values()))
    return [(UPDATE_BY_KEY, relation.name, (key, places, new)) for key in checked_keys(relation, keys)]


def checked_keys(relation: Relation, keys: Any) -> list[Row]:
    """Return primary keys as tuples of the columns' types, in the order of the key.

    Parameters
    ----------
    keys
        A key, or a list of keys, each a value, a tuple or a dict; or a table or a frame with the key's columns.

    Raises
    ------
    DataError
        If one is no key of the relation.
    """
    columns = tuple(relation.columns[place] for place in relation.key_positions)
    shape = Relation(f"the key of {relation.name}", columns, relation.key)
    if hasattr(keys, "columns") or hasattr(keys, "schema"):  # a table or a frame
        return checked_rows(shape, keys)
    if isinstance(keys, Interval):  # a tuple, and one value all the same
        keys = [keys]
    if isinstance(keys, tuple) and len(keys) != len(columns):
        raise ArityError(
            f"the key of {relation.name} is ({', '.join(relation.key)}), and {keys!r} is none",
            relation=relation.name,
            row=keys,
            hint="Several keys are a list.",
        )
    if isinstance(keys, Mapping):
        if all(isinstance(values, (list, tuple)) for values in keys.values()):  # columns
            return checked_rows(shape, keys)
        keys = [keys]
    elif isinstance(keys, (str, bytes, tuple)) or not isinstance(keys, Iterable):
        keys = [keys]
    elif hasattr(keys, "to_pylist"):  # an array of Arrow
        keys = keys.to_pylist()
    return checked_rows(shape, [key if _is_row(key) else (key,) for key in keys])


def _is_row(key: Any) -> bool:
    return isinstance(key, (tuple, list, dict)) and not isinstance(key, Interval)


@contextmanager
def explain_missing_columns(relation: Relation, rows: Any) -> Iterator[None]:
    """Say of rows that could not be deleted which columns they lack, if they lack some."""
    try:
        yield
    except (NullError, AbsentRowError, ArityError) as problem:
        missing = _missing_columns(relation, rows)
        if not missing:
            raise
        hint = "A row to delete has all its columns, as it was inserted."
        if relation.key:
            hint += f" delete_by_key({relation.name!r}, keys) takes its primary key alone."
        message = f"{', '.join(missing)} of {relation.name} {'is' if len(missing) == 1 else 'are'} not given"
        raise type(problem)(
            f"{problem.message}: {message}", relation=problem.relation, row=problem.row, hint=hint
        ) from None


def _missing_columns(relation: Relation, rows: Any) -> list[str]:
    """Return the columns that the first row, or the table, does not have."""
    given = rows
    if isinstance(rows, list):
        given = next((row for row in rows if isinstance(row, dict) and len(row) < len(relation.columns)), None)
    names = given if isinstance(given, Mapping) else getattr(given, "column_names", getattr(given, "columns", None))
    if names is None:
        return []
    try:
        found = relation.columns_named(names)
    except DataError:
        return []
    return [name for name in relation.column_names if name not in found]


def checked_event(session: Session, event: Any) -> Operation:
    """Return an event with its row checked, and the table's name as it is written.

    Raises
    ------
    UsageError, DataError
        If it is none.
    """
    try:
        sign, table, row = event
    except (TypeError, ValueError):
        raise UsageError(f"{event!r} is no event", hint="An event is (sign, table, row).") from None
    if sign not in (1, -1):
        raise UsageError(f"the sign of an event is +1 or -1, not {sign!r}", hint="Use upsert() for upserts.")
    name = session.relation(table).name
    return sign, name, session.checkers[name](row)


def replacements(session: Session, table: str, old_rows: Any, new_rows: Any) -> list[Operation]:
    """Return the events that put each new row in the place of the old one.

    Raises
    ------
    UsageError
        If there are not as many new rows as old ones.
    """
    relation = session.relation(table)
    name, check = relation.name, session.checkers[relation.name]
    old, new = checked_rows(relation, old_rows, check), checked_rows(relation, new_rows, check)
    if len(old) != len(new):
        raise UsageError(
            f"{len(old)} old rows and {len(new)} new rows of {name}", hint="Give one new row for each old one."
        )
    return [event for gone, come in zip(old, new, strict=True) for event in ((-1, name, gone), (+1, name, come))]
