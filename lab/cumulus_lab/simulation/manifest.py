"""A manifest of versions in a store that all machines share: conditional commits of several files, and fences.

A file is written first; a switch then lists the next versions of several files together, or is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

WrittenVersion: TypeAlias = tuple[Hashable, int, int]
"""What tells a written version from others of the same number; the number; and the value."""


class SimulatedManifest:
    """Versions of files that are counters: each committed update has added 1 to each of its files."""

    def __init__(self) -> None:
        self.listed: dict[int, tuple[int, int]] = {}
        """File → the number of its committed version, and the value; files that are not here are at 0, 0."""
        self.committed: dict[Hashable, None] = {}
        """Updates, in the order of their commits."""
        self._written: set[tuple[int, WrittenVersion]] = set()
        self._fences: dict[int, int] = {}

    def read(self, epoch: int, files: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return committed versions, and refuse switches of these files by earlier epochs from now on."""
        for file in files:
            self._fences[file] = max(epoch, self._fences.get(file, 0))
        return {file: self.listed.get(file, (0, 0)) for file in files}

    def write(self, file: int, version: WrittenVersion) -> None:
        """Make a version durable."""
        self._written.add((file, version))

    def switch(
        self, epoch: int, updates: Sequence[Hashable], versions: Mapping[int, WrittenVersion]
    ) -> tuple[frozenset[Hashable], dict[int, tuple[int, int]]]:
        """Commit versions, if each is the next one, no update is committed, and no fence is higher than the epoch.

        Returns
        -------
        done
            Those of the updates that are committed now.
        listed
            The committed versions of the files now.

        Examples
        --------
        >>> manifest = SimulatedManifest()
        >>> manifest.write(7, ("a", 1, 1))
        >>> manifest.switch(1, ["u"], {7: ("a", 1, 1)})
        (frozenset({'u'}), {7: (1, 1)})
        >>> manifest.write(7, ("b", 1, 1))
        >>> manifest.switch(1, ["v"], {7: ("b", 1, 1)})
        (frozenset(), {7: (1, 1)})
        """
        for file, version in versions.items():
            assert (file, version) in self._written, f"version {version} of {file} is committed before it is written"
        is_free = not any(update in self.committed for update in updates)
        is_next = all(self.listed.get(file, (0, 0))[0] + 1 == version[1] for file, version in versions.items())
        if is_free and is_next and all(self._fences.get(file, 0) <= epoch for file in versions):
            self.listed |= {file: version[1:] for file, version in versions.items()}
            self.committed |= dict.fromkeys(updates)
        done = frozenset(update for update in updates if update in self.committed)
        return done, {file: self.listed.get(file, (0, 0)) for file in versions}
