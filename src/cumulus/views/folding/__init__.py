"""Folding a view: parts of its groups, put together with fewer grouping columns, finished by its own expressions."""

from cumulus.views.folding.access import StoredMaps
from cumulus.views.folding.bounds import Between, Bound, between, bounds_of, column_tests
from cumulus.views.folding.choice import Candidate, Choice, choose_level
from cumulus.views.folding.kept_columns import KeptColumns
from cumulus.views.folding.levels import Folds
from cumulus.views.folding.measures import MeasureKind
from cumulus.views.folding.partial import Partial
from cumulus.views.folding.plan import measure_kinds

__all__ = [
    "Between",
    "Bound",
    "Candidate",
    "Choice",
    "Folds",
    "KeptColumns",
    "MeasureKind",
    "Partial",
    "StoredMaps",
    "between",
    "bounds_of",
    "choose_level",
    "column_tests",
    "measure_kinds",
]
