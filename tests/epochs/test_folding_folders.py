"""Folding cubes from the files of epochs: whatever the buckets, it is what DuckDB says of the rows so far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cumulus
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.sink import read_manifest
from cumulus.epochs.sources import sources_from
from cumulus.errors import StoreError, UnknownNameError, UsageError
from cumulus.m3.cubes import CubeDef, DimensionDef, LevelDef
from cumulus.m3.program import Program
from support.engines import engine_of
from support.oracle import same_bag
from support.orders_stream import OrdersStream

TABLES = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT REFERENCES customers, discount DECIMAL(4,2));
CREATE TABLE lineitem (oid INT REFERENCES orders, price DECIMAL(15,2));
"""
MEASURES = """COUNT(*) AS n, SUM(price) AS s, AVG(price::DOUBLE * 1.1) AS mean, STDDEV(price::DOUBLE) AS spread"""
COUNTED = "COUNT(*) AS n, COUNT(DISTINCT price) AS prices, MAX(price) AS high"
PEOPLE = "COUNT(*) AS n, COUNT(DISTINCT cid % 7) AS sorts"
JOINED = "FROM customers JOIN orders USING (cid) JOIN lineitem USING (oid)"
KEYS = {"nation": "nation", "third": "oid % 3", "oid": "oid"}
CUBES = {
    "sales": (MEASURES, JOINED, ("nation", "third")),  # no bucket has a group of its own
    "items": (COUNTED, "FROM lineitem", ("oid", "third")),  # each group is in one bucket
    "people": (PEOPLE, "FROM customers", ("nation",)),  # each is in all buckets
    "prices": ("COUNT(*) AS n, MIN(price) AS low, MAX(price) AS high", "FROM lineitem", ("oid", "third")),
}
LEVELS = {"sales": [("nation",), ()], "prices": [("third",)]}
"""Kept beside the finest; that of `prices` has its ends in all buckets."""


def said(view: str, by: tuple[str, ...], where: str = "") -> str:
    measures, tables, _ = CUBES[view]
    shown = "".join(f"{KEYS[key]} AS {key}, " for key in by)
    grouping = f" GROUP BY {', '.join(KEYS[key] for key in by)}" if by else ""
    return f"SELECT {shown}{measures} {tables} {where}{grouping}"


SCRIPT = TABLES + "".join(f"CREATE VIEW {name} AS {said(name, keys)};\n" for name, (_, _, keys) in CUBES.items())
SCRIPT += "".join(
    f'CREATE VIEW "{name} by {keys}" AS {said(name, keys)};\n' for name, levels in LEVELS.items() for keys in levels
)
SCRIPT += f"CREATE VIEW revenue AS SELECT nation, SUM(price) AS s {JOINED} GROUP BY nation;\n"
SELECTIONS = [
    ("sales", ("nation",), "", {}),
    ("sales", ("nation", "third"), "", {}),
    ("sales", (), "WHERE nation IN (1, 3) OR nation IS NULL", {"nation": [1, None, 3]}),
    ("sales", ("third",), "WHERE nation BETWEEN 2 AND 3", {"nation": cumulus.between(2, 3)}),
    ("items", ("third",), "", {}),
    ("items", ("oid",), "WHERE oid >= 20 AND oid % 3 = 2", {"oid": cumulus.between(20), "third": 2}),
    ("people", (), "", {}),
    ("prices", ("third",), "WHERE oid % 3 > 0", {"third": [1, 2]}),
    ("prices", (), "", {}),
    ("sales", (), "", {}),
    ("people", ("nation",), "WHERE nation <= 3", {"nation": cumulus.between(None, 3)}),
]


def levels_of(cube: str) -> tuple[LevelDef, ...]:
    return tuple(LevelDef(keys, f"{cube} by {keys}") for keys in LEVELS.get(cube, ()))


@pytest.fixture(scope="module")
def program() -> Program:
    compiled = compile_sql(SCRIPT, rely=False)
    cubes = tuple(
        CubeDef(name, tuple(DimensionDef(key, (key,)) for key in keys), levels_of(name))
        for name, (_, _, keys) in CUBES.items()
    )
    return replace(compiled, cubes=cubes)


def folder_of(out: Path, program: Program) -> OutputFolder:
    folder = OutputFolder(out)
    folder.__dict__["program"] = program
    return folder


def rows_of(partial: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in partial.finish().to_pylist()]


@pytest.mark.parametrize(("layout", "buckets"), [("one-bucket", 1), ("one-round:orders=oid+lineitem=oid", 3)])
def test_a_fold_is_right_after_every_epoch(tmp_path: Path, program: Program, layout: str, buckets: int) -> None:
    queries = {f"{at}": said(view, by, where) for at, (view, by, where, _) in enumerate(SELECTIONS)}
    stream = OrdersStream(tmp_path / "in", 5, queries)
    for _ in range(4):
        stream.write()
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(
        program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=buckets, keep=3
    ) as run:
        assert run.identity.plan.buckets == buckets
        for _ in run.steps():
            pass
    folder = folder_of(tmp_path / "out", program)
    assert folder.epochs == [2, 3, 4]
    for epoch in folder.epochs:
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            found = folder.fold(view, list(by), where, epoch=epoch)
            assert found.at == epoch
            assert same_bag(rows_of(found), stream.answers[epoch][f"{at}"]), (epoch, view, by, where)
            level = min((each for each in LEVELS.get(view, ()) if set(each) >= {*by, *where}), key=len, default=None)
            assert found.choice.view == (view if level is None else f"{view} by {level}")
    assert read_manifest(tmp_path / "out", 4).views.keys() == {*CUBES, "revenue"}  # nobody asked for rows of levels
    listed = read_manifest(tmp_path / "out", 4).parts
    assert {len(files) for files in listed.values()} == {1, buckets}  # one of what all buckets have
    kept = [file for epoch in folder.epochs for file in parts_of(tmp_path / "out", epoch)]
    assert {f"data/parts/{file.name}" for file in (tmp_path / "out/data/parts").iterdir()} == set(kept)


def parts_of(out: Path, epoch: int) -> list[str]:
    return [path for files in read_manifest(out, epoch).parts.values() for path in files.values()]


def test_only_what_has_changed_is_written(tmp_path: Path, program: Program) -> None:
    stream = OrdersStream(tmp_path / "in", 6)
    stream.write()
    stream.write()
    for name in ("orders", "lineitem"):
        (tmp_path / "in" / name / "00002.parquet").unlink()
    out = tmp_path / "out"
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), out, make_engine=engine_of) as run:
        assert [epoch.number for epoch in run.steps()] == [1, 2]
    first, second = (read_manifest(out, epoch).parts for epoch in (1, 2))
    assert {name for name in first if first[name] != second[name]} >= set(program.view("people").reads)
    assert first["items"] == second["items"]


def test_columns_and_rows_that_are_not_needed_are_not_read(tmp_path: Path, program: Program) -> None:
    stream = OrdersStream(tmp_path / "in", 7)
    stream.write()
    out = tmp_path / "out"
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), out, make_engine=engine_of) as run:
        run.step()
    folder = folder_of(out, program)
    whole = folder.fold("items", ["oid"], columns=["n"])
    some = folder.fold("items", ["oid"], {"oid": [3, 4, 5]}, ["n"])
    assert some.entries_read == len(rows_of(some)) < whole.entries_read


def test_what_cannot_be_folded_says_why(tmp_path: Path, program: Program) -> None:
    stream = OrdersStream(tmp_path / "in", 8)
    stream.write()
    out = tmp_path / "out"
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), out, make_engine=engine_of) as run:
        run.step()
    folder = folder_of(out, program)
    with pytest.raises(UsageError, match=r"view revenue of .* is no cube") as refused:
        folder.fold("revenue", [])
    assert "CREATE CUBE revenue" in refused.value.hint
    with pytest.raises(UnknownNameError, match="there is no grouping column of sales city"):
        folder.fold("sales", ["nation"], {"city": 1})
    with pytest.raises(UsageError, match="epoch 7 is not there"):
        folder.fold("sales", ["nation"], epoch=7)
    (out / "program.m3").unlink()
    with pytest.raises(StoreError, match=r"did not write its program, program\.m3"):
        OutputFolder(out).view("sales")
