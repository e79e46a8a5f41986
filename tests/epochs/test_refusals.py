"""Programs that must not run in epochs, on Spark or embedded: each is refused with the reason and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus import Warehouse
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.layouts import require_definitions
from cumulus.epochs.sources import sources_from
from cumulus.errors import LayoutError, UsageError
from cumulus.m3 import parse
from support.engines import engine_of
from support.orders_stream import json_lines
from support.refused_programs import CYCLIC, UNDEFINED

pytestmark = pytest.mark.usefixtures("each_engine")


def test_a_map_without_a_definition_is_refused_by_name(tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "r" / "1.json", [{"x": 1}])
    program = parse(UNDEFINED)
    with pytest.raises(LayoutError, match=r"map best has no definition(.|\n)*cumulus\.Warehouse"):
        require_definitions(program)
    with pytest.raises(LayoutError, match="map best has no definition"):
        EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", make_engine=engine_of)
    assert not (tmp_path / "out").exists()


def test_the_way_out_for_a_map_without_a_definition_is_one() -> None:
    warehouse = Warehouse(parse(UNDEFINED))
    warehouse.insert("r", [(5,), (7,)])
    assert warehouse.view("v").rows() == [(19,)]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_files_of_a_table_without_types_are_refused_by_name(format: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "r").mkdir(parents=True)
    program = parse("RELATION r(a INT, b); MAP q[](n BIGINT) COUNT n = SUM[](r(a, b)); ON +r(a, b) { q[] += 1; }")
    sources = sources_from([f"r={tmp_path / 'in' / 'r'},format={format}"], program)
    with pytest.raises(UsageError, match=r"r: column b has no type(.|\n)*RELATION r\(b BIGINT"):
        EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of)
    assert not (tmp_path / "out").exists()


def test_a_cycle_is_refused_with_its_maps(tmp_path: Path) -> None:
    json_lines(tmp_path / "in" / "r" / "1.json", [{"x": 1}])
    program = parse(CYCLIC)
    with pytest.raises(LayoutError, match=r"one → two → one(.|\n)*cumulus\.Warehouse"):
        require_definitions(program)
    with pytest.raises(LayoutError, match="one → two → one"):
        EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), tmp_path / "out", make_engine=engine_of)
    assert not (tmp_path / "out").exists()


def test_the_way_out_for_a_cycle_is_one() -> None:
    warehouse = Warehouse(parse(CYCLIC))
    warehouse.insert("r", [(1,), (1,), (2,)])
    warehouse.delete("r", [(2,)])
    assert warehouse.view("v").rows() == [(1, 2)]
