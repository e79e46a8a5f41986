"""Folding a view: parts of its groups, put together with fewer grouping columns, finished by its own expressions."""

from cumulus.views.folding.bounds import Between, Bound, between, bounds_of
from cumulus.views.folding.measures import MeasureKind
from cumulus.views.folding.partial import Partial
from cumulus.views.folding.reading import StoredMaps, fold

__all__ = ["Between", "Bound", "MeasureKind", "Partial", "StoredMaps", "between", "bounds_of", "fold"]
