"""The drawing of a program: every table, map and view is in it once, with its numbers and its shade."""

import re
from xml.etree import ElementTree

import pytest

from cumulus.explain.program_drawing import MapNumbers, heats, to_svg
from cumulus.m3 import parse
from cumulus.m3.dataflow import picture_edges, picture_nodes

pytest.importorskip("graphlay", reason="drawing needs the extra `server`")

PROGRAM = parse(
    """
    RELATION R(a INT, b INT);
    RELATION S(b INT);
    MAP M1[](total HUGEINT);
    MAP M2[a INT](n HUGEINT);
    MAP M3[b INT](n BIGINT);
    MAP M4[b INT](n HUGEINT);
    VIEW "total <&>"(total HUGEINT) FROM M1 SELECT total;
    ON +R(a, b) { M1[] += M2[a] * M4[b]; M2[a] += M4[b]; M4[b] += a }
    ON -R(a, b) { M1[] += -M2[a] * M4[b]; M2[a] += -M4[b]; M4[b] += -a }
    ON +S(b)    { M3[b] += 1 }
    """
)
SVG = "{http://www.w3.org/2000/svg}"


def _groups(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return the drawn nodes: name → its classes, its texts."""
    nodes = ElementTree.fromstring(text).iter(f"{SVG}g")
    return {
        node.get("data-name"): (node.get("class"), [each.text for each in node.iter(f"{SVG}text")]) for node in nodes
    }


def test_every_node_and_edge_is_drawn_once():
    text = to_svg(PROGRAM)
    assert _groups(text) == {
        "R": ("node relation", ["R"]),
        "S": ("node relation", ["S"]),
        "M1": ("node map heat-0", ["M1[]"]),
        "M2": ("node map heat-0", ["M2[a]"]),
        "M3": ("node map heat-0", ["M3[b]"]),
        "M4": ("node map heat-0", ["M4[b]"]),
        "total <&>": ("node view", ["total <&>"]),
    }
    told = re.findall('<path class="edge[^>]*><title>([^<]*)', text)
    assert sorted(told) == [
        "M1 → total &lt;&amp;&gt;",
        "M2 → M1, on ±R",
        "M4 → M1, on ±R",
        "M4 → M2, on ±R",
        "R → M4, on ±R",
        "S → M3, on +S",
    ]
    assert len(told) == len(picture_edges(PROGRAM))
    assert len(_groups(text)) == len(picture_nodes(PROGRAM))


def test_numbers_are_written_into_maps_and_colour_them():
    numbers = {"M1": MapNumbers(1), "M2": MapNumbers(1_000_000, 3 << 20), "M3": MapNumbers(0)}
    drawn = _groups(to_svg(PROGRAM, numbers))
    assert drawn["M1"] == ("node map heat-1", ["M1[]", "1 entry"])
    assert drawn["M2"] == ("node map heat-5", ["M2[a]", "1,000,000 entries · 3,072 kB"])
    assert drawn["M3"] == ("node map heat-0", ["M3[b]", "0 entries"])
    assert drawn["M4"] == ("node map heat-0", ["M4[b]"])


def test_the_same_program_is_drawn_the_same():
    assert to_svg(PROGRAM) == to_svg(PROGRAM)


def test_shades_have_all_room_between_nothing_and_the_most():
    assert heats({}) == {}
    assert heats({"a": 0, "b": 0}) == {"a": 0, "b": 0}
    assert heats({"a": 1, "b": 10**9}) == {"a": 1, "b": 5}
