"""Where an output folder comes from: the script and the sources of its run, so that it can be rechecked.

``OUT/origin.json``, written by `cumulus run` and `cumulus cluster start` whenever they start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cumulus.durable.store import Place, absolute, store_of
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.plan import BucketPlan, columns_of_plain
from cumulus.epochs.view_source import PREFIXES as VIEW_PREFIXES
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
        The layout of the run, at first.
    files_per_epoch
        Of one table, at most; 0 for all there were.
    late_epochs
        How many epochs a row might wait for its parent.
    has_clients
        Whether rows may have come from elsewhere, too: then it cannot be rechecked.
    later
        The layouts that have taken its place: each with the epoch after which it did, its buckets and tables.
    unchecked
        The references that the run did not check, as `cumulus.epochs.layouts.reference_text` has them.
    has_other_checks
        Whether it checked others before: then it cannot be rechecked.
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
    later: tuple[Mapping[str, Any], ...] = ()
    unchecked: tuple[str, ...] = ()
    has_other_checks: bool = False

    @property
    def plan(self) -> BucketPlan:
        """The buckets of the run, at first."""
        return BucketPlan(self.buckets, self.partitioned, by_key=self.by_key)

    @property
    def later_plans(self) -> list[tuple[int, BucketPlan]]:
        """The plans that have taken the place of the first one, each with the epoch after which it did."""
        return [(each["epoch"], BucketPlan.of_plain({"why": "", **each})) for each in self.later]


def later_layouts(plans: Iterable[tuple[int, BucketPlan]]) -> tuple[Mapping[str, Any], ...]:
    """Return `Origin.later` of some plans, each with the epoch after which it holds."""
    return tuple(
        {"epoch": epoch, "buckets": plan.buckets, "partitioned": plan.partitioned, "by_key": plan.by_key}
        for epoch, plan in plans
    )


def with_absolute_path(text: str) -> str:
    """Return a `--from` text with an absolute path.

    Examples
    --------
    >>> with_absolute_path("orders=/data/orders,op=kind")
    'orders=/data/orders,op=kind'
    """
    head, comma, options = text.partition(",")
    name, equals, path = head.rpartition("=")
    prefix = next((each for each in VIEW_PREFIXES if path.startswith(each)), "")
    return f"{name}{equals}{prefix}{absolute(path.removeprefix(prefix))}{comma}{options}"


def write_origin(out: Place, origin: Origin) -> None:
    """Note where the output `out` comes from."""
    content = asdict(origin)
    for name in ("later", "unchecked", "has_other_checks"):
        if not content[name]:
            del content[name]  # earlier releases, which do not know it, read the others
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
        tuples = {name: tuple(found.get(name, ())) for name in ("sources", "by_key", "later", "unchecked")}
        return Origin(**{**found, **tuples})
    except (OSError, ValueError, TypeError, KeyError) as problem:
        place = store.place(CARD)
        raise StoreError(f"{place} cannot be read: {problem}", hint="Give the script and --from instead.") from None
