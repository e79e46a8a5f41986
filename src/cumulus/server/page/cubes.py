"""The cube explorer: a grid in the browser whose every question is a selection of a cube."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from time import monotonic
from typing import Any

import perspective
from perspective.virtual_servers import VirtualServerHandler

from cumulus.errors import CumulusError, UnknownNameError, UsageError
from cumulus.olap import CubeShape, CubeSource, FoldedSource, Selection, selection_of
from cumulus.server.access import User
from cumulus.server.page.gate import grid_request
from cumulus.server.page.grid import (
    NUMBER,
    OPERATORS,
    TEXT,
    Grid,
    GridConfig,
    config_for,
    grid_of,
    sql_of,
    table_schema,
)
from cumulus.server.page.pinned import PinnedHost

RENEW_S = 0.4
"""A grid that is older than the cube is made anew at most so often."""

Tell = Callable[[Mapping[str, Any]], None]


class CubeGrids(VirtualServerHandler):  # type: ignore[misc]  # Perspective ships no types
    """What one browser's grid shows of cubes: a server for Perspective, with cubes for tables.

    Parameters
    ----------
    cubes
        What answers selections.
    user
        Who looks at it.
    at
        Returns the transaction or epoch that readers see now.
    tell
        Takes what is to be said beside the grid: what was read for it, and what went wrong.
    """

    def __init__(self, cubes: CubeSource, user: User, at: Callable[[], int], tell: Tell) -> None:
        self._cubes, self._user, self._at, self._tell = cubes, user, at, tell
        self._pinned: dict[str, tuple[FoldedSource, int]] = {}
        self._configs: dict[str, tuple[str, GridConfig]] = {}
        self._grids: dict[str, tuple[Grid, float]] = {}
        self._last: Selection | None = None
        self._lock = RLock()
        self._server = perspective.VirtualServer(self)

    # --- the page's own words ---------------------------------------------------------------------------------------

    def handle(self, message: bytes) -> bytes:
        """Answer a message of Perspective's.

        Raises
        ------
        UsageError
            If it is no request at all.
        """
        request = grid_request(message)
        if request.problem is not None:
            return request.refused(request.problem)
        with self._lock:
            if request.is_about_a_view and request.entity not in self._configs:
                return request.refused(f"there is no grid {request.entity!r}")
            if request.new_view in self._configs:
                return request.refused(f"there is a grid {request.new_view!r} already")
            answer: bytes = self._server.handle_request(message)
            return answer

    def take(self, words: Mapping[str, Any]) -> dict[str, Any]:
        """Do what the page says beside the grid; return what the grid is to ask for then.

        ``{"open": selection}``, ``{"drill_down": dimension, "member": path}``, ``{"roll_up": dimension}``,
        ``{"pivot": dimensions}``, ``{"pin": bool}``.
        """
        with self._lock:
            try:
                return self._take(words)
            except CumulusError as problem:
                return {"error": problem.message, "hint": problem.hint}

    def _take(self, words: Mapping[str, Any]) -> dict[str, Any]:
        match words:
            case {"open": {"cube": str(name)}}:
                self._pinned.clear()
                shape = self._shape(name)
                made = selection_of(self._cubes, shape, {"by": [], **words["open"]})
                self._last = made
            case _ if self._last is None:
                raise UsageError("no cube is open", hint="Open one.")
            case {"drill_down": str(name), "member": list(member)}:
                made = self._last.drill_down(name, member)
            case {"drill_down": str(name)}:
                made = self._last.drill_down(name)
            case {"roll_up": str(name)}:
                made = self._last.roll_up(name)
            case {"pivot": list(names)}:
                made = self._last.pivot(*names)
            case {"pin": bool(is_pinned)}:
                made = self._last
                if is_pinned:
                    self._pin(made.shape)
                else:
                    self._pinned.clear()
                self._grids.clear()
            case _:
                raise UsageError(f"{dict(words)!r} is nothing that can be done", hint="Load the page anew.")
        shape = made.shape
        return {
            "table": shape.name,
            "config": config_for(made),
            "dimensions": [{"name": each.name, "levels": each.levels} for each in shape.dimensions],
            "pinned": self._pinned[shape.name][1] if shape.name in self._pinned else None,
            "redraw": "pin" in words,
        }

    def _pin(self, shape: CubeShape) -> None:
        if not isinstance(self._cubes, FoldedSource):
            raise UsageError("this source cannot be held as it is", hint="Ask it for an epoch.")
        host = PinnedHost(self._cubes.host, shape)
        self._pinned = {shape.name: (FoldedSource(host), host.at)}

    def _shape(self, name: str) -> CubeShape:
        if not self._user.may_read(name):
            raise UnknownNameError(f"there is no cube or view {name}", hint="The page lists those that there are.")
        return self._cubes.shape(name)

    # --- Perspective's ----------------------------------------------------------------------------------------------

    def get_features(self) -> dict[str, Any]:
        """Return what a grid may ask for."""
        kinds = (TEXT, NUMBER, "integer", "boolean", "date", "datetime")
        return {
            "group_by": True,
            "split_by": True,
            "sort": True,
            "expressions": False,
            "group_rollup_mode": ["rollup", "flat"],
            "split_rollup_mode": ["flat"],
            "filter_ops": {kind: list(OPERATORS.get(kind, ())) for kind in kinds},
            "aggregates": {kind: ["measure"] for kind in kinds},
        }

    def get_hosted_tables(self) -> list[str]:
        """Return the cubes, and the views that can be folded."""
        return [name for name in self._cubes.names() if self._user.may_read(name)]

    def table_schema(self, table_name: str, config: Any = None) -> dict[str, str]:
        """Return the levels and measures of a cube."""
        return table_schema(self._shape(table_name))

    def table_size(self, table_name: str) -> int:
        """Return no number: what a cube has is not counted before it is asked for."""
        return 0

    def table_describe(self, table_name: str, config: GridConfig) -> dict[str, Any]:
        """Return the columns of a grid, or why there is none."""
        try:
            grid = self._made(table_name, config)
        except CumulusError as problem:
            self._tell({"error": problem.message, "hint": problem.hint})
            return {"config_error": f"{problem.message}. {problem.hint}"}
        return {"expression_schema": {}, "view_schema": grid.schema}

    def table_make_view(self, table_name: str, view_name: str, config: GridConfig) -> None:
        """Make a grid."""
        grid = self._made(table_name, config)  # first: Perspective knows no view whose grid is refused
        self._configs[view_name] = (table_name, config)
        self._grids[view_name] = (grid, monotonic())

    def view_delete(self, view_name: str) -> None:
        """Forget a grid."""
        self._configs.pop(view_name, None)
        self._grids.pop(view_name, None)

    def view_schema(self, view_name: str, config: GridConfig) -> dict[str, str]:
        """Return a grid's columns."""
        return self._grid(view_name).schema

    def view_size(self, view_name: str) -> int:
        """Return how many rows a grid has, as the cube is now."""
        return len(self._grid(view_name).rows)

    def view_get_data(
        self, view_name: str, config: GridConfig, schema: Mapping[str, str], viewport: Mapping[str, Any], data: Any
    ) -> None:
        """Write the cells of a part of a grid."""
        grid = self._grid(view_name)
        first, end = viewport.get("start_row") or 0, viewport.get("end_row")
        columns = list(schema)[viewport.get("start_col") or 0 : viewport.get("end_col")]
        for at, row in enumerate(grid.rows[first:end]):
            grouping = None if not grid.depth or grid.is_flat else (1 << (grid.depth - len(row.path))) - 1
            for place in range(grid.depth):
                member = row.path[place] if place < len(row.path) else None
                data.set_col(TEXT, f"__ROW_PATH_{place}__", at, member, grouping)
            for name in columns:
                value = row.cells.get(name)
                if schema[name] == "integer" and value is not None:
                    value = int(value)
                data.set_col(schema[name], name, at, value, grouping)

    # --- grids ------------------------------------------------------------------------------------------------------

    def _grid(self, view_name: str) -> Grid:
        """Return a grid; it is made anew if the cube has moved, unless it is pinned, or was just made."""
        table, config = self._configs[view_name]
        held = self._grids.get(view_name)
        if held is not None:
            grid, made = held
            if table in self._pinned or grid.answered.at == self._at() or monotonic() - made < RENEW_S:
                return grid
        grid = self._made(table, config)
        self._grids[view_name] = (grid, monotonic())
        return grid

    def _made(self, table: str, config: GridConfig) -> Grid:
        source = self._pinned[table][0] if table in self._pinned else self._cubes
        grid = grid_of(source, self._shape(table), config)
        self._last = grid.selection
        # Maps are shared: who may read some views only is not told of those of others.
        told = str(grid.answered.explanation).splitlines() if self._user.views is None else [""]
        self._tell(
            {
                "selection": grid.selection.to_json(),
                "config": config_for(grid.selection),
                "sql": sql_of(grid.selection),
                "explain": told[0],
                "candidates": told[2:],
                "columns": list(grid.schema),
                "at": grid.answered.at,
            }
        )
        return grid

    def close(self) -> None:
        """Forget everything; Perspective and this would else hold each other."""
        with self._lock:
            self._server.close()
            del self._server
