"""What a node asks of its engine: to evaluate blocks and late deltas, to give what they add, to add deltas, to cut.

Everything else that a node does is to decide what to ask, and to pass frames on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import localcontext
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.algebra import float_sums
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.cluster.node_programs.program import Group, NodeProgram
from cumulus.engine.batches import Bulk, Changes, Columns, Rows, columns_of
from cumulus.engine.failures import ErrorLog
from cumulus.engine.frames.entries import entries_of
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.frames.unbounded import (
    Patience,
    bounded_frames,
    fitted,
    narrowed,
    unbounded_frame,
    unbounded_map,
    unbounded_program,
    widened,
)
from cumulus.engine.frames.value_words import TOO_WIDE
from cumulus.engine.protocol import Engine
from cumulus.engine.rows_in import arrow_rows
from cumulus.engine.session import Session
from cumulus.errors import EvaluationError
from cumulus.m3.program import MapDef, Program

Signs: TypeAlias = npt.NDArray[np.int8]
Versions: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")


def versions_of(group: Group, first: int, places: Versions) -> Versions:
    """Return the versions of rows of a block: the first, or one for each, by its place in the block."""
    versions = np.full(len(places), first, dtype=np.int64)
    return versions + places if group.has_row_versions else versions


class Router(Protocol):
    """Where entries of maps lie."""

    def targets(self, name: str, deltas: MapFrame) -> Sequence[Versions]:
        """Return for every node the rows, by index, of deltas of a map that it must get."""


class NodeMaps:
    """The maps of a node's program in an engine.

    Parameters
    ----------
    engine
        The name of one, as `cumulus.engine.engines.make_engine` takes it, or one that is there already.
    """

    def __init__(self, made: NodeProgram, engine: str | Engine = "auto") -> None:
        self.made = made
        self._engine_name = engine if isinstance(engine, str) else engine.name
        self._definitions = {definition.name: definition for definition in made.program.maps}
        self._outs = {overlay.out: name for name, overlay in made.overlays.items()}
        self._open(made.program, engine)
        self._unbounded = _unbounded(made)
        self._patience = Patience()

    def _open(self, program: Program, engine: str | Engine) -> None:
        """Begin a session over empty maps."""
        self._session = Session(program, None, engine, is_trusting=True)
        self.engine = self._session.engine
        self._relations = {relation.name: relation for relation in program.relations}
        self.is_unbounded = program is not self.made.program

    def definition(self, name: str) -> MapDef:
        """Return the definition of a map of the node program."""
        return self._definitions[name]

    # --- triggers ---------------------------------------------------------------------------------------------------

    def fire(self, group: Group, rows: pa.Table, signs: Signs, versions: Versions, *, is_late: bool) -> None:
        """Evaluate rows of a group's columns, each under a version; `is_late` looks back behind later deltas."""
        self._try(partial(self._fire, group.late if is_late else group.in_order, group, rows, signs, versions))

    def _fire(self, name: str, group: Group, rows: pa.Table, signs: Signs, versions: Versions) -> None:
        relation = self._relations[name]
        column = pa.array(versions, pa.int64())
        table = pa.table([*rows.select(list(group.columns)).columns, column], names=[*group.columns, self.made.version])
        self._apply_rows(relation, table, signs)

    def _apply_rows(self, relation: Relation, table: pa.Table, signs: Signs) -> None:
        columns = columns_of(relation, table)
        bulk: Bulk
        if columns is not None:
            bulk = Columns([relation], [columns], (signs > 0).astype(np.uint8))
        else:  # types that nobody has declared, or values that no column of these types has
            listed = zip(signs.tolist(), arrow_rows(relation, table), strict=True)
            bulk = Changes([(sign, relation.name, relation.checked(row)) for sign, row in listed], lambda event: event)
        self._commit(bulk)

    def _commit(self, bulk: Bulk) -> None:
        """Apply a bulk.

        Raises
        ------
        EvaluationError
            If a number is too large for the words of maps; nothing is applied. In unbounded maps it counts as 0, and
            `take_errors` tells it.
        """
        with self._session.transaction() as opened:
            opened.take(bulk)
            if not self.is_unbounded and self.engine.has_errors:
                raise EvaluationError("a number does not fit the words of maps", hint=TOO_WIDE)

    def correct(self, name: str, deltas: MapFrame) -> None:
        """Add deltas of a map and correct what later rows have added; they are rows of its overlay."""
        self._try(partial(self._correct, name, deltas))

    def _correct(self, name: str, deltas: MapFrame) -> None:
        self._tell(self.made.overlays[name].late, self.made.overlays[name].since, deltas)

    def tell(self, relation: str, held: str, deltas: MapFrame) -> None:
        """Apply deltas as events of a relation with their columns: keys, values, version.

        Parameters
        ----------
        held
            A map with these keys and values, the version as its last key.
        """
        self._try(partial(self._tell, relation, held, deltas))

    def _tell(self, relation: str, held: str, deltas: MapFrame) -> None:
        deltas = self._fitting(held, deltas)
        late = self._relations[relation]
        columns = self._late_columns(late, deltas)
        bulk: Bulk
        if columns is not None:
            bulk = Columns([late], [columns], np.ones(deltas.rows, dtype=np.uint8))
        else:  # values that Arrow has no numbers for
            rows = [
                (*key[:-1], *float_sums.read_stored(self._definitions[held].values, stored), key[-1])
                for key, stored in entries_of(deltas)
            ]
            bulk = Rows(1, late, rows, tuple)
        self._commit(bulk)

    def _late_columns(self, late: Relation, deltas: MapFrame) -> pa.Table | None:
        """Return deltas as rows of their late relation: keys, values, version; None if Arrow cannot have them so."""
        if self.is_unbounded:
            return None
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

    def take_out(self, names: Collection[str] | None = None) -> dict[str, MapFrame]:
        """Return what has been computed and not taken: spread map → rows of its overlay; of some maps, or of all."""
        return self.taken_all({out: name for out, name in self._outs.items() if names is None or name in names})

    def add(self, name: str, deltas: MapFrame) -> None:
        """Add deltas of a map that nothing later has read."""
        since = self.made.overlays[name].since
        self._add(name, deltas)
        self._try(lambda: self.engine.add(since, self._fitting(since, deltas)))

    def _add(self, name: str, deltas: MapFrame, sign: int = 1) -> None:
        """Add deltas to the newest values alone."""
        since, place = self.made.overlays[name].since, self._version_place(name)
        self._try(lambda: self.engine.add(name, self._fitting(since, deltas).without_key(place), sign))

    def versions(self, name: str, deltas: MapFrame) -> Versions:
        """Return the versions of deltas of a map."""
        return deltas.numbers(self._version_place(name))

    def overlay(self, name: str) -> MapFrame:
        """Return the deltas of a map that are not cut."""
        return self._try(lambda: self.engine.copy(self.made.overlays[name].since))

    def _version_place(self, name: str) -> int:
        return len(self._definitions[name].keys)

    # --- forgetting ------------------------------------------------------------------------------------------------

    def cut(self, end: int, before: int) -> None:
        """Forget what an epoch needs no more once it is committed.

        Parameters
        ----------
        end
            The last version of the epoch: no delta up to there will come.
        before
            That of the one before, or an earlier one: no reader will ask for what was then.
        """
        self.cut_histories(end)
        self.cut_overlays(before)
        self.bind_if_due()

    def cut_histories(self, most: int) -> None:
        """Forget the rows up to a version."""
        for name in self.made.histories:
            self.engine.cut(name, len(self._definitions[name].keys) - 1, most)

    def cut_overlays(self, most: int) -> None:
        """Forget which versions the deltas up to a version had; the newest values stay."""
        for name, overlay in self.made.overlays.items():
            self.engine.cut(overlay.since, self._version_place(name), most)

    def roll_back(self, most: int) -> None:
        """Take the deltas beyond a version away from the newest values; forget them, all histories, and what is out."""
        self.take_out()
        self.take_errors()
        for name in self.made.histories:
            self.taken(name)
        for name, overlay in self.made.overlays.items():
            frame = self.overlay(name)
            is_later = self.versions(name, frame) > most
            if is_later.any():
                self.taken(overlay.since)
                self.put(overlay.since, frame.filter(~is_later))
                self._add(name, frame.filter(is_later), -1)

    def renumber(self, less: int) -> None:
        """Take something away from all versions."""
        for name in self.made.versioned:
            place = len(self._definitions[name].keys) - 1
            frame = self.taken(name)
            self.put(name, frame.with_numbers(place, frame.numbers(place) - less))

    def apply(self, relation: str, rows: pa.Table) -> None:
        """Apply rows as insertions into a relation of the node program."""
        signs = np.ones(rows.num_rows, np.int8)
        self._try(lambda: self._apply_rows(self._relations[relation], rows, signs))

    def put(self, name: str, frame: MapFrame) -> None:
        """Add entries to a map of the node program."""
        self._try(partial(self._put_back, name, frame))

    def taken_all(self, named: Mapping[str, T]) -> dict[T, MapFrame]:
        """Return what some maps of the node program have, if anything, by other names; they are empty then."""
        taken = self._try(lambda: self.engine.take_all(named))
        return {named[name]: frame for name, frame in taken.items()}

    def taken(self, name: str) -> MapFrame:
        """Return all that a map of the node program has; it is empty then."""
        return self._try(lambda: self.engine.take(name))  # the engine may be another one when it is tried again

    def _put_back(self, name: str, frame: MapFrame) -> None:
        self.engine.add(name, self._fitting(name, frame))

    # --- keeping ----------------------------------------------------------------------------------------------------

    def newest(self, name: str) -> MapFrame:
        """Return the newest values of a map."""
        return self._try(lambda: self.engine.copy(name))

    def keep_own_entries(self, router: Router, node: int) -> None:
        """Leave the initial entries to the nodes where they lie."""
        for name in self.made.overlays:
            if self._definitions[name].initial:
                frame = self.engine.take(name)
                self.engine.add(name, frame.take(router.targets(name, frame)[node]))

    def load(self, newest: Mapping[str, MapFrame]) -> None:
        """Replace the newest values of all maps; no version is known of them."""
        for name in self.made.overlays:
            self._try(partial(self._load, name, newest.get(name)))

    def _load(self, name: str, frame: MapFrame | None) -> None:
        fitting = None if frame is None else self._fitting(name, frame)
        self.engine.take(name)
        if fitting is not None:
            self.engine.add(name, fitting)

    def restore(self, name: str, deltas: MapFrame, sign: int = 1) -> None:
        """Add deltas that belong to a committed epoch, or take them away; nobody asks for their versions any more."""
        self._add(name, deltas, sign)

    # --- numbers of any length --------------------------------------------------------------------------------------

    def _fitting(self, held: str, frame: MapFrame) -> MapFrame:
        """Return a frame of a map of the node program in the form that the maps have now.

        Raises
        ------
        EvaluationError
            If a sum does not fit it.
        """
        definition = self._definitions[held]
        if self.is_unbounded:
            return widened(frame, layout_of(unbounded_map(definition)))
        return narrowed(frame, layout_of(definition))

    def alike(self, name: str, deltas: Sequence[MapFrame]) -> list[MapFrame]:
        """Return deltas of a map in one form: the bounded one if all fit it."""
        return self.in_one_form(self.made.overlays[name].since, deltas)

    def in_one_form(self, name: str, frames: Sequence[MapFrame]) -> list[MapFrame]:
        """Return rows of a map of the node program in one form: the bounded one if all fit it."""
        return fitted(self._definitions[name], frames)

    def _try(self, action: Callable[[], T]) -> T:
        """Do something; where a number is too large for the words of maps, give these none, and do it again."""
        with localcontext(EXACT):
            try:
                return action()
            except EvaluationError:
                if self.is_unbounded:
                    raise
                self._unbind()
                return action()

    def _unbind(self) -> None:
        """Go on with maps whose sums have no bound, in Python: slower, and as exact."""
        held = {
            definition.name: unbounded_frame(definition, self.engine.stored(definition.name))
            for definition in self.made.program.maps
        }
        self._replace(self._unbounded, "interpreter", held)
        self._patience.begin()

    def _replace(self, program: Program, engine: str, held: Mapping[str, MapFrame]) -> None:
        errors, old = self._session.errors, self.engine
        self._open(program, engine)
        old.close()
        self._session.errors = errors
        for name, frame in held.items():
            self.engine.take(name)  # what it has initially
            self.engine.add(name, frame)

    def bind_if_due(self) -> None:
        """Go back to sums of words once all fit, with room to spare; it is looked for less and less often."""
        if not self.is_unbounded or not self._patience.is_over():
            return
        with localcontext(EXACT):
            try:
                held = bounded_frames(self.made.program, self.engine.stored)
            except EvaluationError:
                return
            self._replace(self.made.program, self._engine_name, held)


def _unbounded(made: NodeProgram) -> Program:
    """Return a node program whose sums have no bound, those in late deltas neither."""
    keys = {definition.name: len(definition.keys) for definition in made.program.maps}
    values = {overlay.late: keys[name] for name, overlay in made.overlays.items() if overlay.late}
    for each, logs in zip(made.slices, made.logs, strict=False):
        values |= dict.fromkeys((logs.corrected, logs.unsent), keys[each.map])

    def opened(relation: Relation) -> Relation:
        first = values.get(relation.name)
        if first is None:
            return relation
        last = len(relation.columns) - 1  # the version
        return replace(
            relation,
            columns=tuple(
                replace(column, type=None) if first <= place < last else column
                for place, column in enumerate(relation.columns)
            ),
        )

    return replace(unbounded_program(made.program), relations=tuple(map(opened, made.program.relations)))
