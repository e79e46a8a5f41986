"""Events into a warehouse: rows, changes by key, streams of events, builtins, and transactions that collect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from cumulus.engine.batches import Bulk, Changes, Upserts, events_of, rows_of
from cumulus.engine.keyed_events import Operation
from cumulus.engine.protocol import Changes as MapChanges
from cumulus.engine.session import Session
from cumulus.engine.single_rows import single_row
from cumulus.errors import LargeNumberError, UsageError
from cumulus.interrupts import interruptible
from cumulus.warehouse.operations import checked_event, deletions, explain_missing_columns, replacements, updates
from cumulus.warehouse.state import WarehouseState

# --- rows -------------------------------------------------------------------------------------------------------------


def insert(state: WarehouseState, table: str, rows: Any) -> int:
    """Insert rows in one transaction; return how many.

    Parameters
    ----------
    table
        The name of a table, in any case.
    rows
        A list of tuples or dicts, a dict of columns, anything of Arrow, a pandas or polars frame, a list of these
        or the path of a Parquet or CSV file (docs/data-in.md).

    Raises
    ------
    DataError
        A wrong number of columns, a value of the wrong type, NULL in a NOT NULL column, a duplicate key or an
        orphan where rows are kept; nothing is applied.

    Notes
    -----
    Where an expression of a view cannot be computed for a row, that is an error of the view (`errors`): the row
    counts as nothing there, and everything else goes on.
    """
    return change_rows(state, +1, table, rows)


def change_rows(state: WarehouseState, sign: int, table: str, rows: Any) -> int:
    """Insert or delete rows of a table; return how many."""
    with state.turn:
        session = state.session
        relation = session.relations.get(table) if type(table) is str else None
        if relation is None:
            relation = session.relation(table)
        row = rows[0] if type(rows) is list and len(rows) == 1 else None
        if row is not None and type(row) is not tuple:
            row = single_row(relation, rows)
        if row is not None and state.buffer is None:
            if relation.name not in session.singles.builtins:
                session.singles.open(relation.name)
            state.check_quiet()
            changes = session.fire(sign, relation.name, row)
            if changes is None:
                changes = session.fire_checked(sign, relation.name, row)
            if changes is not None:
                state.subscriptions.tell(changes, session.counters.transactions)
                return 1
        bulk = rows_of(sign, relation, rows, session.checkers[relation.name])
        _submit(state, bulk)
        return len(bulk)


def delete(state: WarehouseState, table: str, rows: Any) -> int:
    """Delete rows, all columns given, in one transaction; return how many. See `insert` and `delete_by_key`."""
    session = state.session
    if session.singles.take(-1, table, rows):
        return 1
    with explain_missing_columns(session.relation(table), rows):
        return change_rows(state, -1, table, rows)


def delete_by_key(state: WarehouseState, table: str, keys: Any) -> int:
    """Delete the rows with some primary keys, in one transaction; return how many.

    A key is a value, a tuple or a dict; several are a list of these, or a frame or table of the key's columns.
    Nothing is applied, and `AbsentRowError` raised, if there is no row with one of them; UsageError as `upsert`.
    """
    return _by_key(state, "delete_by_key", table, deletions, keys)


def _by_key(
    state: WarehouseState, what: str, table: str, operations: Callable[..., list[Operation]], *given: Any
) -> int:
    with state.turn:
        relation = state.session.relation(table)
        state.session.check_keyed(relation, what)
        found = operations(relation, *given)
        _submit(state, found)
        return len(found)


def upsert(state: WarehouseState, table: str, rows: Any) -> int:
    """Insert rows, each in place of the row with its primary key if there is one; return how many were given.

    Raises
    ------
    UsageError
        If the table has no primary key or its rows are not kept.
    DataError
        As for `insert`.
    """
    with state.turn:
        session = state.session
        relation = session.relation(table)
        session.check_keyed(relation, "upsert")
        bulk = Upserts(rows_of(+1, relation, rows, session.checkers[relation.name]))
        _submit(state, bulk)
        return len(bulk)


def update(state: WarehouseState, table: str, old_rows: Any, new_rows: Any) -> int:
    """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many.

    With a dict as third argument, ``update("orders", 7, {"price": 3})``, the second is one or more primary keys, as
    in `delete_by_key`, and the columns of their rows get these values.

    Raises
    ------
    UsageError
        If there are not as many new rows as old ones.
    DataError
        As for `insert`, and for `delete_by_key`.
    """
    if isinstance(new_rows, Mapping):
        return _by_key(state, "an update by key", table, updates, old_rows, new_rows)
    with state.turn:
        events = replacements(state.session, table, old_rows, new_rows)
        _submit_checked(state, events)
        return len(events) // 2


# --- events -----------------------------------------------------------------------------------------------------------


def apply(state: WarehouseState, events: Iterable[tuple[int, str, Any]] | Any, per: str) -> int:
    """Apply events in order; return how many.

    Parameters
    ----------
    events
        `(sign, table, row)`, sign +1 or -1; or an Arrow table of events: a column `sign`, and a column `row`, a
        dense union of one struct for each table, under the table's name.
    per
        "event": every event is a transaction, and what stands before a wrong one stays applied. "call": all are
        one transaction.

    Raises
    ------
    UsageError
        For a sign that is neither +1 nor -1.
    DataError
        As for `insert`.
    """
    if per not in ("event", "call"):
        raise UsageError(f"per={per!r}", hint="per is 'event' or 'call'.")
    session = state.session
    # It may be a generator, which waits for its events: others may have their turn meanwhile.
    bulk = events_of(session.relations, events, per, partial(checked_event, session))
    if bulk is None:
        return _each(state, events)
    with state.turn:
        if per == "call" or state.buffer is not None:
            _submit(state, bulk)
        else:
            session = state.session
            for at, event in session.each(bulk):
                if not _fire(state, event):
                    _submit(state, [event])
                if state.session is not session:  # a number was too large for it
                    _each(state, islice(bulk, at + 1, None))
                    break
            state.session.counters.warn_if_slow(state.session.engine)
        return len(bulk)


def _each(state: WarehouseState, events: Iterable[Any]) -> int:
    """Apply events, each as a transaction; return how many."""
    count = 0
    for event in events:
        with state.turn:
            if not _fire(state, operation := checked_event(state.session, event)):
                _submit(state, [operation])
            count += 1
    return count


def trigger(state: WarehouseState, table: str) -> Callable[..., None]:
    """Return the fast path into one table: a function of a sign and the column values, one transaction per call.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    >>> on = wh.trigger("r")
    >>> on(+1, 7); on(+1, 8); on(-1, 7)
    >>> wh.view("v").get()
    (1,)
    """
    name = state.session.relation(table).name

    def on(sign: int, *values: Any) -> None:
        with state.turn:
            is_plain = type(sign) is int and sign in (1, -1)
            if not (is_plain and _fire(state, (sign, name, values))):
                _submit(state, [checked_event(state.session, (sign, name, values))])

    with state.turn:
        return state.session.builtin(name, on)


@contextmanager
def transaction(state: WarehouseState) -> Iterator[None]:
    """Collect what is done inside, and apply it at the end: all of it, or none.

    Reads inside see the state before. If the block raises, nothing is applied; so if an event is refused at the
    end, which raises its error. It belongs to its thread: others wait until it has ended.

    Raises
    ------
    UsageError
        Inside another transaction.
    """
    with state.turn:
        if state.buffer is not None:
            raise UsageError("a transaction is open already", hint="Transactions do not nest: put all into one.")
        try:
            state.buffer = []
            with interruptible():
                yield
            operations = state.buffer
        finally:
            state.buffer = None
        _submit_checked(state, operations)


# --- into the session -------------------------------------------------------------------------------------------------


def _fire(state: WarehouseState, event: Operation) -> bool:
    """Apply an event as a transaction by code, checked or not; False, and nothing is done, where code leaves it."""
    if state.buffer is not None:
        return False
    state.check_quiet()
    session = state.session
    changes = session.fire(*event)
    if changes is not None:
        session.counters.stepped += 1
        session.counters.fired += 1
        state.tell(changes)
    return changes is not None


def _submit(state: WarehouseState, events: Bulk | list[Operation]) -> None:
    """Apply a bulk, or operations one by one, as a transaction; or add them to the open one."""
    state.check_quiet()
    if state.buffer is not None:
        state.buffer.extend((sign, table, row) for sign, table, row in events)  # plain tuples, which code takes
        return
    try:
        changes = _commit(state.session, events)
    except LargeNumberError:
        if state.options.engine != "auto":
            raise
        state.leave_words()
        changes = _commit(state.session, events)
    state.tell(changes)
    state.session.counters.warn_if_slow(state.session.engine)


def _commit(session: Session, events: Bulk | list[Operation]) -> MapChanges:
    return session.commit(events) if isinstance(events, list) else session.commit_bulk(events)


def _submit_checked(state: WarehouseState, operations: list[Operation]) -> None:
    """Apply operations whose rows are checked already, quicker than `_submit` would one by one."""
    _submit(state, Changes(operations, lambda operation: operation))
