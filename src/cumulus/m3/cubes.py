"""What a program says of cubes: how grouping columns of a view lead from coarse to fine, and which totals are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DimensionDef:
    """A dimension: columns of the cube's view, coarse to fine. A member is a path of their values."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelDef:
    """Fewer levels than the finest, for which there are maps.

    The level of no columns is what SQL says without GROUP BY: its view has one row, also over no rows, where a count is
    0 and a sum NULL. Folding the finest rows gives no row there: no group, no total. Whoever shows totals of nothing
    must choose one of both for all maps that may answer.

    Parameters
    ----------
    columns
        The grouping columns, in the order of the cube's view.
    view
        The view with these grouping columns and the cube's measures; it is not shown (`Program.shown_views`).
    kept
        Whether KEEP asks for it; False for maps of equal sums that are there for other views.
    """

    columns: tuple[str, ...]
    view: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class CubeDef:
    """A view with dimensions: the view of the same name has its finest rows."""

    name: str
    dimensions: tuple[DimensionDef, ...]
    levels: tuple[LevelDef, ...] = ()
