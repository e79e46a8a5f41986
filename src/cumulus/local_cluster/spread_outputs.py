"""Files of spread views: rows that a node has finished, shares that the publisher puts together."""

from __future__ import annotations

import decimal
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cumulus.catalog.types import EXACT
from cumulus.cluster.layout import FinishedBy
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.spread_part import Shares
from cumulus.durable.files import write_bytes, write_parquet
from cumulus.errors import EvaluationError
from cumulus.m3.program import Entry
from cumulus.views import finish


def write_shares(
    plan: ClusterPlan, shares: Shares, node: int, epoch: int, out: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Write what a node has of views; return view → file, and view → why its rows could not be computed.

    Raises
    ------
    OSError
        If they cannot be written.
    """
    files, errors, attempt = {}, {}, os.urandom(4).hex()
    spread = plan.division.spread
    for name, entries in shares.items():
        stem = Path("data") / name / f"{epoch}-{node}-{attempt}"
        if plan.layout.placement_of_view(name).by is FinishedBy.MERGE:
            write_bytes(out / f"{stem}.share", pickle.dumps(dict(entries), protocol=5))
            files[name] = f"{stem}.share"
            continue
        try:
            with decimal.localcontext(EXACT):
                table = finish(spread, spread.view(name), entries.__getitem__)
        except EvaluationError as problem:
            errors[name] = problem.message
            continue
        write_parquet(out / f"{stem}.parquet", table)
        files[name] = f"{stem}.parquet"
    return files, errors


def share_mergers(plan: ClusterPlan, out: Path) -> dict[str, Callable[[int, list[str]], str]]:
    """Return view → function from an epoch and the nodes' share files to a finished file, for views that need it."""
    spread = plan.division.spread

    def merger(name: str) -> Callable[[int, list[str]], str]:
        def merge(epoch: int, files: list[str]) -> str:
            entries: dict[str, list[Entry]] = {each: [] for each in spread.view(name).reads}
            for file in files:
                share: Mapping[str, Sequence[Entry]] = pickle.loads(Path(file).read_bytes())
                for each, found in share.items():
                    entries[each] += found
            with decimal.localcontext(EXACT):
                table = finish(spread, spread.view(name), entries.__getitem__)
            path = Path("data") / name / f"{epoch}-all-{os.urandom(4).hex()}.parquet"
            write_parquet(out / path, table)
            return str(path)

        return merge

    views = (view.name for view in spread.views)
    return {name: merger(name) for name in views if plan.layout.placement_of_view(name).by is FinishedBy.MERGE}
