"""Folders that Spark writes: names that do not sort by time, partition folders, older files without a newer column."""

from __future__ import annotations

import json
import os
import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.arrivals import Progress, files_left, next_files
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError
from support.command_line import cumulus
from support.engines import engine_of
from support.tiers import sampled

SCRIPT = "CREATE TABLE t (id INT NOT NULL, k VARCHAR, day DATE, x INT); CREATE VIEW v AS SELECT * FROM t"
HOSTS = {"embedded": ("embedded",), "cluster": ("cluster", "--nodes", "2")}


class Job:
    """What one append of Spark writes: parts with a name of its own, which are there before its mark is."""

    clock = 1_700_000_000

    def __init__(self, folder: Path, generator: random.Random) -> None:
        self._folder = folder
        self._name = uuid.UUID(int=generator.getrandbits(128))
        self._part = 0

    def write(self, rows: list[dict[str, Any]], partition: str = "") -> str:
        name = f"part-{self._part:05}-{self._name}.c000.snappy.parquet"
        self._part += 1
        place = self._folder / partition
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), place / name)
        Job.clock += 1
        os.utime(place / name, (Job.clock, Job.clock))
        (place / f".{name}.crc").write_bytes(b"crc")
        return name

    def commit(self) -> None:
        (self._folder / "_SUCCESS").touch()


def run(tmp_path: Path, host: tuple[str, ...] = HOSTS["embedded"], *options: str) -> list[dict[str, Any]]:
    (tmp_path / "v.sql").write_text(SCRIPT)
    command = ("run", "v.sql", "--from", "t=in" + "".join(options), "--out", "out", "--host", *host)
    ended = cumulus(*command, folder=tmp_path)
    assert ended.returncode == 0, ended
    assert query(tmp_path / "out", "FROM quarantine").to_pylist() == []
    return query(tmp_path / "out", "FROM v ORDER BY id").to_pylist()


@pytest.mark.parametrize("name", sampled(HOSTS, of=2))
def test_a_second_append_sorts_before_the_first(tmp_path: Path, name: str) -> None:
    generator = random.Random(1)
    wanted = []
    for append in range(3):
        job = Job(tmp_path / "in", generator)
        for part in range(2):
            row = {"id": 10 * append + part, "k": "a", "day": None, "x": append}
            job.write([row])
            wanted.append(row)
        job.commit()
        assert run(tmp_path, HOSTS[name]) == wanted
    assert cumulus("recheck", tmp_path / "out").returncode == 0


@pytest.mark.parametrize("name", sampled(HOSTS, of=2))
def test_partition_folders(tmp_path: Path, name: str) -> None:
    wanted = []
    generator = random.Random(2)
    places = {
        "k=a b%2Fc/day=2024-01-31": ("a b/c", "2024-01-31"),
        "k=__HIVE_DEFAULT_PARTITION__/day=2024-02-01": (None, "2024-02-01"),
        "k=x=1/day=__HIVE_DEFAULT_PARTITION__": ("x=1", None),
    }
    for append in range(2):
        job = Job(tmp_path / "in", generator)
        for at, (place, (k, day)) in enumerate(places.items()):
            job.write([{"id": 10 * append + at, "x": at}], place)
            wanted.append({"id": 10 * append + at, "k": k, "day": day, "x": at})
        job.commit()
        found = run(tmp_path, HOSTS[name])
        assert [row | {"day": row["day"] and row["day"].isoformat()} for row in found] == wanted


@pytest.mark.parametrize("kind", ["csv", "csv without header", "jsonl", "long jsonl"])
def test_partition_folders_of_other_formats(tmp_path: Path, kind: str) -> None:
    count = 200 if kind == "long jsonl" else 3
    for number, k in enumerate("ba"):
        place = tmp_path / "in" / f"K={k}"
        place.mkdir(parents=True)
        rows = [{"id": number * count + at, "day": "2024-01-31", "x": at} for at in range(count)]
        if kind.startswith("csv"):
            lines = [",".join(map(str, row.values())) for row in rows]
            text = "\n".join(lines if "without" in kind else ["id,day,x", *lines])
            (place / "1.csv").write_text(text)
        else:
            (place / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run(tmp_path, HOSTS["embedded"], ",header=false" if "without" in kind else "")
    assert [(row["id"], row["k"], row["x"]) for row in found] == [
        (number * count + at, k, at) for number, k in enumerate("ba") for at in range(count)
    ]


def test_an_older_file_without_a_newer_column(tmp_path: Path) -> None:
    job = Job(tmp_path / "in", random.Random(3))
    job.write([{"id": 1, "k": "a"}])
    job.write([{"id": 2, "k": "a", "x": 7}])
    found = run(tmp_path)
    assert [(row["id"], row["day"], row["x"]) for row in found] == [(1, None, None), (2, None, 7)]


@pytest.mark.parametrize("rows", [[{"k": "a", "x": 1}], [{"other": 1}]])
def test_a_file_without_a_column_that_must_be_there(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    Job(tmp_path / "in", random.Random(4)).write(rows)
    program = compile_sql(SCRIPT, rely=False)
    with pytest.raises(InputError, match="needs a column 'id'"):
        run_embedded(program, tmp_path)


def run_embedded(program: Any, tmp_path: Path) -> None:
    with EmbeddedRun(
        program, sources_from([f"t={tmp_path / 'in'}"], program), tmp_path / "out", make_engine=engine_of
    ) as r:
        for _ in r.steps():
            pass


def test_a_folder_that_is_no_partition_is_named(tmp_path: Path) -> None:
    (tmp_path / "in" / "k=1" / "more").mkdir(parents=True)
    (tmp_path / "in" / "k=1" / "more" / "1.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"k=1/more: this is a folder"):
        next_files([FolderSource("t", str(tmp_path / "in"))], {}, 0)


@pytest.mark.parametrize("seed", sampled(range(20), of=4))
def test_each_file_is_taken_once(tmp_path: Path, seed: int) -> None:
    """The law: whatever is written, renamed to its place late, or removed between two looks."""
    generator = random.Random(seed)
    source = FolderSource("t", str(tmp_path / "in"), files="time" if seed % 2 else "")
    (tmp_path / "in").mkdir()
    written: list[str] = []
    taken: list[str] = []
    progress: Progress = {}
    for step in range(30):
        job = Job(tmp_path / "in", generator)
        for _ in range(generator.randrange(3)):
            partition = generator.choice(["", "k=1", "k=2/day=2024-01-01"])
            name = job.write([{"id": 1}], partition)
            if generator.random() < 0.3:  # committed by a job that began long ago
                old = Job.clock - generator.randrange(100)
                os.utime(tmp_path / "in" / partition / name, (old, old))
            written.append(f"{partition}/{name}" if partition else name)
        if taken and generator.random() < 0.2:
            (tmp_path / "in" / generator.choice(taken)).unlink(missing_ok=True)
        files, progress = next_files(
            [source], json.loads(json.dumps(progress)), generator.randrange(4), sizes=step % 2 == 0
        )
        times = [os.stat(tmp_path / "in" / name).st_mtime_ns for name in files.get("t", ())]
        assert times == sorted(times)
        taken += files.get("t", ())
    files, progress = next_files([source], progress, 0)
    taken += files.get("t", ())
    assert sorted(taken) == sorted(written)
    assert progress["t"]["count"] == len(written)
    assert files_left([source], progress) == 0


def test_a_target_is_not_passed(tmp_path: Path) -> None:
    job = Job(tmp_path / "in", random.Random(5))
    first = {job.write([{"id": at}]) for at in range(3)}
    source = FolderSource("t", str(tmp_path / "in"))
    _, target = next_files([source], {}, 0)
    Job(tmp_path / "in", random.Random(6)).write([{"id": 9}])
    os.utime(tmp_path / "in" / min(os.listdir(tmp_path / "in")), (1, 1))
    files, progress = next_files([source], {}, 2, target)
    rest, progress = next_files([source], progress, 2, target)
    assert {*files["t"], *rest["t"]} == first
    assert progress["t"]["count"] == target["t"]["count"]


def test_names_that_sort_go_by_name(tmp_path: Path) -> None:
    """Also where their times say otherwise, and where a mark comes later."""
    (tmp_path / "in").mkdir()
    for at, name in enumerate(("2.jsonl", "1.jsonl")):
        (tmp_path / "in" / name).write_text("{}\n")
        os.utime(tmp_path / "in" / name, (at + 1, at + 1))
    source = FolderSource("t", str(tmp_path / "in"))
    files, progress = next_files([source], {}, 1)
    assert files == {"t": ["1.jsonl"]}
    (tmp_path / "in" / "_SUCCESS").touch()
    assert next_files([source], progress, 1)[0] == {"t": ["2.jsonl"]}
    by_time = FolderSource("t", str(tmp_path / "in"), files="time")
    (tmp_path / "in" / "0.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="came late"):
        next_files([by_time], progress, 1)  # what was begun by name cannot know which of the two is new
    assert next_files([by_time], {}, 1)[0] == {"t": ["2.jsonl"]}
