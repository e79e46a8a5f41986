"""Which rows of a view a changed entry of a map touches."""

from __future__ import annotations

from typing import TypeAlias

from cumulus.algebra.terms import Const, Var
from cumulus.m3.program import MapDef, Program, ViewDef
from cumulus.m3.view_reads import EntryRead, reads_of
from cumulus.views.entries import Key

_Pattern: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, object], ...]]
"""For each key of the view the positions that have its value, and positions with constants."""


class AffectedRows:
    """Tells which rows of a view may change with an entry of a map."""

    def __init__(self, program: Program, view: ViewDef) -> None:
        own = program.map(view.maps[0])
        self.maps = view.reads
        """Every map on which the view depends."""
        self._own = frozenset(view.maps)
        self._patterns: dict[str, list[_Pattern | None]] = {}
        for read in reads_of(program, view):
            self._patterns.setdefault(read.map.name, []).append(_pattern(read, own))

    @property
    def is_own(self) -> bool:
        """Whether each row is made of the entries at its key in the maps of the view, and of nothing else."""
        return not self._patterns and self._own.issuperset(self.maps)

    def keys(self, map: str, key: Key) -> tuple[Key, ...] | None:
        """Return the keys of the view whose rows an entry of `map` at `key` may change; None says that all may.

        Examples
        --------
        >>> from cumulus.m3 import parse
        >>> text = "MAP v[g](n); MAP w[g, x](n); MAP q[](n); VIEW v(g, x) FROM v SELECT g, MAX w[g, *] WHERE n > q[];"
        >>> touched = AffectedRows(parse(text), parse(text).views[0])
        >>> touched.keys("v", (1,)), touched.keys("w", (7, 2)), touched.keys("q", ())
        (((1,),), ((7,),), None)
        """
        found: dict[Key, None] = {key: None} if map in self._own else {}
        for pattern in self._patterns.get(map, ()):
            if pattern is None:
                return None
            places, constants = pattern
            if all(_same(key[at], value) for at, value in constants) and all(
                _same(key[at], key[same[0]]) for same in places for at in same[1:]
            ):
                found[tuple(key[same[0]] for same in places)] = None
        return tuple(found)


def _same(left: object, right: object) -> bool:
    return left is right or left == right  # the one NaN of keys is itself


def _pattern(read: EntryRead, own: MapDef) -> _Pattern | None:
    """Return where a read has the keys of the view; None if it lacks one: its entries do not say for which row."""
    places = tuple(
        tuple(
            at
            for at, key in enumerate(read.keys)
            # A key of another type is no key to look up by: it would show as a value of that type.
            if isinstance(key, Var) and key.name == column.name and read.map.keys[at].type == column.type
        )
        for column in own.keys
    )
    if not all(places):
        return None
    constants = tuple(
        (at, key.value) for at, key in enumerate(read.keys) if isinstance(key, Const) and key.value == key.value
    )
    return places, constants
