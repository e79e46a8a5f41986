"""Files of spread views: rows that a node has finished, shares that the publisher puts together."""

from __future__ import annotations

import decimal
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from cumulus.catalog.types import EXACT
from cumulus.cluster.codec import decode, encode
from cumulus.cluster.placement.layout import FinishedBy
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.records import ViewShare
from cumulus.cluster.spread_maps import ShareOfMap, Shares
from cumulus.durable.files import write_bytes, write_parquet
from cumulus.engine.engines import make_engine
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.frames.unbounded import frame_of_bytes, unbounded_map, unbounded_program, widened
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import dump
from cumulus.epochs.output.parts import part_path, write_part
from cumulus.epochs.view_folders import data_path
from cumulus.errors import EvaluationError
from cumulus.views import Finisher, MapViewReader

MergeFunction = Callable[[int, list[str]], str]


class SpreadOutputs:
    """Writes spread views.

    Rows are made from the maps of an engine, which nobody fires: it is given the rows of one view at a time.

    Parameters
    ----------
    engine
        Its name.
    """

    def __init__(self, plan: ClusterPlan, out: Path, engine: str) -> None:
        self._plan, self._out, self._program, self._engine_name = plan, out, plan.division.spread, engine
        self._numbers = {definition.name: at for at, definition in enumerate(self._program.maps)}

    @cached_property
    def _engine(self) -> Engine:  # where nothing is spread, or others finish all, nobody needs it
        return make_engine(self._engine_name, replace(self._program, triggers=()))

    @cached_property
    def _unbounded(self) -> Engine:
        return make_engine("interpreter", replace(unbounded_program(self._program), triggers=()))

    def _filled(self, names: Iterable[str], shares: Iterable[tuple[str, MapFrame, MapFrame]]) -> Engine:
        """Return an engine that has in some maps what shares of them make together, and nothing else there."""
        names, listed = list(names), list(shares)
        bounded = {name: layout_of(self._program.map(name)) for name in names}
        if all(frame.layout is bounded[name] for name, *frames in listed for frame in frames):
            try:
                return self._fill(self._engine, names, listed)
            except EvaluationError:  # on the way to their sum, which may fit
                pass
        wide = {name: layout_of(unbounded_map(self._program.map(name))) for name in names}
        opened = [(name, widened(rows, wide[name]), widened(gone, wide[name])) for name, rows, gone in listed]
        return self._fill(self._unbounded, names, opened)

    @staticmethod
    def _fill(engine: Engine, names: Sequence[str], shares: Iterable[tuple[str, MapFrame, MapFrame]]) -> Engine:
        for name in names:
            engine.take(name)
        for name, rows, gone in shares:
            engine.add(name, rows)
            engine.add(name, gone, -1)
        return engine

    def write(self, shares: Shares, node: int, epoch: int) -> tuple[dict[str, str], dict[str, str]]:
        """Write what a node has of views; return view → file, and view → why its rows could not be computed.

        Raises
        ------
        OSError
            If they cannot be written.
        """
        files, errors, attempt = {}, {}, os.urandom(4).hex()
        for name, share in shares.items():
            stem = data_path(name, f"{epoch}-{node}-{attempt}")
            if self._plan.layout.placement_of_view(name).by is FinishedBy.MERGE:
                write_bytes(self._out / f"{stem}.share", b"".join(encode(self._packed(share))))
                files[name] = f"{stem}.share"
                continue
            try:
                table = self._finished(name, [(each, *frames) for each, frames in share.items()])
            except EvaluationError as problem:
                errors[name] = problem.message
                continue
            write_parquet(self._out / f"{stem}.parquet", table)
            files[name] = f"{stem}.parquet"
        return files, errors

    def write_parts(self, parts: Mapping[str, ShareOfMap], node: int, epoch: int) -> dict[str, str]:
        """Write the entries of maps that a node owns; return map → file.

        Raises
        ------
        OSError
            If they cannot be written.
        """
        files, attempt = {}, os.urandom(4).hex()
        for name, (rows, gone) in parts.items():
            with decimal.localcontext(EXACT):
                engine = self._filled([name], [(name, rows, gone)])
            files[name] = part_path(epoch, node, attempt, self._numbers[name], is_share=False)
            write_part(self._out, files[name], dump(engine, name))
        return files

    def mergers(self) -> dict[str, MergeFunction]:
        """Return view → function from an epoch and share files to a finished file, for views that need it."""
        placement = self._plan.layout.placement_of_view
        views = [view.name for view in self._program.shown_views]
        return {name: self._merger(name) for name in views if placement(name).by is FinishedBy.MERGE}

    def _merger(self, name: str) -> MergeFunction:
        def merge(epoch: int, files: list[str]) -> str:
            shares = [each for file in files for each in self._unpacked((self._out / file).read_bytes())]
            table = self._finished(name, shares)
            path = data_path(name, f"{epoch}-all-{os.urandom(4).hex()}.parquet")
            write_parquet(self._out / path, table)
            return str(path)

        return merge

    def _packed(self, share: Mapping[str, ShareOfMap]) -> ViewShare:
        return ViewShare(
            [(self._numbers[name], rows.to_bytes(), gone.to_bytes()) for name, (rows, gone) in share.items()]
        )

    def _unpacked(self, data: bytes) -> Iterable[tuple[str, MapFrame, MapFrame]]:
        for at, rows, gone in decode(data).maps:
            definition = self._program.maps[at]
            yield definition.name, frame_of_bytes(definition, rows), frame_of_bytes(definition, gone)

    def _finished(self, name: str, shares: Iterable[tuple[str, MapFrame, MapFrame]]) -> pa.Table:
        """Return the rows of a view that some shares of its maps make together."""
        view = self._program.view(name)
        with decimal.localcontext(EXACT):
            engine = self._filled(view.reads, shares)
            return MapViewReader(Finisher(self._program, view), engine).arrow()
