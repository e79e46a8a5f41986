"""The embedded host: SQL in, events in, views out, in one process."""

from cumulus.engine.keyed_events import Operation
from cumulus.views.row_changes import Change, ViewChanges
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.stats import Stats
from cumulus.warehouse.subscriptions import Subscription
from cumulus.warehouse.view_errors import ViewErrors
from cumulus.warehouse.warehouse import Warehouse

__all__ = ["Change", "ChangeStream", "Operation", "Stats", "Subscription", "ViewChanges", "ViewErrors", "Warehouse"]
