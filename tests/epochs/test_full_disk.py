"""A disk that takes no more: the run ends with one error, and goes on when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import StoreError
from support.engines import engine_of
from support.full_disk import room

PROGRAM = compile_sql(
    "CREATE TABLE t (id INT); CREATE VIEW v AS SELECT id, COUNT(*) AS n FROM t GROUP BY id", rely=False
)


@pytest.mark.parametrize("size", [1_000, 9_000, 30_000])
def test_a_full_disk_is_one_error_and_the_next_run_goes_on(tmp_path: Path, size: int) -> None:
    (tmp_path / "t").mkdir()
    sources = sources_from([str(tmp_path)], PROGRAM)
    (tmp_path / "t" / "1.csv").write_text("id\n-1\n")
    (tmp_path / "t" / "2.csv").write_text("id\n" + "".join(f"{at * 7919 % 100_003}\n" for at in range(20_000)))
    with EmbeddedRun(PROGRAM, sources, tmp_path / "out", make_engine=engine_of) as running:
        assert running.step() is not None
        with room(size), pytest.raises(StoreError, match="cannot be written: File too large") as problem:
            running.step()
        assert "Make room there" in str(problem.value)
        assert not list(tmp_path.rglob(".[0-9]*-*"))  # what was begun takes no room
    with EmbeddedRun(PROGRAM, sources, tmp_path / "out", make_engine=engine_of) as running:
        assert len(list(running.steps())) == 1
    assert query(tmp_path / "out", "SELECT COUNT(*)::INT AS n, SUM(n)::INT AS s FROM v").to_pylist() == [
        {"n": 20_001, "s": 20_001}
    ]
