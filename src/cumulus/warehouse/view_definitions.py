"""CREATE VIEW, DROP VIEW and functions of one's own, on a live warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cumulus.catalog.types import SqlType
from cumulus.errors import UsageError
from cumulus.interrupts import interruptible
from cumulus.warehouse.program_sources import changed_views, extended, make_function, with_function
from cumulus.warehouse.state import WarehouseState
from cumulus.warehouse.view_changes import carry_over


def execute(state: WarehouseState, sql: str | Path) -> None:
    """Compile all views anew with more statements, and go on with what that gives; see `cumulus.Warehouse.execute`."""
    with state.turn:
        if state.script is None:
            raise UsageError("this warehouse was made from M3, not SQL", hint="Write the view in M3 and start anew.")
        if state.buffer is not None or state.subscriptions.is_telling:
            raise UsageError("views are not changed inside a transaction", hint="Do it before or after.")
        script, program = extended(state.script, sql, state.options.keep, state.functions, state.options.size)
        session = state.session_of(program)
        for view in changed_views(state.subscriptions.views, state.script, script):
            raise UsageError(f"{view} has subscribers", hint="Cancel them, and close streams of changes, first.")
        with interruptible():
            carry_over(state.session, session, state.functions)
        state.use(session)
        state.script = script


def register(
    state: WarehouseState,
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[str | SqlType] | None,
    returns: str | SqlType | None,
    null: str,
) -> None:
    """Add a function of the user's; see `cumulus.Warehouse.register`."""
    made = make_function(name, function, arguments, returns, null)
    with state.turn:
        state.functions, state.desk = with_function(state.functions, made, state.session.program), None
