"""The embedded host: SQL in, events in, views out, in one process."""

from cumulus.warehouse.applying import Operation
from cumulus.warehouse.stats import Stats
from cumulus.warehouse.subscribing import Change, Subscription
from cumulus.warehouse.view_errors import ViewErrors
from cumulus.warehouse.warehouse import Warehouse

__all__ = ["Change", "Operation", "Stats", "Subscription", "ViewErrors", "Warehouse"]
