"""What a node asks of its engine: to evaluate blocks and late deltas, to give what they add, to add deltas, to cut.

Everything else that a node does is to decide what to ask, and to pass frames on.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import localcontext
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.algebra import float_sums
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.cluster.program import Group, NodeProgram
from cumulus.engine.batches import Bulk, Changes, Columns, Rows, columns_of
from cumulus.engine.failures import ErrorLog
from cumulus.engine.frames.entries import entries_of
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.protocol import Engine
from cumulus.engine.rows_in import arrow_rows
from cumulus.engine.session import Session
from cumulus.errors import EvaluationError
from cumulus.m3.program import MapDef

Signs: TypeAlias = npt.NDArray[np.int8]
Versions: TypeAlias = npt.NDArray[np.int64]


class NodeMaps:
    """The maps of a node's program in an engine.

    Parameters
    ----------
    engine
        The name of one, as `cumulus.engine.engines.make_engine` takes it, or one that is there already.
    """

    def __init__(self, made: NodeProgram, engine: str | Engine = "auto") -> None:
        self.made = made
        self._session = Session(made.program, None, engine, is_trusting=True)
        self.engine = self._session.engine
        self._relations = {relation.name: relation for relation in made.program.relations}
        self._definitions = {definition.name: definition for definition in made.program.maps}
        self._outs = {overlay.out: name for name, overlay in made.overlays.items()}

    def definition(self, name: str) -> MapDef:
        """Return the definition of a map of the node program."""
        return self._definitions[name]

    # --- triggers ---------------------------------------------------------------------------------------------------

    def fire(self, group: Group, rows: pa.Table, signs: Signs, versions: Versions, *, is_late: bool) -> None:
        """Evaluate rows of a group's columns, each under a version; `is_late` looks back behind later deltas."""
        relation = self._relations[group.late if is_late else group.in_order]
        column = pa.array(versions, pa.int64())
        table = pa.table([*rows.select(list(group.columns)).columns, column], names=[*group.columns, self.made.version])
        columns = columns_of(relation, table)
        bulk: Bulk
        if columns is not None:
            bulk = Columns([relation], [columns], (signs > 0).astype(np.uint8))
        else:  # types that nobody has declared, or values that no column of these types has
            listed = zip(signs.tolist(), arrow_rows(relation, table), strict=True)
            bulk = Changes([(sign, relation.name, relation.checked(row)) for sign, row in listed], lambda event: event)
        self._session.commit_bulk(bulk)

    def correct(self, name: str, deltas: MapFrame) -> None:
        """Add deltas of a map and correct what later rows have added; they are rows of its overlay."""
        late = self._relations[self.made.overlays[name].late]
        columns = self._late_columns(late, deltas)
        bulk: Bulk
        if columns is not None:
            bulk = Columns([late], [columns], np.ones(deltas.rows, dtype=np.uint8))
        else:  # values that Arrow has no numbers for
            rows = [
                (*key[:-1], *float_sums.read_stored(self._definitions[name].values, stored), key[-1])
                for key, stored in entries_of(deltas)
            ]
            bulk = Rows(1, late, rows, tuple)
        self._session.commit_bulk(bulk)

    def _late_columns(self, late: Relation, deltas: MapFrame) -> pa.Table | None:
        """Return deltas as rows of their late relation: keys, values, version; None if Arrow cannot have them so."""
        layout = deltas.layout
        try:
            *keys, version = (deltas.key(place) for place in range(len(layout.keys)))
            columns = [*keys, *(deltas.value(place) for place in range(len(layout.values))), version]
        except EvaluationError:
            return None
        return columns_of(late, pa.table(columns, names=list(late.column_names)))

    def take_errors(self) -> ErrorLog:
        """Return what could not be evaluated since the last call: it counts as 0."""
        found, self._session.errors = self._session.errors, ErrorLog()
        return found

    # --- deltas -----------------------------------------------------------------------------------------------------

    def take_out(self) -> dict[str, MapFrame]:
        """Return what has been computed and not taken: spread map → rows of its overlay."""
        return {self._outs[name]: frame for name, frame in self.engine.take_all(self._outs).items()}

    def add(self, name: str, deltas: MapFrame) -> None:
        """Add deltas of a map that nothing later has read."""
        with localcontext(EXACT):
            self.engine.add(name, deltas.without_key(self._version_place(name)))
            self.engine.add(self.made.overlays[name].since, deltas)

    def versions(self, name: str, deltas: MapFrame) -> Versions:
        """Return the versions of deltas of a map."""
        return deltas.numbers(self._version_place(name))

    def overlay(self, name: str) -> MapFrame:
        """Return the deltas of a map that are not cut."""
        return self.engine.copy(self.made.overlays[name].since)

    def _version_place(self, name: str) -> int:
        return len(self._definitions[name].keys)

    # --- forgetting ------------------------------------------------------------------------------------------------

    def cut_histories(self, most: int) -> None:
        """Forget the rows up to a version."""
        for name in self.made.histories:
            self.engine.cut(name, len(self._definitions[name].keys) - 1, most)

    def cut_overlays(self, most: int) -> None:
        """Forget which versions the deltas up to a version had; the newest values stay."""
        for name, overlay in self.made.overlays.items():
            self.engine.cut(overlay.since, self._version_place(name), most)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def newest(self, name: str) -> MapFrame:
        """Return the newest values of a map."""
        return self.engine.copy(name)

    def load(self, newest: Mapping[str, MapFrame]) -> None:
        """Replace the newest values of all maps."""
        with localcontext(EXACT):
            for name in self.made.overlays:
                self.engine.take(name)
                if name in newest:
                    self.engine.add(name, newest[name])

    def restore(self, name: str, deltas: MapFrame, sign: int) -> None:
        """Add deltas to the newest values alone, or take them away."""
        with localcontext(EXACT):
            self.engine.add(name, deltas.without_key(self._version_place(name)), sign)
