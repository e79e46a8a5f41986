"""What a checkpoint folder belongs to: one program, one layout, one host, one output."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from cumulus.catalog.dialect import FOLLOWED, UNRECORDED, warn_if_changed
from cumulus.durable.folders import lock_file
from cumulus.durable.store import FileStore, Place, Store, store_of
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import CumulusError, LockedError, MismatchError, StoreError
from cumulus.m3 import parse
from cumulus.m3.program import Program

STATE_FORMS = {"embedded": 1, "spark": 2, "cluster": 1}
"""Host → the number of the form in which it keeps its state. On Spark the first one had a state variable for each kind
of entry, and ran on pandas.
"""
_GO_ON = frozenset({"embedded", "spark"})
"""The hosts that go on with each other's checkpoints."""
_CARD = "cumulus.json"
_COMMITTED = "committed.json"


def program_hash(program: Program) -> str:
    """Return a short hash of the text of `program`."""
    return _text_hash(str(program))


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Identity:
    """The card of a checkpoint.

    Parameters
    ----------
    checkpoint, program
        The name of the checkpoint, and the hash of its program.
    plan
        The plan of the buckets.
    fresh
        Whether there was no card: the run starts from nothing.
    keys
        By which the host's state knows the buckets; none if the card has none.
    host
        Who has begun it.
    later
        The plans that have taken the place of the card's, each with the epoch after which it did; `plan` is the last.
    """

    checkpoint: str
    program: str
    plan: BucketPlan
    fresh: bool
    keys: tuple[int, ...] = ()
    host: str = ""
    later: tuple[tuple[int, BucketPlan], ...] = ()


def resumed_program(checkpoint: Place) -> Program | None:
    """Return the program that a checkpoint was made with; None if there is none that can be read."""
    try:
        return program_of(json.loads(store_of(checkpoint).get(_CARD))["text"])
    except (OSError, ValueError, KeyError, CumulusError):
        return None


def note_commit(checkpoint: Store) -> None:
    """Note in a checkpoint that an epoch was committed with it: from now on it needs its output."""
    checkpoint.create(_COMMITTED, b"{}")


class Checkpoint:
    """A checkpoint, made if it is not there; a folder is locked by the run that uses it.

    In an object store nothing is locked: there the output says whose turn it is.
    """

    def __init__(self, place: Place, host: str) -> None:
        self.store = store_of(place)
        self.host = host
        self._lock: IO[bytes] | None = None
        if not isinstance(self.store, FileStore):
            return
        self.path = self.store.path
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(self.path / ".lock")
        except OSError as problem:
            raise StoreError(
                f"{self.path}: the checkpoint cannot be written: {problem.strerror}",
                hint="Give the right to write there, or choose another --out or --checkpoint.",
            ) from None
        if self._lock is None:
            raise LockedError(f"{self.path}: another run is using this checkpoint", hint="Wait for it, or stop it.")

    def close(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def has_commits(self) -> bool:
        """Whether an epoch was committed with it."""
        return self.store.size(_COMMITTED) is not None

    def bind(
        self,
        program: Program,
        choose: Callable[[], BucketPlan],
        make_keys: Callable[[int], tuple[int, ...]] = lambda buckets: (),
    ) -> Identity:
        """Return the identity of the checkpoint, made now if it has none.

        Parameters
        ----------
        choose
            Returns the plan of a new checkpoint.
        make_keys
            Number of buckets → `Identity.keys` of a new checkpoint.

        Raises
        ------
        MismatchError
            As `read_identity`.
        """
        known = read_identity(self.store, program, self.host)
        if known is not None:
            return known
        store, text = self.store, str(program)
        now = _text_hash(text)
        plan = choose()
        keys = make_keys(plan.buckets)
        identity = uuid.uuid4().hex
        content = {
            "checkpoint": identity,
            "host": self.host,
            "state": STATE_FORMS[self.host],
            "program": now,
            "dialect": FOLLOWED,
            "plan": plan.plain(),
            "keys": keys,
            "text": text,
        }
        store.put(_CARD, json.dumps(content, indent=1).encode())
        return Identity(identity, now, plan, True, keys, self.host)


def has_card(checkpoint: Store) -> bool:
    """Whether a checkpoint was begun."""
    return checkpoint.size(_CARD) is not None


def read_identity(store: Store, program: Program, host: str) -> Identity | None:
    """Return the identity of a checkpoint, None if it was not begun; nothing is locked or written.

    Parameters
    ----------
    store, program, host
        The checkpoint, and the program and the host of a run.

    Raises
    ------
    MismatchError
        If the checkpoint was made by another program, by a host with whose state this one cannot go on, or by a release
        that keeps state in another form.
    StoreError
        If it cannot be read.
    """
    text = str(program)
    now = _text_hash(text)
    try:
        known = store.get(_CARD) if has_card(store) else None
    except OSError as problem:
        raise StoreError(
            f"{store}: the checkpoint cannot be read: {problem.strerror}", hint="Mend that, or give another one."
        ) from None
    if known is None:
        return None
    found = json.loads(known)
    if found["host"] != host and not {found["host"], host} <= _GO_ON:
        raise MismatchError(
            f"{store}: this checkpoint was made by --host {found['host']}",
            hint=f"Run with --host {found['host']}, or start with new folders.",
        )
    if found.get("state", 1) != STATE_FORMS.get(found["host"]):
        raise MismatchError(
            f"{store}: another release made this checkpoint, and keeps its state in another form",
            hint="Run that release, or start with a new --out and --checkpoint.",
        )
    if found["program"] != now:
        change = _difference(found["text"], program)
        raise MismatchError(
            f"{store}: the program has changed since this checkpoint was made: {change}",
            hint="State of one program is not that of another: start with a new --out and --checkpoint, "
            "or run the old SQL.",
        )
    warn_if_changed(str(store), found.get("dialect", UNRECORDED), text)
    keys = tuple(found.get("keys", ()))
    return Identity(found["checkpoint"], now, BucketPlan.of_plain(found["plan"]), False, keys, found["host"])


def _difference(old_text: str, new: Program) -> str:
    old = parse(old_text)
    for what, before, after in (
        ("table", old.relations, new.relations),
        ("cube", old.cubes, new.cubes),
        ("view", old.views, new.views),
        ("map", old.maps, new.maps),
    ):
        was = {each.name: each for each in before}
        now = {each.name: each for each in after}
        for name in [*was, *(name for name in now if name not in was)]:
            if name not in now:
                return f"{what} {name} is gone"
            if name not in was:
                return f"{what} {name} is new"
            if was[name] != now[name]:
                return f"{what} {name} is another"
    return "its triggers are others"
