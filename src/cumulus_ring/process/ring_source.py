"""The source of a ring, as its keeper follows it: which versions there are, and what nodes know and have adopted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from cumulus.errors import CumulusError, InputError
from cumulus.machine import Name
from cumulus.transport.supervisor import Supervisor
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.version_retention import VersionRetention
from cumulus_ring.process.settings import RingOptions
from cumulus_ring.process.told_versions import said_versions


class RingSource:
    """What a ring's tables are read from.

    Parameters
    ----------
    versions
        Reads it, and keeps its files.
    note
        Takes a line to tell when something has happened.
    """

    def __init__(self, options: RingOptions, versions: VersionRetention, note: Callable[[str], None]) -> None:
        self._options, self._versions, self._note = options, versions, note
        self._adopting: dict[int, set[Name]] = {}
        """Epoch whose files are needed → who has not adopted its share."""
        self._told: dict[int, Catalogue] = {}
        """What all nodes have been told."""
        self._trouble = ""
        """What was said last of a source that cannot be read."""

    def begin(self, members: Sequence[Name]) -> None:
        """Read the source for the first time; what nodes have adopted before needs none.

        Raises
        ------
        InputError
            If it cannot be read.
        """
        versions = self._versions
        try:
            versions.refresh()
        except InputError as problem:
            if not (self._options.adopt and versions.epochs):
                raise
            self._note(f"{problem.message}; the nodes have adopted epoch {versions.epochs[-1]}")
        if versions.unlinked:
            self._note(versions.unlinked)
        self._told = dict(versions.catalogues)
        self._adopting[versions.epochs[-1]] = set(members)

    def said(self) -> dict[str, Any]:
        """Return for JSON what a node is told at its start."""
        return said_versions(self._told, {})

    def refresh(self, nodes: Supervisor, members: Sequence[Name]) -> None:
        """Look whether there is another epoch, and tell the nodes."""
        versions = self._versions
        before, trouble = versions.epochs, ""
        try:
            versions.refresh()
        except CumulusError as problem:
            trouble = problem.message
        if trouble and trouble != self._trouble:
            self._note(f"the epochs that are there stay: {trouble}")
        self._trouble = trouble
        if versions.epochs != before:
            self._adopting = {epoch: names for epoch, names in self._adopting.items() if epoch in versions.epochs}
            self._adopting[versions.epochs[-1]] = set(members)
            self._note(f"epoch {versions.epochs[-1]} of the tables")
            self._tell(nodes)

    def members_changed(self, members: Sequence[Name]) -> None:
        """Expect that all members adopt what is their share by now."""
        last = self._versions.epochs[-1]
        if last in self._adopting:
            self._adopting[last] = set(members)

    def adopted(self, nodes: Supervisor, name: Name, epoch: int, count: int) -> None:
        """Take notice that a node has adopted its share among the members; when all have, the epoch's files may go."""
        waited_for = self._adopting.get(epoch, set())
        if name not in waited_for:
            return
        waited_for.discard(name)
        self._note(f"{name} has adopted its {count} chunks of epoch {epoch}")
        if waited_for:
            return
        del self._adopting[epoch]
        self._versions.let_go(epoch)
        self._note(f"epoch {epoch} needs its files no more")
        self._tell(nodes)

    def _tell(self, nodes: Supervisor) -> None:
        held = dict(self._versions.catalogues)
        said = json.dumps({"versions": said_versions(held, self._told)}).encode()
        self._told = held
        for name in nodes.pids():  # those that join, too: they were told before
            nodes.send(name, said)
