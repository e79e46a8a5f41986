"""State that was made under another release of DuckDB: its functions that have changed are named once it goes on."""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from pathlib import Path

import duckdb
import pytest

import cumulus
from cumulus.catalog.dialect import CHANGED, FOLLOWED, functions_changed_since
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.errors import MismatchError, ReleaseWarning
from cumulus.scalars.registry import FUNCTIONS
from support.engines import engine_of

ROUNDED = """
    CREATE TABLE r (k INTEGER NOT NULL, x DOUBLE NOT NULL);
    CREATE VIEW v AS SELECT k, SUM(round(x, 2)) AS s FROM r GROUP BY k;
"""
PLAIN = ROUNDED.replace("round(x, 2)", "x")
ROOT = Path(__file__).parents[2]


def test_the_installed_release_is_the_one_that_is_followed() -> None:
    assert duckdb.__version__ == FOLLOWED


def test_changed_functions_are_functions_and_on_the_page() -> None:
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    for name in (name for names in CHANGED.values() for name in names):
        assert name in FUNCTIONS
        assert re.search(rf"`{name}\b", page), name


def test_what_decides_a_result_is_taken_in_tested_releases_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    taken = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in ("duckdb", "sqlglot", "pyarrow", "google-re2", "llvmlite", "pyspark"):
        line = next(each for each in taken if each.startswith(name + ">"))
        newest = line.partition("<=")[2]
        assert newest, f"{name} has a range without an end that was tested: {line}"
        assert f"\n{name}=={newest}\n" in lock


def test_a_function_of_the_same_letters_is_another() -> None:
    assert functions_changed_since("2.0.0", "v := background(x) * {around(y)}") == []
    assert functions_changed_since("2.0.0", "hamming(a, b), levenshtein(a, b)") == ["levenshtein", "hamming"]
    assert functions_changed_since("9.9.9", "round(x, 2)") == []


@pytest.mark.parametrize(("script", "made_under", "warned"), [(ROUNDED, None, True), (ROUNDED, FOLLOWED, False)])
def test_a_saved_warehouse_warns(tmp_path: Path, script: str, made_under: str | None, warned: bool) -> None:
    warehouse = cumulus.Warehouse(script)
    warehouse.insert("r", [(1, 2.675)])
    warehouse.save(tmp_path / "saved")
    path = tmp_path / "saved" / "warehouse.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    assert manifest["dialect"] == FOLLOWED
    if made_under is None:
        del manifest["dialect"]  # as those that were saved before it was recorded
        path.write_text(json.dumps(manifest), encoding="utf-8")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cumulus.Warehouse.load(tmp_path / "saved")
    found = [each for each in told if each.category is ReleaseWarning]
    assert bool(found) is warned
    if warned:
        assert "round may give other values" in str(found[0].message)
        assert str(tmp_path / "saved") in str(found[0].message)


@pytest.mark.parametrize(("script", "warned"), [(ROUNDED, True), (PLAIN, False)])
def test_a_checkpoint_warns(tmp_path: Path, script: str, warned: bool) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "1.csv").write_text("k,x\n1,2.675\n", encoding="utf-8")
    program = cumulus.compile(script)

    def run() -> None:
        sources = sources_from([f"r={tmp_path / 'r'}"], program)
        with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of) as going:
            for _ in going.steps(everything=True):
                pass

    run()
    assert list((tmp_path / "out").rglob("*.parquet"))
    card = tmp_path / "out" / "checkpoint" / "cumulus.json"
    content = json.loads(card.read_text(encoding="utf-8"))
    assert content["dialect"] == FOLLOWED
    content["dialect"] = "2.0.0"
    card.write_text(json.dumps(content), encoding="utf-8")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run()
    assert any(each.category is ReleaseWarning for each in told) is warned


def test_maps_that_an_earlier_release_saved_as_they_lay_are_refused(tmp_path: Path) -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE r (k BIGINT); CREATE VIEW v AS SELECT k, COUNT(*) AS n FROM r GROUP BY k"
    )
    warehouse.save(tmp_path / "saved")
    path = tmp_path / "saved" / "warehouse.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "format": 2}), encoding="utf-8")
    with pytest.raises(MismatchError, match="in format 2"):
        cumulus.Warehouse.load(tmp_path / "saved")
