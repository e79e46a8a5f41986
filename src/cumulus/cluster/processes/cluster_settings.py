"""Settings of a cluster, in a JSON file of its home folder.

The file is written when the cluster starts. Each process reads it and builds its machine from it, so a restarted
process is the same as before.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cumulus.cluster.clients.credit import MOST_BYTES
from cumulus.cluster.machine_log import LEAST_LOG_BYTES
from cumulus.cluster.messages import switch_name
from cumulus.cluster.planning.central_options import CentralOptions, central_options
from cumulus.cluster.planning.epoch_endings import DEFAULT_ENDINGS, EpochEndings, epoch_endings
from cumulus.cluster.publisher import PUBLISHER
from cumulus.durable.files import read_number, write_durably
from cumulus.epochs.folder_source import FolderSource
from cumulus.errors import MismatchError, StoreError
from cumulus.machine import Name

SETTINGS_FILE, INCARNATION_FILE, LAYOUT = "cluster.json", "incarnation", "layout"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of a cluster.

    Parameters
    ----------
    out, home
        The output folder, and the folder with the state of all machines.
    checkpoint, program
        The identity of the state and the hash of its program (`cumulus.epochs.output.identity`).
    nodes, switches
        How many.
    mode
        What is spread, or whether all is gated.
    homes
        Of the spread program's statements: trigger, statement, column; they decide where everything lies.
    sources
        Where the rows of tables come from.
    order
        Of versions (`cumulus.cluster.versions`).
    block_rows
        Of one block, at most.
    files_per_epoch
        Of one table, at most; 0 for all there are.
    snapshot_bytes
        A machine's log that is larger, and larger than its last snapshot, is replaced by a new one.
    open_bytes
        With so much from clients in epochs that are not committed, a switch lets more wait for a commit.
    engine
        As in `cumulus.engine.engines.make_engine`.
    functions
        Modules and files with the user's functions.
    cuts
        How maps are cut into regions, as the user has written it.
    splits
        Tables that all switches share (`cumulus.cluster.planning.table_assignment`), as the user has written it.
    options
        What the mode does otherwise, as the user has written it: of this life, as they change no state.
    dispatch, arity, gc
        How blocks reach nodes, and when deltas are folded (`cumulus.cluster.planning.central_options`).
    commit, transitions
        How epochs end (`cumulus.cluster.planning.epoch_endings`): of this life, too.
    layout
        How often what the nodes have was dealt out anew.
    read_at
        Table whose files are read on another host than that of the home → that host, as host:port.
    slots
        The node of each slot of keys, by `cumulus.cluster.placement.slots.SlotTable.runs`; empty: by hash alone.
    """

    out: str
    home: str
    checkpoint: str
    program: str
    nodes: int
    switches: int
    mode: str
    homes: tuple[tuple[int, int, str | None], ...]
    sources: tuple[FolderSource, ...]
    order: str = "clock"
    block_rows: int = 10_000
    files_per_epoch: int = 1
    late_epochs: int = 10
    keep: int = 100
    snapshot_every: int = 1
    snapshot_bytes: int = LEAST_LOG_BYTES
    open_bytes: int = MOST_BYTES
    engine: str = "auto"
    functions: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    dispatch: str = ""
    arity: int | None = None
    gc: str = ""
    commit: str = DEFAULT_ENDINGS.commit.value
    transitions: str = DEFAULT_ENDINGS.transitions.value
    layout: int = 0
    slots: tuple[tuple[int, int], ...] = ()
    read_at: tuple[tuple[str, str], ...] = ()

    @property
    def switch_names(self) -> tuple[Name, ...]:
        """The switches, in the order of their numbers."""
        return tuple(map(switch_name, range(self.switches)))

    @property
    def central(self) -> CentralOptions:
        """What target aggregation in the order of one switch does otherwise."""
        return central_options(self.dispatch, self.arity, self.gc)

    @property
    def endings(self) -> EpochEndings:
        """How epochs end."""
        return epoch_endings(self.commit, self.transitions)

    @property
    def sources_elsewhere(self) -> tuple[FolderSource, ...]:
        """Those of the sources that are read on other hosts than that of the home."""
        return tuple(source for source in self.sources if source.relation in dict(self.read_at))

    @property
    def agreed(self) -> bytes:
        """What all machines and clients must agree on: the program, and where its maps lie."""
        return (self.program + (f"+{self.layout}" if self.layout else "")).encode()

    @property
    def shape(self) -> tuple[int, int, str, tuple[str, ...], tuple[str, ...]]:
        """What cannot change as long as there is state."""
        return self.nodes, self.switches, self.mode, self.cuts, self.splits

    @property
    def shape_text(self) -> str:
        """The same as options."""
        cuts = "".join(f" --cut {each}" for each in self.cuts)
        splits = "".join(f" --split {each}" for each in self.splits)
        return f"--nodes {self.nodes} --switches {self.switches} --mode {self.mode}{cuts}{splits}"

    @property
    def root(self) -> Path:
        """The folder with the state of the machines of this layout, but the publisher's."""
        return Path(self.home, f"{LAYOUT}{self.layout}") if self.layout else Path(self.home)

    def folder(self, machine: str) -> Path:
        """Return the folder with the state of a machine."""
        return (Path(self.home) if machine == PUBLISHER else self.root) / machine

    def write(self, before: ClusterSettings | None) -> None:
        """Write the settings into their home folder; an older file is replaced.

        Raises
        ------
        MismatchError
            If the state there is of another number of machines.
        """
        if before is not None and before.shape != self.shape:
            began = before.shape_text
            raise MismatchError(
                f"{self.home}: this cluster began with {began}, and now it is {self.shape_text}",
                hint=f"Give {began}, or start with new folders.",
            )
        write_durably(Path(self.home) / SETTINGS_FILE, json.dumps(self.plain(), indent=1).encode())

    def plain(self) -> dict[str, Any]:
        """Return the settings as JSON has them."""
        return {**asdict(self), "sources": [source.plain() for source in self.sources]}


def read_settings(home: str | Path) -> ClusterSettings | None:
    """Return the settings of a home folder; None if it has no file with them.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    path = Path(home) / SETTINGS_FILE
    try:
        return settings_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}", hint="Start with new folders.") from None


def settings_of(found: dict[str, Any]) -> ClusterSettings:
    """Return the settings that `ClusterSettings.plain` has given; ValueError, TypeError, KeyError if they are none."""
    found = dict(found)
    homes = tuple((trigger, statement, column) for trigger, statement, column in found.pop("homes"))
    sources = tuple(FolderSource(**{**each, "key": tuple(each["key"])}) for each in found.pop("sources"))
    lists = {name: tuple(found.get(name, ())) for name in ("functions", "cuts", "splits", "options")}
    slots = tuple((first, node) for first, node in found.pop("slots", ()))
    read_at = tuple((table, host) for table, host in found.pop("read_at", ()))
    return ClusterSettings(**{**found, **lists}, homes=homes, sources=sources, slots=slots, read_at=read_at)


def incarnation_of(home: str | Path) -> int:
    """Return the number of the last incarnation that has begun; 0 if none has.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    return read_number(Path(home) / INCARNATION_FILE, "Write a larger number than all before.")
