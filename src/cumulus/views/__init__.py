"""Reading views: from map entries to the rows that SQL says, and how anyone reads them.

Names here are imported when they are first used: a client that shows rows needs no finishing step.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulus.views.consistency import Consistency
    from cumulus.views.finishing import Finisher, finish
    from cumulus.views.reader import MapViewReader
    from cumulus.views.tables import Result

__all__ = ["Consistency", "Finisher", "MapViewReader", "Result", "finish"]

_MODULES = {
    "Consistency": "consistency",
    "Finisher": "finishing",
    "MapViewReader": "reader",
    "Result": "tables",
    "finish": "finishing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
