"""The same epochs without Spark: one process, the same folders, the same output, resumable.

The checkpoint holds a snapshot per bucket and the packed payloads of the epochs since. An epoch is committed when
its manifest is there; what a crash left beyond the last manifest is not looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.durable import faults
from cumulus.durable.folders import check_output
from cumulus.durable.store import NO_STORAGE, Storage, absolute, below, store_of
from cumulus.engine.protocol import Engine
from cumulus.epochs.arrivals import ObjectLists, Progress, files_left, next_files
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.epoch_log import EpochLog, has_state, size_of_state
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.generations import (
    FIRST_STATE,
    STATES,
    Generation,
    create_generation,
    drop_states,
    in_force,
    plans_up_to,
    read_generations,
    state_folder,
)
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.layouts import (
    choose_plan,
    match_sources_to_tables,
    require_definitions,
    several_buckets_refused,
    wanted_plan,
)
from cumulus.epochs.moves import Move, moved_states
from cumulus.epochs.output.identity import Checkpoint, has_card, write_program
from cumulus.epochs.output.publish import merge_functions, write_outputs
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.output.turns import output_error
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.progress import Epoch
from cumulus.epochs.reshape import opened_buckets
from cumulus.epochs.sources import check_apart
from cumulus.errors import StoreError
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, given_functions, runnable

HOST = "embedded"
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
    layout, buckets
        As in `cumulus.spark.maintain`; nothing and 0 are what the checkpoint has, and one bucket for a new one. A
        checkpoint that has another layout, or other buckets, goes on in those that are asked for (`moves`). Buckets are
        done one after the other, so more than one has no use but comparison, and what another host is to take over.
    files_per_epoch, late_epochs, keep, snapshot_every
        As in `cumulus.spark.maintain`.
    on_move
        Called with what is to change before a checkpoint goes on in other buckets.

    Raises
    ------
    LayoutError
        If the layout is not right for the program, or not for the rows that are in.
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
        layout: str = "",
        buckets: int = 0,
        files_per_epoch: int = 1,
        late_epochs: int = LATE_EPOCHS,
        keep: int = 100,
        snapshot_every: int = 1,
        on_move: Callable[[Move], None] | None = None,
    ) -> None:
        check_output(out, "--out", takes_addresses=True)
        check_output(checkpoint, "--checkpoint", takes_addresses=True)
        functions = given_functions(functions)
        runnable(program.functions, functions)  # a missing one is told before folders are made
        program, self._sources = match_sources_to_tables(require_definitions(program), sources)
        check_apart(self._sources, out, checkpoint)
        self._program = program
        self._layout, self._count, self._on_move = layout, buckets, on_move
        self._limit = files_per_epoch
        self._keep, self._snapshot_every = keep, snapshot_every
        self.out = store_of(absolute(out), storage)
        place = absolute(checkpoint) if checkpoint else below(absolute(out), "checkpoint")
        if buckets > 1 and not layout and not has_card(store_of(place, storage)):
            raise several_buckets_refused(buckets, "auto")  # before folders are made
        self._checkpoint = Checkpoint(store_of(place, storage), HOST)
        self._make_engine, self._late_epochs, self._functions = make_engine, late_epochs, functions
        self._is_first = True
        """Whether sources are to be listed whole, as at the start and at the end."""
        self._sink: Sink | None = None
        try:
            count = buckets or os.cpu_count() or 1
            self.identity = self._checkpoint.bind(program, lambda: choose_plan(program, layout or "one-bucket", count))
            self._first = Generation(0, self.identity.plan, HOST)
            known = read_generations(self._checkpoint.store, self._first)
            resuming = len(known) > 1 or has_state(self._checkpoint.store, FIRST_STATE)
            self._sink = Sink(self.out, self.identity.checkpoint, self.identity.program, resuming=resuming)
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
        after = wanted_plan(self._program, self.identity.plan, self._layout, self._count)
        if after is not self.identity.plan:
            self._move(after)
        self._drop_old_states()

    def _restore_newest(self, known: Sequence[Generation]) -> None:
        """Load the newest snapshots and replay the log up to the last committed epoch."""
        assert self._sink is not None
        newest = self._sink.newest()
        self._known, self._generation = known, in_force(known, newest)
        self.epoch = newest.epoch if newest else 0
        self._done: Progress = newest.offsets if newest else {}
        self._begin_generation()
        plan = self.identity.plan
        self._buckets = [self._bucket(plan, at) for at in range(plan.buckets)]
        self._log = EpochLog(self._checkpoint.store, self._generation.state, self._generation.epoch)
        self._log.open(self.epoch, plan.buckets, newest.began if newest else [], self._sink.run)
        self._log.restore(self._buckets)

    def _begin_generation(self) -> None:
        """Go on as the generation in force says."""
        assert self._sink is not None
        newest, generation = self._sink.newest(), self._generation
        plans = plans_up_to(self._known, generation)
        self.identity = replace(self.identity, plan=generation.plan, later=plans[1:])
        self._sink.generation = generation.number
        self._merge = merge_functions(generation.plan, self._program, self.out, self._functions)
        self._snapshots = Snapshots.after(newest, self._snapshot_every, generation=generation.number)
        poll: Mapping[str, Any] = newest.poll if newest else {}
        is_first = self.epoch == generation.epoch and generation.number > 0
        self._is_due = is_first and Poll.of_plain(poll).granted > 0
        """Whether deletions that the buckets before have agreed to wait for an epoch."""
        self._poll = generation.poll if is_first else poll

    def _bucket(self, plan: BucketPlan, at: int) -> Bucket:
        return Bucket(self._program, plan, at, self._make_engine, self._late_epochs, self._functions)

    def _move(self, after: BucketPlan) -> None:
        """Go on in other buckets: write their state, then create the generation that says so."""
        assert self._sink is not None
        store, before, newest = self._checkpoint.store, self._generation, self._sink.newest()
        number = len(self._known)
        size = size_of_state(store, before.state, self.epoch, before.plan.buckets)
        if self._on_move is not None:
            self._on_move(Move(before.plan, after, self.epoch, size))
        states = moved_states(self._program, self._buckets, after)
        self._buckets = opened_buckets(states, self._buckets, partial(self._bucket, after))
        poll = Poll.merge(bucket.vote() for bucket in self._buckets).plain()
        made = Generation(number, after, HOST, self.epoch, state_folder(number), before.number, poll)
        log = EpochLog(store, made.state, self.epoch)
        packed = (state.pack() for state in states)
        log.begin(self.epoch, after.buckets, packed, newest.began if newest else [], self._sink.run)
        faults.crash_point("before-generation")
        try:
            self._sink.check()
            created = create_generation(store, made)
        except BaseException:
            log.drop()
            raise
        if not created:  # another run was quicker: go on from there
            log.drop()
            self._restore()
            return
        faults.crash_point("after-generation")
        self._known, self._generation, self._log = [*self._known, made], made, log
        self._begin_generation()

    def _drop_old_states(self) -> None:
        """Remove the state of generations that no run goes back to."""
        assert self._sink is not None
        store = self._checkpoint.store
        if len(self._known) == 1 and not (store.is_local and has_state(store, STATES)):
            return
        newest, kept = self._sink.newest(), [self._generation]
        made_by = newest.generation if newest else 0
        if not self.out.is_local:  # an earlier run may be about to commit its last epoch
            kept.append(self._known[made_by])
        drop_states(store, kept, len(self._known) - 1)

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
        if not files and not Poll.of_plain(self._poll).granted and not self._is_due:
            return None
        epoch = self.epoch + 1
        notice = pack_notice(self._poll)
        packed = [notice + each for each in pack(read_files(self._program, self._sources, files), self.identity.plan)]
        read = time.perf_counter()
        left = files_left(self._sources, done, lists)
        final = left == 0 if last is None else last
        attempt = os.urandom(4).hex()
        written = []
        engine = 0.0
        for bucket, payload in zip(self._buckets, packed, strict=True):
            faults.crash_point("in-handler")
            self._log.add(epoch, bucket.index, payload)
            before = time.perf_counter()
            outcome = bucket.apply(epoch, [payload])
            engine += time.perf_counter() - before
            written.append(write_outputs(bucket, outcome, epoch, attempt, self.out, self._snapshots, final=final))
        faults.crash_point("after-state-write")
        whole = self._snapshots.due(epoch, final) and self._snapshots.whole(epoch)
        manifest, made = self._sink.commit(epoch, written, done, self._merge, self._keep, whole=whole)
        if not made:  # an earlier run was quicker with this epoch, its last one: go on from there
            self._restore()
            self._is_first = True
            return self.step(everything=everything, last=last)
        self.epoch, self._done, self._poll, self._is_due = epoch, done, manifest.poll, False
        if not self.out.is_local and self._generation.epoch + 1 == epoch and self._generation.number:
            self._drop_old_states()
        if self._log.has_outgrown:
            self._log.compact(epoch, (bucket.dump() for bucket in self._buckets))
        ended = time.perf_counter()
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
