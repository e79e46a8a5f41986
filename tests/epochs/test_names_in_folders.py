"""Names of tables, views and columns in the folders of a run: any legal name works, and none leads out of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cumulus.durable.folders import MOST_BYTES, file_name
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.query import query
from support.command_line import cumulus
from support.tiers import sampled

NAMES = [
    ".", "..", "../evil", "../../x", "/abs", "a/b", "a" * 255, "é" * 255, "/" * 255, "/" * 254, "%", "%2E", 'a"b',
    "a'b", " ", "-", ".hidden", "_h", "_SUCCESS", "CON", "nul.txt", "latest", "data", "quarantine", "view_errors",
    "parts", "manifest", "cumulus.json", "é", "É", "x=1", "[a]*?", "$(rm)", "{a}", "~", "a\\b", "q;drop", "a.", "a ",
    "_op", "_seq", "_position",
]  # fmt: skip
HOSTS = {
    "one bucket": ("--host", "embedded"),
    "three buckets": ("--host", "embedded", "--layout", "one-round", "--buckets", "3"),
    "cluster": ("--host", "cluster", "--nodes", "2"),
}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("host", sampled(HOSTS, of=3))
def test_any_name_of_a_view_and_a_column(tmp_path: Path, host: str) -> None:
    script = f"CREATE TABLE t (k INT, {', '.join(f'{quoted(name)} INT' for name in NAMES)});\n"
    for name in NAMES:  # the second column fails for one group: there are files of errors, too
        sums = f"SUM({quoted(name)}) AS {quoted(name)}, SUM(1 / (k - 2)) AS z"
        script += f"CREATE VIEW {quoted(name)} AS SELECT k, {sums} FROM t GROUP BY k;\n"
    (tmp_path / "v.sql").write_text(script)
    (tmp_path / "in/t").mkdir(parents=True)
    for epoch in range(3):
        rows = [{"k": at % 5, **dict.fromkeys(NAMES, at)} for at in range(10)]
        lines = [json.dumps(row) for row in rows] + ["no row"]
        (tmp_path / f"in/t/{epoch}.jsonl").write_text("\n".join(lines))
    ended = cumulus("run", "v.sql", "--from", "in", "--out", "out", *HOSTS[host], folder=tmp_path)
    assert ended.returncode == 0, ended
    assert {each.split("/")[0] for each in below(tmp_path)} == {"v.sql", "in", "out"}
    out = tmp_path / "out"
    folder, manifest = OutputFolder(out), newest_manifest(out)
    assert manifest is not None
    assert len(manifest.quarantine) == 3
    for name in NAMES:
        rows = query(out, f"SELECT * FROM {quoted(name)} ORDER BY k").to_pylist()
        assert [row[name] for row in rows] == [3 * (2 * k + 5) for k in range(5)], name
        assert folder.view(name).arrow().num_rows == 5
        shown = out / "latest" / file_name(name, ("quarantine", "parts"))
        assert sum(pq.read_table(file, partitioning=None).num_rows for file in shown.iterdir()) == 5
        assert manifest.view_errors[name]
    assert len(os.listdir(out / "latest")) == len(NAMES)


@pytest.mark.slow
def test_any_name_of_a_table(tmp_path: Path) -> None:
    script = "".join(
        f"CREATE TABLE {quoted(name)} (x INT); CREATE VIEW v{at} AS SELECT SUM(x) AS s FROM {quoted(name)};\n"
        for at, name in enumerate(NAMES)
    )
    (tmp_path / "v.sql").write_text(script)
    for at, name in enumerate(NAMES):
        place = tmp_path / "in" / file_name(name)
        place.mkdir(parents=True)
        (place / "1.jsonl").write_text(json.dumps({"x": at}) + "\nno row\n")
    ended = cumulus("run", "v.sql", "--from", "in", "--out", "out", "--host", "embedded", folder=tmp_path)
    assert ended.returncode == 0, ended
    for at in range(len(NAMES)):
        assert query(tmp_path / "out", f"SELECT s FROM v{at}").to_pylist() == [{"s": at}]
    refused = query(tmp_path / "out", "FROM quarantine").to_pylist()
    assert {row["relation"]: row["source"] for row in refused} == {n: f"{file_name(n)}/1.jsonl" for n in NAMES}


def test_names_of_files_are_as_many_as_names() -> None:
    # Cut names, names that look encoded, and names that differ in their last letter.
    names = {*NAMES, *map(file_name, NAMES), *("/" * length for length in range(1, 256))}
    made = {file_name(name) for name in names}
    assert len(made) == len(names)
    for each in made:
        assert not {*each} & {*'/\\:*?"<>|={}[],\0'}
        assert len(each.encode()) <= MOST_BYTES
        assert each[0] not in "._ "
        assert each[-1] not in ". "
    for name in ("orders", "Orders", "two words", "a-b", "v1.2", "Umsätze", "名前"):
        assert file_name(name) == name


def test_a_folder_that_an_earlier_release_has_written_goes_on(tmp_path: Path) -> None:
    """It wrote names as they are; the manifest says where files lie, and ``latest`` is put right."""
    (tmp_path / "v.sql").write_text('CREATE TABLE t (x INT); CREATE VIEW "a & b" AS SELECT SUM(x) AS s FROM t;')
    (tmp_path / "in/t").mkdir(parents=True)
    (tmp_path / "in/t/1.jsonl").write_text('{"x": 1}\n')
    command = ("run", "v.sql", "--from", "in", "--out", "out", "--host", "embedded")
    assert cumulus(*command, folder=tmp_path).returncode == 0
    out = tmp_path / "out"
    old, new = "a & b", file_name("a & b")
    for place in ("data", "views"):
        (out / place / new).rename(out / place / old)
    (out / "latest" / new).unlink()
    (out / "latest" / old).symlink_to(Path("..") / "views" / old / "1")
    manifest = out / "epochs" / "1.json"
    manifest.write_text(manifest.read_text().replace(f"data/{new}/", f"data/{old}/"))
    assert query(out, 'SELECT s FROM "a & b"').to_pylist() == [{"s": 1}]
    assert cumulus(*command, folder=tmp_path).returncode == 0
    assert os.listdir(out / "latest") == [new]
    (tmp_path / "in/t/2.jsonl").write_text('{"x": 2}\n')
    assert cumulus(*command, folder=tmp_path).returncode == 0
    assert query(out, 'SELECT s FROM "a & b"').to_pylist() == [{"s": 3}]
    (file,) = (out / "latest" / new).iterdir()
    assert pq.read_table(file, partitioning=None).to_pylist() == [{"s": 3}]
