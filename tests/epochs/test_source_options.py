"""What `--from` says of a table's files, and places that are no folders of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.arrivals import list_files, next_files
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.origin import Origin
from cumulus.epochs.replay import checked_manifest, replay
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError, UsageError
from support.engines import engine_of

PROGRAM = compile_sql("CREATE TABLE t (id INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t", rely=False)


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("delimiter=;", "delimiter", ";"),
        ("sep=semicolon", "delimiter", ";"),
        ("delimiter=tab", "delimiter", "\t"),
        ("header=false", "header", False),
        ("encoding=latin-1", "encoding", "iso8859-1"),
        ("times=micros", "times", "micros"),
        ("decimals=base64", "decimals", "base64"),
        ("key=a+b", "key", ("a", "b")),
    ],
)
def test_options(tmp_path: Path, option: str, field: str, value: object) -> None:
    [source] = sources_from([f"t={tmp_path},{option}"], PROGRAM)
    assert getattr(source, field) == value


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("format=xml", "One of: auto, parquet, csv, json, debezium."),
        ("delimiter=ab", "One character, or one of: comma, semicolon, tab, pipe, space."),
        ("header=maybe", "One of: true, false."),
        ("encoding=klingon", "Such as utf-8, latin-1, cp1252, utf-16."),
        ("times=hours", "One of: seconds, millis, micros, nanos."),
        (
            "colour=red",
            "Options: format=, op=, key=, order=, delimiter=, header=, encoding=, times=, decimals=, unavailable=, "
            "files=.",
        ),
    ],
)
def test_options_that_are_none(tmp_path: Path, option: str, hint: str) -> None:
    with pytest.raises(UsageError) as problem:
        sources_from([f"t={tmp_path},{option}"], PROGRAM)
    assert problem.value.hint == hint


def test_remote_folders_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("s3://bucket/x", "t=s3://bucket/x,format=csv"):
        with pytest.raises(UsageError, match="s3://bucket/x: only folders of this machine"):
            sources_from([text], PROGRAM)
    (tmp_path / "t").mkdir()
    sources = sources_from(["t=t"], PROGRAM)
    for out in ("hdfs://bucket/x", Path("hdfs://bucket/x")):
        with pytest.raises(UsageError, match="hdfs://bucket/x: there is no store of the kind hdfs"):
            EmbeddedRun(PROGRAM, sources, out, make_engine=engine_of)
    with pytest.raises(UsageError, match=r"s3:.*: this address has no bucket"):
        EmbeddedRun(PROGRAM, sources, "s3://", make_engine=engine_of)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.symlink_to("/nowhere/1.csv"), "a link to /nowhere/1.csv, which is not there"),
        (lambda path: (path.mkdir(), (path / "1.csv").write_text("id\n1\n")), "a folder; the files of a table are in"),
        (os.mkfifo, "neither a file nor a folder"),
        (lambda path: path.symlink_to(path.name), "a link to 2.csv, which is not there"),
        (lambda path: path.symlink_to("/dev/zero"), "a link to /dev/zero, which is neither a file nor a folder"),
    ],
    ids=["a broken link", "a folder", "a pipe", "a link to itself", "a link to a device"],
)
def test_what_is_no_file_is_named_and_not_passed_over(tmp_path: Path, make: Callable[[Path], Any], said: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_archive").mkdir()
    (tmp_path / "t" / "_archive" / "0.csv").touch()
    (tmp_path / "t" / "empty").mkdir()
    (tmp_path / "real").write_text("id\n1\n")
    (tmp_path / "t" / "1.csv").symlink_to(tmp_path / "real")
    [source] = sources_from([str(tmp_path)], PROGRAM)
    assert list_files(source) == ["1.csv"]
    make(tmp_path / "t" / "2.csv")
    with pytest.raises(InputError, match=f"t/2.csv: this is {said}") as problem:
        list_files(source)
    assert "begins with '_'" in str(problem.value)


@pytest.mark.parametrize("names", [("t/", "t.csv"), ("t.csv", "t.json"), ("T/", "t/"), ("T.CSV", "t.parquet")])
def test_two_places_for_a_table_are_told(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("id\n1\n")
    with pytest.raises(InputError, match=r"table 't' could be .+ or .+") as problem:
        sources_from([str(tmp_path)], PROGRAM)
    assert f"--from t={tmp_path}/" in str(problem.value)
    chosen = f"t={tmp_path / names[1]}"
    [source] = sources_from([str(tmp_path), chosen], PROGRAM)
    assert source.path == str(tmp_path / names[1])
    with pytest.raises(InputError, match="could be"):
        sources_from([chosen, str(tmp_path)], PROGRAM)  # the later one counts


def test_a_file_that_grew_after_it_was_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    one, out = tmp_path / "t" / "1.csv", tmp_path / "out"
    one.write_text("id\n1\n")
    sources = sources_from([str(tmp_path)], PROGRAM)
    with EmbeddedRun(PROGRAM, sources, out, make_engine=engine_of) as running:
        assert len(list(running.steps())) == 1
    one.write_text("id\n1\n2\n")
    with EmbeddedRun(PROGRAM, sources, out, make_engine=engine_of) as running:
        with pytest.raises(InputError, match=r"t/1.csv: it has 7 bytes, and had 5 when it was read"):
            running.step()
        with pytest.raises(InputError, match=r"t/1.csv: it has 7 bytes"):
            replay(out, PROGRAM, sources, Origin("t.sql", "", (str(tmp_path),)), checked_manifest(out), engine_of)
        one.write_text("id\n1\n")
        assert running.step() is None
        (tmp_path / "t" / "2.csv").write_text("id\n2\n")
        assert running.step() is not None
    old = {"t": {"last": "1.csv", "count": 1}}  # as an earlier version wrote it
    one.write_text("id\n1\n1\n")
    assert next_files(sources, old, 0)[0] == {"t": ["2.csv"]}
