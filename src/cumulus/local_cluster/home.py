"""The folders of a cluster: what a run over folders finds there, and what it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cumulus.durable.folders import check_output
from cumulus.epochs.layouts import match_sources_to_tables, require_definitions
from cumulus.epochs.output.identity import Checkpoint, Identity
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import FolderSource, check_apart
from cumulus.local_cluster.card import ClusterCard
from cumulus.m3.program import Program
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import Functions, given_functions, runnable

HOST = "cluster"


class Home:
    """The output folder of a cluster and the state of its machines, held by one process.

    Parameters
    ----------
    program
        Compiled without RELY and without enforced keys.
    choose
        Gives the gates' buckets and the nodes that have them, and table → switch, of a new cluster.
    settings
        Others of `ClusterCard`.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[FolderSource],
        out: Path,
        checkpoint: Path | None,
        choose: Callable[[Program], tuple[BucketPlan, tuple[int, ...], dict[str, int]]],
        *,
        functions: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        check_output(out, "--out")
        self.functions: Functions = given_functions(functions_in(functions))
        runnable(program.functions, self.functions)  # a missing one is told before folders are made
        program, sources = match_sources_to_tables(require_definitions(program), sources)
        place = (checkpoint or out / "checkpoint").absolute()
        check_output(place, "--checkpoint")
        check_apart(sources, out, place)
        self.program, self.sources = program, sources
        self.sink: Sink | None = None
        self._checkpoint = Checkpoint(place, HOST)
        try:
            plan, gates, tables = choose(program)
            self.identity: Identity = self._checkpoint.bind(program, lambda: plan)
            self.card = ClusterCard(
                str(out.absolute()),
                str(place),
                self.identity.checkpoint,
                self.identity.program,
                plan=self.identity.plan,
                gates=gates,
                tables=tables,
                sources=sources,
                functions=functions,
                **settings,
            )
            self.sink = Sink(
                out.absolute(),
                self.card.checkpoint,
                self.card.program,
                resuming=not self.identity.fresh and self._began(),
            )
            newest = self.sink.newest()
            self.epoch = newest.epoch if newest else 0
            """The last committed one."""
            self.card.write()
            self.sink.close()  # the publisher's process takes it
        except BaseException:
            self.close()
            raise

    def _began(self) -> bool:
        """Whether the state of some machine is there."""
        return any(any(path.iterdir()) for path in self._checkpoint.path.iterdir() if path.is_dir())

    def close(self) -> None:
        """Give the folders free."""
        if self.sink is not None:
            self.sink.close()
        self._checkpoint.close()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
