"""MEASURE(x) in SQL: measures of views under any grouping that DuckDB knows, from sums of parts."""

from cumulus.views.measuring.rewriting import Fold, Measuring, may_measure, parts_in

__all__ = ["Fold", "Measuring", "may_measure", "parts_in"]
