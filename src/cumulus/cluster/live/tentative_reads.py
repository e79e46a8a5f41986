"""Tentative rows of spread views, made from entries that the nodes have at the moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cumulus.cluster.live.remote_maps import RemoteMaps
from cumulus.cluster.messages import EntriesRead, ReadEntries
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.versions import unpack
from cumulus.errors import UsageError
from cumulus.hosts.answers import Answer
from cumulus.hosts.selecting import rows_with
from cumulus.m3.view_reads import key_columns
from cumulus.machine import Name
from cumulus.scalars.user import Functions, given_functions
from cumulus.views.consistency import Consistency
from cumulus.views.finishing import Finisher
from cumulus.views.reader import MapViewReader


def tentative_rows(
    plan: ClusterPlan,
    ask: Callable[[Name, Callable[[int], ReadEntries]], list[EntriesRead]],
    name: str,
    values: Mapping[str, Any],
    functions: Functions,
) -> TentativeAnswer:
    """Return the rows of a spread view that have some values in some columns.

    Parameters
    ----------
    ask
        Asks a machine; gives what it answers.
    functions
        The user's that the view calls.
    """
    spread = plan.division.spread
    view = spread.view(name)
    keys = key_columns(view, spread.map(view.maps[0]).keys)
    is_sliced = view.limit is None and not view.offset and set(view.reads) == set(view.maps)
    places = {keys[column]: value for column, value in values.items() if column in keys and is_sliced}
    remote = RemoteMaps(plan, ask, dict.fromkeys(view.maps, places))
    reader = MapViewReader(Finisher(spread, view, given_functions(functions)), remote)
    one = reader.rows_at(values) if values else None
    rows = rows_with(reader.arrow(), values) if one is None else one
    return TentativeAnswer(rows, None, Consistency.TENTATIVE, name, remote.versions)


@dataclass(frozen=True, repr=False)
class TentativeAnswer(Answer):
    """Rows as new as the nodes have them; later corrections may change them.

    Attributes
    ----------
    through
        The switch through which they were read: they have at least all that it had sent. "": nodes were asked directly.
    """

    through: Name = ""

    def _notes(self) -> list[str]:
        seen = ", ".join(f"{name} in epoch {unpack(version)[0]}" for name, version in sorted(self.versions.items()))
        way = f", read through {self.through}" if self.through else ""
        return [f"tentative, up to {seen or 'what was committed'}{way}"]


def reads_tentative(view: str, read: str, spread_views: Collection[str], *, asks_age: bool) -> bool:
    """Return whether tentative rows of a view are read.

    Parameters
    ----------
    read
        What is asked for; of views that are not spread the committed rows are read in any case.
    asks_age
        Whether it is asked how old they may be.

    Raises
    ------
    UsageError
        If there is no such read, or tentative rows are asked for that.
    """
    if read not in list(Consistency):
        raise UsageError(f"unknown read {read!r}", hint='Read "tentative" or "committed".')
    is_tentative = read == Consistency.TENTATIVE and view in spread_views
    if is_tentative and asks_age:
        raise UsageError(
            "tentative rows do not say how old they are",
            hint='Leave out after= and max_staleness=, or read="committed".',
        )
    return is_tentative
