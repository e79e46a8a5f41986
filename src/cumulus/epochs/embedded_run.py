"""The same epochs without Spark: one process, the same folders, the same output, resumable.

The checkpoint holds a snapshot per bucket and the packed payloads of the epochs since. An epoch is committed when
its manifest is there; what a crash left beyond the last manifest is not looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cumulus.durable import faults
from cumulus.durable.files import write_durably
from cumulus.durable.folders import HeldFolder, check_output
from cumulus.engine.protocol import Engine
from cumulus.epochs.arrivals import Progress, files_left, next_files
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.layouts import choose_plan, match_sources_to_tables, require_definitions
from cumulus.epochs.output.identity import Checkpoint, write_program
from cumulus.epochs.output.publish import merge_functions, write_outputs
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import FolderSource, check_apart
from cumulus.errors import StoreError, StoreLostError
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, given_functions, runnable

LEAST_LOG_BYTES = 32 << 20


class EmbeddedRun:
    """Keeps the views of a program up to date in this process.

    Parameters
    ----------
    program, sources, out, checkpoint
        As in `cumulus.spark.maintain`; the sources are folders.
    make_engine
        Gives an empty engine for a program and the functions that it calls.
    layout, buckets, files_per_epoch, late_epochs, keep, snapshot_every
        As in `cumulus.spark.maintain`; buckets are done one after the other, so more than one has no use but
        comparison.
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
        layout: str = "one-bucket",
        buckets: int = 1,
        files_per_epoch: int = 1,
        late_epochs: int = LATE_EPOCHS,
        keep: int = 100,
        snapshot_every: int = 1,
    ) -> None:
        check_output(out, "--out")
        check_output(checkpoint, "--checkpoint")
        functions = given_functions(functions)
        runnable(program.functions, functions)  # a missing one is told before folders are made
        program, self._sources = match_sources_to_tables(require_definitions(program), sources)
        check_apart(self._sources, out, checkpoint)
        self._program = program
        self._limit = files_per_epoch
        self._keep = keep
        self.out = Path(out).absolute()
        self._checkpoint = Checkpoint(
            Path(checkpoint).absolute() if checkpoint else self.out / "checkpoint", "embedded"
        )
        self._sink: Sink | None = None
        try:
            self.identity = self._checkpoint.bind(program, lambda: choose_plan(program, layout, buckets))
            self._state = self._checkpoint.path / "embedded"
            self._state.mkdir(exist_ok=True)
            self._sink = Sink(
                self.out, self.identity.checkpoint, self.identity.program, resuming=any(self._state.iterdir())
            )
            write_program(self.out, program)
            self._merge = merge_functions(self.identity.plan, program, self.out, functions)
            plan = self.identity.plan
            self._buckets = [
                Bucket(program, plan, at, make_engine, late_epochs, functions) for at in range(plan.buckets)
            ]
            newest = self._sink.newest()
            self._poll: Mapping[str, Any] = newest.poll if newest else {}
            self.epoch = newest.epoch if newest else 0
            self._snapshots = Snapshots.after(newest, snapshot_every)
            self._done: Progress = newest.offsets if newest else {}
            self._base = self._log_bytes = self._base_bytes = 0
            self._held = HeldFolder(self._state)
            self._restore()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the folders free."""
        if self._sink is not None:
            self._sink.close()
        self._checkpoint.close()

    def _restore(self) -> None:
        """Load the newest snapshots and replay the log up to the last committed epoch."""
        bases = [
            int(path.name) for path in self._state.glob("[0-9]*") if path.is_dir() and int(path.name) <= self.epoch
        ]
        self._base = max(bases, default=0)
        for bucket in self._buckets:
            if self._base:
                data = (self._state / str(self._base) / str(bucket.index)).read_bytes()
                self._base_bytes += len(data)
                bucket.load(data)
        for epoch in range(self._base + 1, self.epoch + 1):
            for bucket in self._buckets:
                try:
                    payload = (self._state / f"{epoch}-{bucket.index}.log").read_bytes()
                except OSError as problem:
                    raise StoreError(
                        f"{self._checkpoint.path}: the log of epoch {epoch} cannot be read: {problem.strerror}",
                        hint="The checkpoint is damaged: start with a new --out and --checkpoint.",
                    ) from None
                self._log_bytes += len(payload)
                bucket.apply(epoch, [payload])

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
        self._check_folders()
        files, done = next_files(self._sources, self._done, 0 if everything else self._limit, sizes=True)
        if not files and not Poll.of_plain(self._poll).granted:
            return None
        epoch = self.epoch + 1
        notice = pack_notice(self._poll)
        packed = [notice + each for each in pack(read_files(self._program, self._sources, files), self.identity.plan)]
        read = time.perf_counter()
        left = files_left(self._sources, done)
        final = left == 0 if last is None else last
        attempt = os.urandom(4).hex()
        written = []
        engine = 0.0
        for bucket, payload in zip(self._buckets, packed, strict=True):
            faults.crash_point("in-handler")
            write_durably(self._state / f"{epoch}-{bucket.index}.log", payload)
            before = time.perf_counter()
            outcome = bucket.apply(epoch, [payload])
            engine += time.perf_counter() - before
            written.append(write_outputs(bucket, outcome, epoch, attempt, self.out, self._snapshots, final=final))
            self._log_bytes += len(payload)
        faults.crash_point("after-state-write")
        assert self._sink is not None
        manifest, made = self._sink.commit(epoch, written, done, self._merge, self._keep)
        assert made, f"epoch {epoch} was there"
        self.epoch, self._done, self._poll = epoch, done, manifest.poll
        self._compact()
        ended = time.perf_counter()
        parts = {"source": read - started, "engine": engine, "sink": ended - read - engine}
        return Epoch.of(manifest, ended - started, parts, left, ("kept",), self.out)

    def _check_folders(self) -> None:
        """Raise StoreLostError unless output and checkpoint are where they were."""
        assert self._sink is not None
        self._sink.check()
        self._held.check()
        last = self._state / (str(self._base) if self.epoch == self._base else f"{self.epoch}-0.log")
        if self.epoch and not last.exists():
            raise StoreLostError(
                f"{last}: this part of the checkpoint has gone while the run went on",
                hint="Restore the checkpoint from a copy, or start with a new --out and --checkpoint.",
            )

    def _compact(self) -> None:
        """Write snapshots when the log has outgrown them, then drop what they replace."""
        if self._log_bytes <= max(LEAST_LOG_BYTES, self._base_bytes):
            return
        making = self._state / f".{self.epoch}"
        making.mkdir(exist_ok=True)
        self._base_bytes = 0
        for bucket in self._buckets:
            data = bucket.dump()
            self._base_bytes += len(data)
            write_durably(making / str(bucket.index), data)
            faults.crash_point("in-compaction")
        making.rename(self._state / str(self.epoch))
        self._base, self._log_bytes = self.epoch, 0
        for path in self._state.iterdir():
            if path.suffix == ".log" and int(path.name.split("-")[0]) <= self._base:
                path.unlink()
            elif path.is_dir() and path.name != str(self._base):
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()

    def steps(self, *, everything: bool = False) -> Iterator[Epoch]:
        """Do epochs until there are no new files."""
        while (epoch := self.step(everything=everything)) is not None:
            yield epoch

    def __enter__(self) -> EmbeddedRun:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
