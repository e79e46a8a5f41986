"""What users give, as operations of a transaction: single events, and pairs of old and new rows."""

from __future__ import annotations

from typing import Any

from cumulus.engine.keyed_events import Operation
from cumulus.engine.rows_in import checked_rows
from cumulus.engine.session import Session
from cumulus.errors import UsageError


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
