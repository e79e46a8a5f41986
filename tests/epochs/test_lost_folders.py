"""The output folder or the checkpoint of a run that goes while it runs: seen before the next epoch is committed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.errors import StoreLostError
from support.engines import engine_of

SCRIPT = "CREATE TABLE r (k INTEGER, x INTEGER); CREATE VIEW v AS SELECT k, SUM(x) AS s FROM r GROUP BY k;"


def put(folder: Path, number: int) -> None:
    (folder / "in" / "r").mkdir(parents=True, exist_ok=True)
    (folder / "in" / "r" / f"{number}.csv").write_text(f"k,x\n{number},1\n")


def run_of(folder: Path) -> EmbeddedRun:
    program = compile_sql(SCRIPT, rely=False)
    sources = sources_from([str(folder / "in")], program)
    return EmbeddedRun(program, sources, folder / "out", folder / "state", make_engine=engine_of)


def replaced(path: Path) -> None:
    path.rename(path.with_name("away"))
    shutil.copytree(path.with_name("away"), path, symlinks=True)


HARMS: dict[str, Callable[[Path], Any]] = {
    "the output is removed": lambda folder: shutil.rmtree(folder / "out"),
    "the output is moved": lambda folder: (folder / "out").rename(folder / "away"),
    "the output is replaced by a copy": lambda folder: replaced(folder / "out"),
    "the manifests are removed": lambda folder: shutil.rmtree(folder / "out" / "epochs"),
    "the last manifest is removed": lambda folder: (folder / "out" / "epochs" / "2.json").unlink(),
    "the files are removed": lambda folder: shutil.rmtree(folder / "out" / "data"),
    "the checkpoint is removed": lambda folder: shutil.rmtree(folder / "state"),
    "the checkpoint is moved": lambda folder: (folder / "state").rename(folder / "away"),
    "the checkpoint is replaced by a copy": lambda folder: replaced(folder / "state" / "embedded"),
    "the last epoch's log is removed": lambda folder: (folder / "state" / "embedded" / "2-0.log").unlink(),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("is_idle", [False, True], ids=["with new files", "without"])
def test_a_run_ends_when_a_folder_of_it_goes(harm: str, is_idle: bool, tmp_path: Path) -> None:
    put(tmp_path, 1)
    put(tmp_path, 2)
    with run_of(tmp_path) as run:
        assert len(list(run.steps())) == 2
        HARMS[harm](tmp_path)
        before = sorted(tmp_path.rglob("*"))
        if not is_idle:
            put(tmp_path, 3)
        with pytest.raises(StoreLostError) as told:
            run.step()
        assert told.value.hint
        assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "3.csv"] == before, "nothing is written"


def test_a_folder_that_is_brought_back_goes_on(tmp_path: Path) -> None:
    put(tmp_path, 1)
    with run_of(tmp_path) as run:
        assert run.step() is not None
        (tmp_path / "out").rename(tmp_path / "away")
        put(tmp_path, 2)
        with pytest.raises(StoreLostError):
            run.step()
        (tmp_path / "away").rename(tmp_path / "out")
    with run_of(tmp_path) as run:
        assert run.step() is not None
        assert committed_epochs(tmp_path / "out") == [1, 2]
