"""What the keeper of a ring has to tell its nodes of the source, as it stands in the folder of the ring."""

from __future__ import annotations

from pathlib import Path

from cumulus_ring.chunks.catalogue import Catalogue, Chunk
from cumulus_ring.chunks.kept_versions import numbers_of_versions, read_version
from cumulus_ring.chunks.versions import SourceVersions


class Told:
    """What the keeper of a ring has to tell nodes, whenever somebody looks."""

    def __init__(self, ring: Path) -> None:
        self._ring = ring

    def _versions(self) -> SourceVersions:
        found = {number: read_version(self._ring, number) for number in numbers_of_versions(self._ring)}
        return SourceVersions({number: each.catalogue for number, each in found.items() if each is not None})

    @property
    def epochs(self) -> tuple[int, ...]:
        return self._versions().epochs

    def catalogue(self, epoch: int | None = None) -> Catalogue:
        return self._versions().catalogue(epoch)

    def chunk(self, number: int) -> Chunk | None:
        return self._versions().chunk(number)

    def chunks(self) -> dict[int, Chunk]:
        return self._versions().chunks()

    def share(self, member: str, members: list[str]) -> list[Chunk]:
        return self._versions().share(member, members)
