"""What every process of a cluster must know: the card of its home folder.

It is written when the cluster starts; each process reads it and makes its machine from it, so a process that is started
again is the same as before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cumulus.durable.files import write_durably
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import FolderSource
from cumulus.errors import MismatchError, StoreError

CARD = "cluster.json"


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """The settings of a cluster.

    Parameters
    ----------
    out, home
        The output folder, and the folder with the state of all machines.
    checkpoint, program
        The identity of the state and the hash of its program (`cumulus.epochs.output.identity`).
    nodes, switches
        How many.
    plan
        The buckets of the gates.
    gates
        For each bucket the number of its node.
    tables
        Table → the number of its switch.
    sources
        Where the rows of tables come from.
    files_per_epoch
        Of one table, at most; 0 for all there are.
    engine
        As in `cumulus.engine.engines.make_engine`.
    functions
        Modules and files with the user's functions.
    """

    out: str
    home: str
    checkpoint: str
    program: str
    nodes: int
    switches: int
    plan: BucketPlan
    gates: tuple[int, ...]
    tables: Mapping[str, int]
    sources: tuple[FolderSource, ...]
    files_per_epoch: int = 1
    late_epochs: int = 10
    keep: int = 100
    snapshot_every: int = 1
    engine: str = "auto"
    functions: tuple[str, ...] = ()

    def folder(self, machine: str) -> Path:
        """Return the folder with the state of a machine."""
        return Path(self.home) / machine

    def write(self) -> None:
        """Put the card into its home.

        Raises
        ------
        MismatchError
            If the state there is of another number of machines.
        """
        before = read_card(self.home)
        if before is not None and (before.nodes, before.switches) != (self.nodes, self.switches):
            raise MismatchError(
                f"{self.home}: this cluster began with {before.nodes} nodes and {before.switches} switches, "
                f"not {self.nodes} and {self.switches}",
                hint=f"Give --nodes {before.nodes} --switches {before.switches}, or start with new folders.",
            )
        write_durably(Path(self.home) / CARD, json.dumps(asdict(self), indent=1).encode())


def read_card(home: str | Path) -> ClusterCard | None:
    """Return the card of a home folder; None if it has none.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    path = Path(home) / CARD
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        plan = BucketPlan(**found.pop("plan"))
        sources = tuple(FolderSource(**{**each, "key": tuple(each["key"])}) for each in found.pop("sources"))
        gates, functions = tuple(found.pop("gates")), tuple(found.pop("functions"))
        return ClusterCard(**found, plan=plan, gates=gates, sources=sources, functions=functions)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}", hint="Start with new folders.") from None
