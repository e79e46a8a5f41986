"""Reading views: from map entries to the rows that SQL says, and how anyone reads them."""

from cumulus.views.consistency import Consistency
from cumulus.views.finishing import Finisher, finish
from cumulus.views.reader import MapViewReader, ViewReader
from cumulus.views.tables import Result

__all__ = ["Consistency", "Finisher", "MapViewReader", "Result", "ViewReader", "finish"]
