"""The embedded host: SQL in, events in, views out, in one process."""

from cumulus.views.changes import Change, ViewChanges
from cumulus.warehouse.applying import Operation
from cumulus.warehouse.stats import Stats
from cumulus.warehouse.streams import ChangeStream
from cumulus.warehouse.subscribing import Subscription
from cumulus.warehouse.view_errors import ViewErrors
from cumulus.warehouse.warehouse import Warehouse

__all__ = ["Change", "ChangeStream", "Operation", "Stats", "Subscription", "ViewChanges", "ViewErrors", "Warehouse"]
