"""The map graph: depths, cycles, order, what a view needs, and pictures."""

import json

import pytest

from cumulus.errors import LayoutError
from cumulus.m3 import parse
from cumulus.m3.dataflow import (
    cycles,
    depths,
    maps_of_view,
    reads,
    to_dot,
    to_json,
    to_mermaid,
    topological,
)

# The shape of 000's figure: M1 reads M2 and M4, M2 reads M4, M3 is apart.
PROGRAM = parse(
    """
    RELATION R(a INT, b INT);
    RELATION S(b INT);
    MAP M1[](total HUGEINT);
    VIEW total(total HUGEINT) FROM M1 SELECT total;
    ON +R(a, b) { M1[] += M2[a] * M4[b]; M2[a] += M4[b]; M4[b] += a }
    ON -R(a, b) { M1[] += -M2[a] * M4[b]; M2[a] += -M4[b]; M4[b] += -a }
    ON +S(b)    { M3[b] += 1 }
    ON BATCH R  { M4[b] += SUM[b](R(a, b) * a) }
    """
)
CYCLIC = parse(
    """
    ON +R(a) { x[] += z[a]; y[a] += x[]; z[a] += y[a] * w[a]; w[a] += w[a]; out[a] += z[a] }
    """
)


def test_depth_counts_the_longest_way():
    assert depths(PROGRAM) == {"M4": 0, "M2": 1, "M1": 2, "M3": 0}


def test_depth_counts_assignments_too():
    assert depths(parse("ON +R(a) { m[a] += 1; top[x] := m[x] }")) == {"m": 0, "top": 1}


def test_the_order_puts_sources_first():
    order = topological(PROGRAM)
    for target, sources in reads(PROGRAM).items():
        assert all(order.index(source) < order.index(target) for source in sources)


def test_every_knot_of_maps_is_named_once_in_the_direction_of_the_data():
    assert cycles(CYCLIC) == (("x", "y", "z"), ("w",))
    graph = reads(CYCLIC)
    for ring in cycles(CYCLIC):
        for source, target in zip(ring, (*ring[1:], ring[0]), strict=True):
            assert source in graph[target]
    for question in (depths, topological):
        with pytest.raises(LayoutError, match="x → y → z → x"):
            question(CYCLIC)


def test_a_view_needs_its_map_and_what_that_is_made_from():
    assert maps_of_view(PROGRAM, "total") == ("M1", "M2", "M4")


def test_mermaid_shows_relations_maps_depths_and_views():
    assert to_mermaid(PROGRAM) == (
        """\
flowchart LR
  n0[/"R"/]
  n1[/"S"/]
  n2["M1[] · depth 2"]
  n3["M2[k1] · depth 1"]
  n4["M4[k1] · depth 0"]
  n5["M3[k1] · depth 0"]
  n6(["total"])
  n3 -- "±R" --> n2
  n4 -- "±R" --> n2
  n4 -- "±R" --> n3
  n0 -- "±R" --> n4
  n1 -- "+S" --> n5
  n2 -.-> n6
"""
    )


def test_dot_quotes_odd_names():
    text = to_dot(parse('ON +"a \\"b"(x) { "m ""1"""[x] += 1 }'.replace('\\"', '""')))
    assert '"map m \\"1\\"" [shape=box, label="m \\"1\\"[k1] · depth 0"];' in text
    assert text.startswith("digraph program {")
    assert to_dot(CYCLIC).count("->") == 6


def test_json_holds_the_whole_program():
    data = json.loads(json.dumps(to_json(PROGRAM)))
    assert [item["name"] for item in data["relations"]] == ["R", "S"]
    assert data["depths"]["M1"] == 2
    assert data["cycles"] == []
    assert [item["on"] for item in data["triggers"]] == ["insert", "delete", "insert", "batch"]
    statement = data["triggers"][1]["statements"][0]
    assert statement["text"] == "M1[] += -M2[a] * M4[b]"
    assert statement["reads"] == ["M2", "M4"]
    assert statement["term"] == {
        "node": "Product",
        "parts": [
            {"node": "Const", "value": -1, "type": "INTEGER"},
            {"node": "MapRead", "map": "M2", "column": "v", "keys": [{"node": "Var", "name": "a"}], "state": "OLD"},
            {"node": "MapRead", "map": "M4", "column": "v", "keys": [{"node": "Var", "name": "b"}], "state": "OLD"},
        ],
    }
    assert to_json(CYCLIC)["depths"] is None


def test_json_spells_every_kind_of_node():
    text = (
        "ON +R(a) { q[x] += (x := DATE '2020-01-01') * {MIN m[*] < 0.5} * m[> a] * m[..] * CAST(a AS DOUBLE) * 5e-1 }"
    )
    term = json.dumps(to_json(parse(text))["triggers"][0]["statements"][0]["term"])
    for part in ('"2020-01-01"', '"node": "MapEnd"', '"keys": [null]', '"inclusive": false', '"low": null', '"DOUBLE"'):
        assert part in term
