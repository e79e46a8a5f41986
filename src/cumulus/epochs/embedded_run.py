"""The same epochs without Spark: one process, the same folders, the same output, resumable.

The checkpoint holds a snapshot per bucket and the packed payloads of the epochs since. An epoch is committed when
its manifest is there; what a crash left beyond the last manifest is not looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cumulus.durable import faults
from cumulus.durable.folders import check_output
from cumulus.durable.store import NO_STORAGE, Storage, absolute, below, store_of
from cumulus.engine.protocol import Engine
from cumulus.epochs.arrivals import ObjectLists, Progress, files_left, next_files, progress_of
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.program_text import write_program
from cumulus.epochs.first_counts import counts_for, write_counts
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.generations import (
    EMBEDDED,
    Generation,
    drop_old_states,
    first_generation,
    has_begun,
    in_force,
    plans_up_to,
    read_generations,
)
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.layouts import match_sources_to_tables, require_definitions
from cumulus.epochs.moves import Move, PartsReader, make_generation, move_of, plan_after, restored_stages
from cumulus.epochs.output.identity import Checkpoint
from cumulus.epochs.output.publish import merge_functions
from cumulus.epochs.output.published_tables import tables_to_publish
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.output.turns import output_error
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import check_apart
from cumulus.epochs.stages.parts import PartMaker, Writing
from cumulus.errors import StoreError
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, given_functions, runnable

_RESTORES = 3


class EmbeddedRun:
    """Keeps the views of a program up to date in this process.

    Parameters
    ----------
    program, sources, out, checkpoint
        As in `cumulus.spark.maintain`; the sources are folders or addresses. Where `out` is an address, the checkpoint
        is below it if none is given.
    storage
        How object stores are reached.
    make_engine
        Gives an empty engine for a program and the functions that it calls.
    layout, buckets, statistics
        As in `cumulus.spark.maintain`, but one bucket for a new checkpoint if nothing else is asked for. A checkpoint
        that has another layout, other buckets or another host goes on with what is asked for (`moves`). Buckets are
        done one after the other, so more than one has no use but comparison, and what another host is to take over.
    files_per_epoch, late_epochs, keep, snapshot_every
        As in `cumulus.spark.maintain`.
    publish
        As in `cumulus.spark.maintain`.
    on_move
        Called with what is to change before a checkpoint goes on in other buckets.
    spark_parts
        Reads the state that Spark has kept, if a checkpoint of Spark is to be gone on with.

    Raises
    ------
    LayoutError
        If the layout is not right for the program, or not for the rows that are in.
    MissingError
        If Spark has kept the state, and nothing reads it.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[FolderSource],
        out: str | Path,
        checkpoint: str | Path = "",
        *,
        make_engine: Callable[..., Engine],
        functions: Functions | None = None,
        storage: Storage = NO_STORAGE,
        layout: str = "auto",
        buckets: int = 0,
        statistics: Statistics | None = None,
        files_per_epoch: int = 1,
        late_epochs: int = LATE_EPOCHS,
        keep: int = 100,
        snapshot_every: int = 1,
        publish: Sequence[str] = (),
        on_move: Callable[[Move], None] | None = None,
        spark_parts: PartsReader | None = None,
    ) -> None:
        check_output(out, "--out", takes_addresses=True)
        check_output(checkpoint, "--checkpoint", takes_addresses=True)
        functions = given_functions(functions)
        runnable(program.functions, functions)  # a missing one is told before folders are made
        program, self._sources = match_sources_to_tables(require_definitions(program), sources)
        check_apart(self._sources, out, checkpoint)
        self._program = program
        self._asked = layout, buckets, statistics
        self._on_move, self._spark_parts = on_move, spark_parts
        self._limit = files_per_epoch
        self._publish = publish
        self._keep, self._snapshot_every = keep, snapshot_every
        self.out = store_of(absolute(out), storage)
        place = absolute(checkpoint) if checkpoint else below(absolute(out), "checkpoint")
        self._checkpoint = Checkpoint(store_of(place, storage), EMBEDDED)
        self._make_engine, self._late_epochs, self._functions = make_engine, late_epochs, functions
        self._is_first = True
        """Whether sources are to be listed whole, as at the start and at the end."""
        self._sink: Sink | None = None
        try:
            self.identity = self._checkpoint.bind(program, self._choose_first_plan)
            self._first = first_generation(self.identity)
            known = read_generations(self._checkpoint.store, self._first)
            known_as = self.identity.checkpoint, self.identity.program
            self._sink = Sink(self.out, *known_as, resuming=has_begun(self._checkpoint))
            write_program(self.out, program)
            self._restore(known)
        except OSError as problem:
            self.close()
            raise output_error(problem.filename or self.out, problem) from None
        except BaseException:
            self.close()
            raise

    @property
    def first_plan(self) -> BucketPlan:
        """The plan that the checkpoint began with."""
        return self._first.plan

    def _choose_first_plan(self) -> BucketPlan:
        """Return the plan of a new checkpoint."""
        layout, buckets, given = self._asked
        if layout == "auto" and not buckets:
            layout = "one-bucket"  # one process has no use for more
        count = buckets or os.cpu_count() or 1
        counts = counts_for(self._program, self._sources, layout, count, given)
        write_counts(self._checkpoint.store, counts)
        return choose_plan(self._program, layout, count, counts)

    def close(self) -> None:
        """Give the folders free."""
        if self._sink is not None:
            self._sink.close()
        self._checkpoint.close()

    def _restore(self, known: Sequence[Generation] = ()) -> None:
        """Be what the last committed epoch has left, in the buckets that are asked for.

        Parameters
        ----------
        known
            The generations of the checkpoint, if they were read.
        """
        assert self._sink is not None
        for left in reversed(range(_RESTORES)):
            try:
                self._restore_newest(known or read_generations(self._checkpoint.store, self._first))
                break
            except StoreError:
                if self.out.is_local or not left:
                    raise
            self._sink.look()  # an earlier run may have committed its last epoch meanwhile, and compacted its log
            known = ()
        self._drop_old_states()

    def _restore_newest(self, known: Sequence[Generation]) -> None:
        """Load the newest snapshots and replay the log up to the last committed epoch, or take over from others."""
        assert self._sink is not None
        newest = self._sink.newest()
        self._known, self._generation = known, in_force(known, newest)
        after, store = self._generation.plan, self._checkpoint.store
        if not self.identity.fresh:
            after = plan_after(self._program, store, self._generation, *self._asked)
        move = move_of(store, self._generation, after, EMBEDDED, newest)
        published = tables_to_publish(self._program, self._publish, newest)
        maker = PartMaker(self._program, after, self._make_engine, self._late_epochs, self._functions, published)
        if move is not None:
            if self._on_move is not None:
                self._on_move(move)
            told = EMBEDDED, newest, self._spark_parts, self._sink.check
            self._generation = make_generation(maker, store, known, self._generation, *told)
            self._known = [*known, self._generation]
        self._stages, self._log = restored_stages(maker, store, self._generation, newest, self._sink.run)
        self._begin_generation(after)

    def _begin_generation(self, plan: BucketPlan) -> None:
        """Go on as the generation in force says."""
        assert self._sink is not None
        newest, generation = self._sink.newest(), self._generation
        plans = plans_up_to(self._known, generation)
        self.identity = replace(self.identity, plan=plan, later=plans[1:])
        self._sink.generation = generation.number
        self._merge = merge_functions(generation.plan, self._program, self.out, self._functions)
        self._snapshots = Snapshots.after(newest, self._snapshot_every, generation=generation.number)
        self.epoch = newest.epoch if newest else 0
        self._done: Progress = progress_of(newest) if newest else {}
        self._poll: Mapping[str, Any] = generation.poll_after(newest)
        self._is_due = generation.has_granted(newest)

    def _drop_old_states(self) -> None:
        """Remove the state of generations that no run goes back to."""
        assert self._sink is not None
        told = self._known, self._generation, self._sink.newest()
        drop_old_states(self._checkpoint.store, *told, is_alone=self.out.is_local)

    def step(self, *, everything: bool = False, last: bool | None = None) -> Epoch | None:
        """Do the next epoch; None if there are no new files, and no deletions that all buckets agree to.

        Parameters
        ----------
        everything
            Take all files there are, not `files_per_epoch` of each table.
        last
            Whether this is the run's last epoch, which writes whole views whatever `snapshot_every` says; None: if no
            file is left after it.

        Raises
        ------
        InputError, StoreError
            Also if the output folder or the checkpoint was removed, moved or replaced. The epoch is not committed
            then, and this object must be thrown away.
        """
        started = time.perf_counter()
        assert self._sink is not None
        if self.out.is_local:
            self._sink.check()
        self._log.check()
        lists = ObjectLists(is_whole=self._is_first)
        limit = 0 if everything else self._limit
        files, done = next_files(self._sources, self._done, limit, sizes=True, lists=lists)
        if not files and not self._is_first and last is not False:
            lists = ObjectLists()
            files, done = next_files(self._sources, self._done, limit, sizes=True, lists=lists)
        self._is_first = False
        if not files and not self._is_due:
            return None
        epoch = self.epoch + 1
        notice = pack_notice(self._poll)
        packed = [notice + each for each in pack(read_files(self._program, self._sources, files), self.identity.plan)]
        read = time.perf_counter()
        left = files_left(self._sources, done, lists)
        final = left == 0 if last is None else last
        attempt = os.urandom(4).hex()
        for index, payload in enumerate(packed):
            faults.crash_point("in-handler")
            self._log.add(epoch, index, payload)
        self._stages.apply(epoch, packed)
        written = self._stages.write(Writing(epoch, attempt, self.out, self._snapshots, final))
        faults.crash_point("after-state-write")
        whole = self._snapshots.due(epoch, final) and self._snapshots.whole(epoch)
        manifest, made = self._sink.commit(epoch, written, done, self._merge, self._keep, whole=whole)
        if not made:  # an earlier run was quicker with this epoch, its last one: go on from there
            self._restore()
            self._is_first = True
            return self.step(everything=everything, last=last)
        self.epoch, self._done, self._poll = epoch, done, manifest.poll
        self._is_due = Poll.of_plain(self._poll).granted > 0
        if not self.out.is_local and self._generation.epoch + 1 == epoch and self._generation.number:
            self._drop_old_states()
        if self._log.has_outgrown:
            self._log.compact(epoch, self._stages.dumps())
        ended = time.perf_counter()
        engine = self._stages.seconds
        parts = {"source": read - started, "engine": engine, "sink": ended - read - engine}
        return Epoch.of(manifest, ended - started, parts, left, ("kept",), self.out)

    def steps(self, *, everything: bool = False) -> Iterator[Epoch]:
        """Do epochs until there are no new files."""
        while (epoch := self.step(everything=everything)) is not None:
            yield epoch

    def __enter__(self) -> EmbeddedRun:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
