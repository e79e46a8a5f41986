"""Checking that views say what their definitions say over the rows that are there.

`check_views` recomputes views from base rows, in DuckDB by the SQL that the user wrote where there is one, else by the
definitions of their maps, and compares; `check_maps` does the same for every map. Both hosts use it:
`Warehouse.recheck` and `cumulus recheck`.
"""

from cumulus.catalog.comparison import RowMismatch, compare_rows
from cumulus.recheck.checking import check_maps, check_views
from cumulus.recheck.report import Checked, Report

__all__ = ["Checked", "Report", "RowMismatch", "check_maps", "check_views", "compare_rows"]
