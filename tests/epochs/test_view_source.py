"""The changes of a view of one run as the rows of a table of another: each once, whenever they are taken."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.sources import sources_from
from cumulus.errors import CumulusError, InputError, UsageError
from cumulus.m3.program import Program
from cumulus.workloads import shop
from support.cluster_world import run_cluster
from support.orders_stream import json_lines

ENGINE = partial(make_engine, "interpreter")
LATER = """
CREATE TABLE revenue (nation VARCHAR, revenue DECIMAL(38,4));
CREATE VIEW best AS SELECT COUNT(*) AS nations, SUM(revenue) AS total, MAX(revenue) AS most FROM revenue;
"""
FIRST = "CREATE TABLE r (k VARCHAR, a BIGINT); CREATE VIEW v AS SELECT k, SUM(a) AS s, COUNT(*) AS n FROM r GROUP BY k;"
SECOND = "CREATE TABLE v (k VARCHAR, s HUGEINT, n BIGINT); CREATE VIEW w AS SELECT SUM(s) AS s, COUNT(*) AS n FROM v;"


def compiled(script: str) -> Program:
    return compile_sql(script, rely=False, enforced=False)


def run(script: str, source: str | Path, out: Path, epochs: int = 0, **settings: Any) -> int:
    """Run a script over a source, so many epochs or all there are; return the last epoch."""
    program = compiled(script)
    with EmbeddedRun(program, sources_from([str(source)], program), out, make_engine=ENGINE, **settings) as begun:
        for at, _ in enumerate(begun.steps(), 1):
            if at == epochs:
                break
        return begun.epoch


def rows(out: Path, view: str, epoch: int = 0) -> list[dict[str, Any]]:
    return OutputFolder(out).view(view, epoch).arrow().to_pylist()


def write(folder: Path, epoch: int, *changes: tuple[str, str, int]) -> None:
    json_lines(folder / "r" / f"{epoch:03d}.json", [{"op": op, "k": k, "a": a} for op, k, a in changes])


@pytest.mark.parametrize("prefix", ["cluster:", "view:"])
def test_epoch_for_epoch_a_view_of_a_view_is_of_the_same_rows(tmp_path: Path, prefix: str) -> None:
    shop.write(tmp_path / "in")
    last = run(shop.sql(), tmp_path / "in", tmp_path / "out")
    assert run(LATER, f"{prefix}{tmp_path / 'out'}/REVENUE", tmp_path / "later") == last == 5
    for epoch in range(1, last + 1):
        revenue = [row["revenue"] for row in rows(tmp_path / "out", "revenue", epoch)]
        assert rows(tmp_path / "later", "best", epoch) == [
            {"nations": len(revenue), "total": sum(revenue), "most": max(revenue)}
        ]


def test_a_cluster_takes_it_too(tmp_path: Path) -> None:
    shop.write(tmp_path / "in")
    run(shop.sql(), tmp_path / "in", tmp_path / "out")
    program = compiled(LATER)
    sources = sources_from([f"revenue=view:{tmp_path / 'out'}/revenue"], program)
    run_cluster(program, sources, tmp_path / "later", nodes=3, switches=2)
    run(LATER, f"view:{tmp_path / 'out'}/revenue", tmp_path / "judged")
    for epoch in range(1, 6):
        assert rows(tmp_path / "later", "best", epoch) == rows(tmp_path / "judged", "best", epoch)


def test_each_change_counts_once_whenever_it_is_taken(tmp_path: Path) -> None:
    """The run of the view goes on, and so does the other one: sometimes it is behind, sometimes it has all."""
    source, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    write(source, 1, ("insert", "a", 1), ("insert", "b", 2))
    write(source, 2, ("insert", "a", 5), ("delete", "b", 2))
    assert run(FIRST, source, out) == 2
    assert run(SECOND, f"view:{out}/v", later, epochs=1) == 1
    assert rows(later, "w") == [{"s": 3, "n": 2}]
    write(source, 3, ("insert", "c", 7))
    write(source, 4)
    assert run(FIRST, source, out) == 4
    assert run(SECOND, f"view:{out}/v", later) == 4
    assert rows(later, "w") == [{"s": 13, "n": 2}]
    assert run(SECOND, f"view:{out}/v", later) == 4, "there is nothing new"
    write(source, 5, ("delete", "a", 5), ("insert", "a", -(2**62)))
    assert run(FIRST, source, out) == 5
    assert run(SECOND, f"view:{out}/v", later) == 5
    assert rows(later, "w") == [{"s": 1 - 2**62 + 7, "n": 2}]


def test_who_begins_late_is_given_all_rows_and_then_changes(tmp_path: Path) -> None:
    source, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    for epoch in range(1, 6):
        write(source, epoch, ("insert", "a", epoch), ("insert", f"k{epoch}", 1))
    run(FIRST, source, out, keep=2)
    assert OutputFolder(out).epochs == [4, 5]
    assert run(SECOND, f"view:{out}/v", later, epochs=1) == 1
    assert rows(later, "w") == [{"s": 1 + 2 + 3 + 4 + 4, "n": 5}]
    write(source, 6, ("insert", "a", 6))
    run(FIRST, source, out, keep=3)
    assert OutputFolder(out).epochs == [4, 5, 6]
    run(SECOND, f"view:{out}/v", later)
    assert rows(later, "w") == [{"s": 1 + 2 + 3 + 4 + 5 + 6 + 5, "n": 6}]


def test_who_is_too_far_behind_is_told_and_takes_nothing(tmp_path: Path) -> None:
    source, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    write(source, 1, ("insert", "a", 1))
    run(FIRST, source, out)
    run(SECOND, f"view:{out}/v", later)
    for epoch in range(2, 6):
        write(source, epoch, ("insert", "a", epoch))
    run(FIRST, source, out, keep=2)
    with pytest.raises(InputError, match=r"epoch 1 of view v was taken, and is not kept any more.*\n?.*--keep"):
        run(SECOND, f"view:{out}/v", later)
    assert rows(later, "w") == [{"s": 1, "n": 1}]


def test_an_epoch_that_goes_between_listing_and_reading_is_not_taken_for_all_rows(tmp_path: Path) -> None:
    source, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    for epoch in (1, 2):
        write(source, epoch, ("insert", "a", epoch))
    run(FIRST, source, out)
    program = compiled(SECOND)
    with EmbeddedRun(program, sources_from([f"view:{out}/v"], program), later, make_engine=ENGINE) as begun:
        steps = begun.steps()
        next(steps)
        (out / "epochs" / "1.json").unlink()
        with pytest.raises(InputError, match="is not kept any more"):
            next(steps)
    assert rows(later, "w") == [{"s": 1, "n": 1}]


def test_texts_nulls_and_extremes_go_through(tmp_path: Path) -> None:
    values = ["", " ", "ü", "\x00", "a" * 5000, "-", "NULL", None]
    source, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    json_lines(source / "r" / "1.json", [{"k": k, "a": a} for k in values for a in (2**63 - 1, -(2**63), None)])
    json_lines(source / "r" / "2.json", [{"op": "delete", "k": k, "a": -(2**63)} for k in values])
    run(FIRST, source, out)
    run(
        "CREATE TABLE v (k VARCHAR, s HUGEINT, n BIGINT); CREATE VIEW w AS SELECT k, s, n FROM v;",
        f"view:{out}/v",
        later,
    )
    for epoch in (1, 2):
        found = [tuple(row.values()) for row in rows(later, "w", epoch)]
        assert sorted(map(repr, found)) == sorted(repr(tuple(row.values())) for row in rows(out, "v", epoch))


WRONG = {
    "v=view:{out}/none": "there is no view",
    "view:{out}/none": "there is no table 'none'",
    "view:{out}": "there is no table 'out'",
    "view:": "there is no table ''",
    "view:/": "there is no table ''",
    "v=view:": "it names no view",
    "v=view:/": "it names no view",
    "v=view:v": "it names no view",
    "v=view:/v": "it names no view",
    "view:{out}/../../v": "no output with a view",
    "view:{tmp}/in/r/001.json/v": "there is no such folder with a view",
    "view:{tmp}/nowhere/v": "there is no such folder with a view",
    "v=view:s3://lake/out/v": "only folders of this machine can be used",
    "v=view:{tmp}/in/v": "no output with a view",
    "other=view:{out}/v": "there is no table 'other'",
    "v=view:{out}/v,format=csv": "a view has no options",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_place_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    write(tmp_path / "in", 1, ("insert", "a", 1))
    run(FIRST, tmp_path / "in", tmp_path / "out")
    given = text.format(out=tmp_path / "out", tmp=tmp_path)
    with pytest.raises((InputError, UsageError), match=re.escape(WRONG[text])) as told:
        sources_from([given], compiled(SECOND))
    assert told.value.hint


def test_nobody_reads_what_it_writes_itself(tmp_path: Path) -> None:
    write(tmp_path / "in", 1, ("insert", "a", 1))
    run(FIRST, tmp_path / "in", tmp_path / "out")
    with pytest.raises(CumulusError, match="is in"):
        run(SECOND, f"view:{tmp_path / 'out'}/v", tmp_path / "out")


def test_columns_that_are_not_there_are_told(tmp_path: Path) -> None:
    write(tmp_path / "in", 1, ("insert", "a", 1))
    run(FIRST, tmp_path / "in", tmp_path / "out")
    with pytest.raises(InputError, match="other"):
        run(
            "CREATE TABLE v (other VARCHAR); CREATE VIEW w AS SELECT other FROM v;",
            f"view:{tmp_path / 'out'}/v",
            tmp_path / "x",
        )


def test_a_table_with_columns_of_the_same_names_as_what_says_how_rows_go(tmp_path: Path) -> None:
    """`op` and `seq` are data here."""
    first = "CREATE TABLE r (k VARCHAR, a BIGINT); CREATE VIEW v AS SELECT k AS op, SUM(a) AS seq FROM r GROUP BY k;"
    second = "CREATE TABLE v (op VARCHAR, seq HUGEINT); CREATE VIEW w AS SELECT op, seq FROM v;"
    write(tmp_path / "in", 1, ("insert", "delete", 1), ("insert", "insert", 2))
    write(tmp_path / "in", 2, ("insert", "delete", 5))
    run(first, tmp_path / "in", tmp_path / "out")
    run(second, f"view:{tmp_path / 'out'}/v", tmp_path / "later")
    assert sorted(tuple(row.values()) for row in rows(tmp_path / "later", "w")) == [("delete", 6), ("insert", 2)]
