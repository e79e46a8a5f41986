"""Generations of a checkpoint: the plans that its buckets have had, each from an epoch on, on which host, and where
their state lies.

Generation 0 is the card of the checkpoint, and its state is in ``embedded/`` or ``spark/``. Each later one is a file,
``generations/1.json`` and so on, which is created when all of its state is written, and never changed.

The manifest of an epoch says by which generation it was made. A generation after that one is in force if it begins
after this very epoch; one that begins after an earlier epoch is void: another run has committed meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cumulus.durable.store import FileStore, Store
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.output.identity import Checkpoint, Identity
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import MismatchError, StoreError

FORM = 1
EMBEDDED, SPARK = "embedded", "spark"
"""The hosts; also the folders of the state of generation 0, by its host."""
STATES = "state"
"""The folder in which the others have theirs."""
_FOLDER = "generations"


@dataclass(frozen=True, slots=True)
class Generation:
    """What holds for the buckets of a checkpoint from an epoch on.

    Parameters
    ----------
    number
        0 for the card of the checkpoint.
    plan
        The plan of its buckets.
    host
        Who keeps the state; of generation 0 it is in the folder with this name.
    epoch
        The last epoch of the generation before.
    state
        The folder of its state in the checkpoint; no two runs write to one, so it has a nonce in its name.
    before
        The number of the generation that it was made from.
    poll
        What the buckets say after `epoch` about deletions that wait: `cumulus.epochs.bucket.votes.Poll.plain`.
    keys
        By which Spark's state knows the buckets of generation 0; none if its card has none.
    spark
        The folder of a checkpoint of Spark's in which it goes on, beside buckets that are there no more; empty if it
        has one of its own.
    """

    number: int
    plan: BucketPlan
    host: str
    epoch: int = 0
    state: str = ""
    before: int = 0
    poll: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[int, ...] = ()
    spark: str = ""

    @property
    def spark_place(self) -> str:
        """The folder of Spark's checkpoint, in ours."""
        return self.spark or (f"{self.state}/{SPARK}" if self.number else SPARK)

    @property
    def folders(self) -> set[str]:
        """The folders in the checkpoint that it needs."""
        return {self.state, *([self.spark.removesuffix(f"/{SPARK}")] if self.spark else [])}

    def poll_after(self, newest: Manifest | None) -> Mapping[str, Any]:
        """Return what buckets say about deletions that wait, for the epoch after the newest: `Poll.plain`."""
        if self.number and self.epoch == (newest.epoch if newest else 0):
            return self.poll
        return newest.poll if newest else {}

    def has_granted(self, newest: Manifest | None) -> bool:
        """Whether deletions that all buckets have agreed to wait for the epoch after the newest, also if no file is
        left.
        """
        told = newest.poll if newest else {}
        return any(Poll.of_plain(poll).granted > 0 for poll in (told, self.poll_after(newest)))


def first_generation(identity: Identity) -> Generation:
    """Return generation 0 of a checkpoint."""
    return Generation(0, identity.plan, identity.host, state=identity.host, keys=identity.keys)


def state_folder(number: int) -> str:
    """Return a new name for the folder of the state of a generation."""
    return f"{STATES}/{number}-{os.urandom(4).hex()}"


def read_generations(store: Store, first: Generation) -> list[Generation]:
    """Return all generations of a checkpoint, in order.

    Parameters
    ----------
    store
        The checkpoint.
    first
        What its card says.

    Raises
    ------
    MismatchError
        If a later release has made one.
    StoreError
        If one cannot be read.
    """
    found = [first]
    while True:
        number = len(found)
        place = store.place(_name(number))
        try:
            told = json.loads(store.get(_name(number)))
            if told["form"] > FORM:
                raise MismatchError(
                    f"{place}: a later release has made this generation of the checkpoint",
                    hint="Run that release; this one has changed nothing.",
                )
            del told["form"]
            told["keys"] = tuple(told["keys"])
            found.append(Generation(**{**told, "plan": BucketPlan.of_plain(told["plan"])}))
        except FileNotFoundError:
            return found
        except (OSError, ValueError, TypeError, KeyError) as problem:
            raise StoreError(
                f"{place}: this generation of the checkpoint cannot be read: {problem}",
                hint="Bring it back from a copy; nothing was changed.",
            ) from None


def has_begun(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has committed an epoch, or may have: then it needs its output."""
    store = checkpoint.store
    return checkpoint.has_commits or store.size(_name(1)) is not None or bool(store.list(EMBEDDED))


def create_generation(store: Store, generation: Generation) -> bool:
    """Put a generation in force whose state is written; False if another run was quicker with its number.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    told = {"form": FORM, **asdict(generation), "plan": generation.plan.plain(), "poll": dict(generation.poll)}
    name = _name(generation.number)
    if store.create(name, json.dumps(told, indent=1).encode()):
        return True
    # The answer to our own request may have been lost.
    return bool(json.loads(store.get(name)).get("state") == generation.state)


def in_force(generations: Sequence[Generation], newest: Manifest | None) -> Generation:
    """Return the generation that makes the next epoch.

    Parameters
    ----------
    generations
        All of a checkpoint.
    newest
        The last committed epoch, None if there is none.

    Raises
    ------
    StoreError
        If the generation that has made it is not there.
    """
    made_by, epoch = (0, 0) if newest is None else (newest.generation, newest.epoch)
    if made_by >= len(generations):
        raise StoreError(
            f"generation {made_by} of the checkpoint is not there, and epoch {epoch} was made by it",
            hint=f"Bring {_name(made_by)} back from a copy.",
        )
    later = [each for each in generations[made_by + 1 :] if each.epoch == epoch]
    return later[-1] if later else generations[made_by]


def plans_up_to(generations: Sequence[Generation], last: Generation) -> tuple[tuple[int, BucketPlan], ...]:
    """Return the plans that have led to a generation, the card's first, each with the epoch after which it begins."""
    chain = [last]
    while chain[-1].number:
        chain.append(generations[chain[-1].before])
    return tuple((each.epoch, each.plan) for each in reversed(chain))


def drop_old_states(
    store: Store, known: Sequence[Generation], now: Generation, newest: Manifest | None, *, is_alone: bool
) -> None:
    """Remove the state of generations that no run goes back to.

    Parameters
    ----------
    store, known
        The checkpoint, and all its generations.
    now, newest
        The one that makes the next epoch, and the last committed epoch.
    is_alone
        Whether no earlier run can be about to commit its last epoch.

    Raises
    ------
    OSError
        If the store does not take it.
    """
    if len(known) == 1 and not (store.is_local and store.list(STATES)):
        return
    kept = [now] if is_alone else [now, known[newest.generation if newest else 0]]
    highest = len(known) - 1  # in an object store another run may be writing the state of the next
    folders = {folder for each in kept for folder in each.folders}
    for name in (EMBEDDED, SPARK, STATES):
        for file in store.list(name):
            folder = "/".join(file.name.split("/")[:2]) if name == STATES else name
            if folder not in folders and (store.is_local or _number_of(folder) <= highest):
                store.delete(file.name)
    if isinstance(store, FileStore):
        for path in (store.path / EMBEDDED, store.path / SPARK, *(store.path / STATES).glob("*-*")):
            if str(path.relative_to(store.path)) not in folders:
                shutil.rmtree(path, ignore_errors=True)


def _name(number: int) -> str:
    return f"{_FOLDER}/{number}.json"


def _number_of(folder: str) -> int:
    """Return the number of the generation that a folder is of; one that no run would write to has 0."""
    number = folder.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else 0
