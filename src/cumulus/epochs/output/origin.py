"""Where an output folder comes from: the script and the sources of its run, so that it can be rechecked.

``OUT/origin.json``, written by `cumulus run` and `cumulus cluster start` whenever they start.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from cumulus.durable.store import Place, absolute, store_of
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.plan import BucketPlan, columns_of_plain
from cumulus.errors import StoreError
from cumulus.explain.layout.co_partitioning import Partitioned

CARD = "origin.json"


@dataclass(frozen=True, slots=True)
class Origin:
    """What made an output folder.

    Parameters
    ----------
    name, script
        The file of tables and views, and its text: SQL, or M3 if the name ends in ``.m3``.
    sources
        The `--from` texts, with absolute paths.
    buckets, partitioned
        The layout of the run.
    files_per_epoch
        Of one table, at most; 0 for all there were.
    late_epochs
        How many epochs a row might wait for its parent.
    has_clients
        Whether rows may have come from elsewhere, too: then it cannot be rechecked.
    """

    name: str
    script: str
    sources: tuple[str, ...]
    buckets: int = 1
    partitioned: Partitioned = field(default_factory=dict)
    files_per_epoch: int = 1
    late_epochs: int = LATE_EPOCHS
    has_clients: bool = False
    by_key: tuple[str, ...] = ()

    @property
    def plan(self) -> BucketPlan:
        """The buckets of the run."""
        return BucketPlan(self.buckets, self.partitioned, by_key=self.by_key)


def with_absolute_path(text: str) -> str:
    """Return a `--from` text with an absolute path.

    Examples
    --------
    >>> with_absolute_path("orders=/data/orders,op=kind")
    'orders=/data/orders,op=kind'
    """
    head, comma, options = text.partition(",")
    name, equals, path = head.rpartition("=")
    return f"{name}{equals}{absolute(path)}{comma}{options}"


def write_origin(out: Place, origin: Origin) -> None:
    """Note where the output `out` comes from."""
    content = asdict(origin)
    store_of(out).put(CARD, json.dumps(content, indent=1).encode())


def read_origin(out: Place) -> Origin | None:
    """Return where an output comes from; None if nobody has noted it.

    Raises
    ------
    StoreError
        If the note cannot be read.
    """
    store = store_of(out)
    try:
        if store.size(CARD) is None:
            return None
        found: dict[str, Any] = json.loads(store.get(CARD))
        found["partitioned"] = columns_of_plain(found.get("partitioned", {}))
        return Origin(**{**found, "sources": tuple(found["sources"]), "by_key": tuple(found.get("by_key", ()))})
    except (OSError, ValueError, TypeError, KeyError) as problem:
        place = store.place(CARD)
        raise StoreError(f"{place} cannot be read: {problem}", hint="Give the script and --from instead.") from None
