"""Entries of maps on a node as they were after a version."""

from __future__ import annotations

from cumulus.algebra.float_sums import read_stored
from cumulus.algebra.terms import add, multiply
from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.versions import LAST_VERSION
from cumulus.engine.frames.entries import entries_of
from cumulus.engine.frames.frame import MapFrame


def deltas_between(maps: NodeMaps, name: str, first: int, last: int) -> MapFrame:
    """Return the deltas of a map that are not cut, from one version to another."""
    found = maps.overlay(name)
    versions = found.numbers(len(maps.made.program.map(name).keys))
    return found.filter((versions >= first) & (versions <= last))


def entries_at(maps: NodeMaps, name: str, end: int) -> dict:
    """Return the entries of a map that exist after a version; nothing may be cut beyond it."""
    definition = maps.made.program.map(name)
    found = {key: read_stored(definition.values, stored) for key, stored in entries_of(maps.newest(name))}
    later = deltas_between(maps, name, end + 1, LAST_VERSION).without_key(len(definition.keys))
    for key, stored in entries_of(later):
        then = read_stored(definition.values, stored)
        now = found.get(key, (0,) * len(then))
        found[key] = tuple(add(one, multiply(-1, other)) for one, other in zip(now, then, strict=True))
    count = definition.column_index(definition.count) if definition.count else None
    return {key: each for key, each in found.items() if (any(each) if count is None else each[count])}
