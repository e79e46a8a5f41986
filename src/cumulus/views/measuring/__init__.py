"""MEASURE(x) in SQL: measures of views under any grouping that DuckDB knows, from sums of parts."""

from cumulus.views.measuring.rewriting import Fold, Measuring

__all__ = ["Fold", "Measuring"]
