"""The cache of machine code: what is damaged in it is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.native import building
from cumulus.engine.native.engine import NativeEngine

SQL = "CREATE TABLE r (a INT NOT NULL); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a"


@pytest.mark.parametrize("suffix", ["plan", "o"])
@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:-1] + b"?", lambda data: b""])
def test_a_damaged_file_is_made_again(suffix, damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_CACHE", str(tmp_path))
    program = compile_sql(SQL)
    building.forget()
    NativeEngine(program)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in tmp_path.glob(f"*.{suffix}"):
        path.write_bytes(damage(files[path]))
    building.forget()
    engine = NativeEngine(program)
    engine.begin()
    engine.on_event(1, "r", (1,))
    engine.commit()
    assert dict(engine.items("v")) == {(1,): (1,)}
    sizes = {path: len(data) for path, data in files.items()}
    assert {path: len(path.read_bytes()) for path in tmp_path.iterdir()} == sizes
    building.forget()
