"""The versions of a source on their way from the keeper of a ring to its nodes."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.catalogue_json import catalogue_of, catalogue_said
from cumulus_ring.chunks.versions import SourceVersions
from cumulus_ring.process.settings import NodePlace

_LEVEL = 1
"""Of compression: a catalogue is mostly names that are said again and again."""


def said_versions(held: Mapping[int, Catalogue], known: Mapping[int, Catalogue]) -> dict[str, Any]:
    """Return for JSON what versions there are; a catalogue that a node knows is not said again.

    Parameters
    ----------
    held
        Epoch → its catalogue.
    known
        What the node was told last.
    """
    new = [catalogue_said(each) for epoch, each in held.items() if known.get(epoch) is not each]
    packed = zlib.compress(json.dumps(new).encode(), _LEVEL)
    return {"epochs": list(held), "new": base64.b64encode(packed).decode()}


def take_versions(said: dict[str, Any], versions: SourceVersions, place: NodePlace) -> None:
    """Let a node know what `said_versions` has said."""
    told = json.loads(zlib.decompress(base64.b64decode(said["new"])))
    links = Path(place.links) if place.links else None
    source = Path(place.source) if place.source else Path(place.folder) / "no source"  # which is not there
    new = {found.version: found for each in told for found in [catalogue_of(each, source, links)]}
    held = {**versions.held, **new}
    versions.replace({epoch: held[epoch] for epoch in said["epochs"]})
