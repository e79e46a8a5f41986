"""The map graph of a program as SVG: laid out by graphlay, coloured by numbers of its maps, light and dark.

`cumulus compile --svg` writes it, and the server's page shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import log1p
from typing import Any

from cumulus.errors import MissingError
from cumulus.m3.dataflow import picture_edges, picture_nodes
from cumulus.m3.program import Program

HEATS = 6
"""Shades of a map, from nothing (0) to the most that any map has."""

_CHARACTER, _LINE, _PADDING, _MARGIN = 7.3, 17, 10, 16  # of 12 px monospace
_LONGEST = 40
_SPACING = {"layer_gap": 40.0, "node_gap": 18.0, "dummy_gap": 12.0, "port_gap": 8.0, "port_stroke_clear": 6.0}

STYLE = """
.program { --ink: #1b2530; --paper: #ffffff; --line: #8895a3; --table: #e3ecd9; --view: #dbe7f5;
  --h0: #f4f1ea; --h1: #fbe8c8; --h2: #f9d291; --h3: #f4b357; --h4: #e98a35; --h5: #d65f22;
  font: 12px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--paper); }
@media (prefers-color-scheme: dark) { .program { --ink: #e3e8ee; --paper: #14181d; --line: #64717f;
  --table: #2b3a22; --view: #1f3450; --h0: #24282e; --h1: #3b3122; --h2: #57431f; --h3: #7a571a; --h4: #a2641a;
  --h5: #c4571c; } }
.program text { fill: var(--ink); }
.program .numbers { font-size: 10px; opacity: .8; }
.program .edge { fill: none; stroke: var(--line); stroke-width: 1.2; }
.program .edge.read { stroke-dasharray: 4 3; }
.program marker path { fill: var(--line); }
.program .node > rect { stroke: var(--line); }
.program .relation > rect { fill: var(--table); }
.program .view > rect { fill: var(--view); }
.program .map { cursor: pointer; }
""" + "".join(f".program .heat-{each} > rect {{ fill: var(--h{each}); }}\n" for each in range(HEATS))


@dataclass(frozen=True, slots=True)
class MapNumbers:
    """What a running host says of a map."""

    entries: int
    bytes: int = 0

    def __str__(self) -> str:
        told = [f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'}"]
        told += [f"{self.bytes / 1024:,.0f} kB"] if self.bytes else []
        return " · ".join(told)


def heats(amounts: Mapping[str, float]) -> dict[str, int]:
    """Return for each name its shade: 0 for nothing, `HEATS` - 1 for the most, by the logarithm between.

    Examples
    --------
    >>> heats({"a": 0, "b": 10, "c": 1_000_000})
    {'a': 0, 'b': 1, 'c': 5}
    """
    most = log1p(max(amounts.values(), default=0))
    return {
        name: 0 if amount <= 0 else max(1, round((HEATS - 1) * log1p(amount) / most))
        for name, amount in amounts.items()
    }


def to_svg(program: Program, numbers: Mapping[str, MapNumbers] | None = None) -> str:
    """Return the map graph as an SVG document: tables, maps and views, from left to right.

    Parameters
    ----------
    numbers
        Of maps by name; they are written into the maps, which are coloured by their entries.

    Raises
    ------
    MissingError
        If graphlay is not installed.
    """
    told = numbers or {}
    shades = heats({name: each.entries for name, each in told.items()})
    nodes, edges = picture_nodes(program), picture_edges(program)
    lines = {node: _lines(label, told.get(_name(node))) for node, label in nodes}
    drawn = _laid_out(lines, list(edges))
    low, high = drawn["bounds"]["min"], drawn["bounds"]["max"]
    width, height = high["x"] - low["x"] + 2 * _MARGIN, high["y"] - low["y"] + 2 * _MARGIN
    box = f"{low['x'] - _MARGIN:.0f} {low['y'] - _MARGIN:.0f} {width:.0f} {height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="program" viewBox="{box}" width="{width:.0f}"'
        f' height="{height:.0f}" role="img" aria-label="The maps of the program">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    parts += (_edge(line["points"], ends, edges[ends]) for line, ends in zip(drawn["edges"], edges, strict=True))
    for place, (node, label) in zip(drawn["nodes"], nodes, strict=True):
        parts.append(_node(node, label, lines[node], place, shades.get(_name(node), 0)))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _laid_out(lines: Mapping[str, list[str]], edges: list[tuple[str, str]]) -> dict[str, Any]:
    """Return where graphlay puts nodes of these lines of text, and the ways of their edges."""
    try:
        import graphlay
    except ImportError:
        raise MissingError("drawing a program needs graphlay", hint="pip install 'cumulus-ivm[server]'") from None
    graph = graphlay.Graph()
    for node, texts in lines.items():
        graph.node(
            node,
            width=max(map(len, texts)) * _CHARACTER + 2 * _PADDING,
            height=len(texts) * _LINE + _PADDING,
        )
    for source, target in edges:
        graph.edge(source, target)
    return graphlay.layout(graph, preset="layered", options={"spacing": _SPACING}).raw


def _name(node: str) -> str:
    """Return the name of a map, "" of another node."""
    return node.removeprefix("map ") if node.startswith("map ") else ""


def _lines(label: str, numbers: MapNumbers | None) -> list[str]:
    shown = label.partition(" · ")[0]
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return [shown] if numbers is None else [shown, str(numbers)]


def _edge(points: list[dict[str, float]], ends: tuple[str, str], events: list[str]) -> str:
    way = "L".join(f"{point['x']:.1f} {point['y']:.1f}" for point in points)
    source, target = (escape(end.partition(" ")[2]) for end in ends)
    told = f"{source} → {target}" + (f", on {escape(', '.join(events))}" if events else "")
    style = "edge" if events else "edge read"
    return f'<path class="{style}" d="M{way}" marker-end="url(#arrow)"><title>{told}</title></path>'


def _node(node: str, label: str, texts: list[str], place: dict[str, Any], shade: int) -> str:
    kind, _, name = node.partition(" ")
    (x, y), (width, height) = place["center"].values(), place["size"].values()
    round_by = {"relation": 0, "map": 4, "view": height / 2}[kind]
    focus = f' heat-{shade}" tabindex="0" role="button' if kind == "map" else ""
    top = y - (len(texts) - 1) * _LINE / 2 + 4
    written = "".join(
        f'<text class="{"numbers" if index else "name"}" x="{x:.1f}" y="{top + _LINE * index:.1f}"'
        f' text-anchor="middle">{escape(text)}</text>'
        for index, text in enumerate(texts)
    )
    return (
        f'<g class="node {kind}{focus}" data-name="{escape(name)}"><rect x="{x - width / 2:.1f}"'
        f' y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_by:.0f}"/>'
        f"<title>{escape(label)}</title>{written}</g>"
    )
