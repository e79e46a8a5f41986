"""What of a program belongs to some of its views: the maps that they need, and the statements that keep these.

A layout is legal for a program exactly if it is so for the part of each view: where a map lies follows from the
statements that write it and the maps that they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cumulus.m3.dataflow import reachable, reads
from cumulus.m3.program import Program

OTHER = ""
"""Stands for the maps that no view needs, such as those of kept rows."""


def part_of_views(program: Program, views: Iterable[str]) -> Program:
    """Return what of a program keeps some views, levels of their cubes included; of other relations nothing is kept.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "VIEW v(n) FROM q SELECT v; VIEW w(n) FROM p SELECT v; ON +r(a) { q[] += m[a]; m[a] += 1; p[] += 1 }"
    >>> [each.name for each in part_of_views(parse(text), ["v"]).maps]
    ['q', 'm']
    """
    names = {*views}
    names |= {level.view for cube in program.cubes if cube.name in names for level in cube.levels}
    shown = tuple(view for view in program.views if view.name in names)
    needed = reachable(reads(program), [name for view in shown for name in view.reads])
    cubes = tuple(cube for cube in program.cubes if cube.name in names)
    return replace(_part_with(program, needed), views=shown, cubes=cubes)


def parts(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield each shown view with its part of a program, and `OTHER` with what is in none of them."""
    covered: set[str] = set()
    for view in program.shown_views:
        part = part_of_views(program, [view.name])
        covered.update(each.name for each in part.maps)
        yield view.name, part
    graph = reads(program)
    rest = reachable(graph, [each.name for each in program.maps if each.name not in covered])
    if rest:
        yield OTHER, replace(_part_with(program, rest), kept=program.kept)


def _part_with(program: Program, maps: set[str]) -> Program:
    """Return a program with some maps and the statements that write them, without views."""
    triggers = (
        replace(trigger, statements=tuple(each for each in trigger.statements if each.map in maps))
        for trigger in program.triggers
    )
    return replace(
        program,
        maps=tuple(each for each in program.maps if each.name in maps),
        views=(),
        triggers=tuple(trigger for trigger in triggers if trigger.statements),
        kept=(),
        cubes=(),
    )
