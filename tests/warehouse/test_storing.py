"""Warehouses in folders: any engine reads what any other wrote, damage is named, kills and full disks leave the old."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import random
import resource
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cumulus import Warehouse, errors
from cumulus.catalog.types import Interval
from cumulus.engine.native.values import blocks
from cumulus.warehouse import saved_folder
from support import saving_driver
from support.engines import KINDS
from support.tiers import one_mode_each, sampled

SQL = """
CREATE TABLE r (id BIGINT, t VARCHAR, d DATE, n DECIMAL(30, 3), f DOUBLE, h HUGEINT, i INTERVAL, b BOOLEAN,
  ts TIMESTAMP, e REAL, PRIMARY KEY (id)) WITH (keep = all);
CREATE VIEW totals AS SELECT t, SUM(n) AS s, COUNT(*) AS c, MIN(d) AS m, STDDEV(f) AS sd FROM r GROUP BY t;
CREATE VIEW spans AS SELECT i, b, ts, SUM(f) AS s, COUNT(DISTINCT t) AS c FROM r GROUP BY i, b, ts;
CREATE VIEW few AS SELECT h, COUNT(*) AS k FROM r WHERE t LIKE 'a%' OR t = 'zz' GROUP BY h;
CREATE VIEW short AS SELECT e, COUNT(*) AS k, MAX(e) AS m FROM r GROUP BY e;
CREATE VIEW alone AS SELECT COUNT(*) AS n FROM r;
CREATE VIEW ratio AS SELECT c, COUNT(*) AS n FROM totals WHERE s > 5 GROUP BY c;
"""
FORMS = saved_folder.FORMS


def rows(start: int, end: int) -> list[tuple[Any, ...]]:
    """Make rows with NULLs, wide numbers and texts of every kind."""
    choose = random.Random(start)

    def maybe(value: Any) -> Any:
        return None if choose.random() < 0.1 else value

    return [
        (
            number,
            maybe(choose.choice(["a", "ab", "zz", "é", "😀", "", "a\x00b", "\n"])),
            maybe(dt.date(1960, 1, 1) + dt.timedelta(choose.randrange(20_000))),
            maybe(Decimal(choose.randrange(-(10**20), 10**20)) / 1000),
            maybe(choose.choice([0.0, -1e300, 1e300, choose.uniform(-5, 5)])),
            maybe(choose.randrange(-(2**100), 2**100)),
            maybe(Interval(choose.randrange(3), 1, 5)),
            maybe(choose.random() < 0.5),
            maybe(dt.datetime(2020, 1, 1, choose.randrange(24))),
            maybe(choose.choice([0.1, 0.5, float("nan")])),
        )
        for number in range(start, end)
    ]


def contents(wh: Warehouse) -> dict[str, Any]:
    return {each.name: dict(wh._state.session.engine.stored(each.name)) for each in wh.program.maps}


def shown(wh: Warehouse) -> dict[str, Any]:
    return {name: sorted(map(repr, wh.view(name).rows())) for name in wh.views}


def problems(wh: Warehouse) -> list[str]:
    if wh.stats().engine == "interpreter":
        return []
    return [each for store in wh._state.session.engine.code.image.maps.values() for each in store.view.problems()]


def filled(engine: str) -> Warehouse:
    wh = Warehouse(SQL, engine=engine)
    wh.insert("r", rows(0, 1500))
    wh.delete("r", rows(0, 1500)[::5])
    wh.upsert("r", [(1, "ab", *rows(0, 1500)[7][2:])])
    return wh


@pytest.mark.parametrize("form", sampled(FORMS, of=2))
@pytest.mark.parametrize(("writer", "reader"), one_mode_each(KINDS, KINDS))
def test_any_engine_goes_on_with_what_any_other_saved(tmp_path, form, writer, reader) -> None:
    wh = filled(writer)
    wh.save(tmp_path / "w", format=form)
    assert bool(list(tmp_path.glob("w/data-*/maps.raw"))) == (form == "auto" and writer == "native")
    back = Warehouse.load(tmp_path / "w", engine=reader)
    assert contents(back) == contents(wh)
    assert problems(back) == []
    for each in (wh, back):
        each.insert("r", rows(2000, 2600))
        each.delete("r", rows(2000, 2600)[::2])
        each.delete("r", [row for row in rows(0, 1500)[800:900] if row[0] % 5])
    assert shown(back) == shown(wh)
    assert problems(back) == []
    back.save(tmp_path / "w", format=form)
    again = Warehouse.load(tmp_path / "w", engine=writer)
    assert contents(again) == contents(back)


@pytest.mark.parametrize("reader", KINDS)
def test_maps_without_entries_are_saved(tmp_path, reader) -> None:
    wh = Warehouse(SQL)
    wh.save(tmp_path / "w")
    back = Warehouse.load(tmp_path / "w", engine=reader)
    assert shown(back) == shown(wh)
    for each in (wh, back):
        each.insert("r", rows(0, 50))
    assert shown(back) == shown(wh)


def headers(path: Path) -> tuple[Path, dict[str, Any]]:
    (file,) = path.glob("data-*/maps.json")
    return file, json.loads(file.read_text())


def rewrite(path: Path, header: dict[str, Any]) -> None:
    """Put another header into a folder, as if it had been saved so."""
    file, _ = headers(path)
    file.write_text(json.dumps(header))
    manifest = json.loads((path / saved_folder.MANIFEST).read_text())
    manifest["files"][saved_folder.HEADER] = saved_folder._hash(file)
    (path / saved_folder.MANIFEST).write_text(json.dumps(manifest))


def other_code(header: dict[str, Any], data: bytearray) -> None:
    """Blocks of a version whose slots look otherwise: only rows can be used."""
    header["layout"] = "another"
    for told in header["maps"].values():
        for block in told["blocks"][1:]:
            data[block[2] : block[2] + block[3]] = b"\xff" * block[3]
            block[4] = blocks.zlib.crc32(b"\xff" * block[3])


def other_indexes(header: dict[str, Any], data: bytearray) -> None:
    """Rows of a version that keeps other indexes."""
    other_code(header, data)
    for told in header["maps"].values():
        told["shape"] += "i0"


def other_words(header: dict[str, Any], data: bytearray) -> None:
    """Rows whose numbers have another width here: every key is NOT NULL there."""
    other_code(header, data)
    for told in header["maps"].values():
        for value in told["values"]:
            if value[0] == "COUNT":
                value[3] = "INTEGER"


def other_machine(header: dict[str, Any], data: bytearray) -> None:
    """Words with their bytes in the other order."""
    other_code(header, data)
    header["words"] = ">i8"
    for told in header["maps"].values():
        _, _, at, size, _ = block = told["blocks"][0]
        turned = blocks.np.frombuffer(bytes(data[at : at + size]), "<i8").astype(">i8").tobytes()
        data[at : at + size] = turned
        block[4] = blocks.zlib.crc32(turned)


@pytest.mark.parametrize("change", [other_code, other_indexes, other_words, other_machine])
@pytest.mark.parametrize("reader", KINDS)
def test_blocks_that_do_not_fit_are_read_row_by_row(tmp_path, change, reader) -> None:
    wh = filled("native")
    wh.save(tmp_path / "w")
    _, header = headers(tmp_path / "w")
    (file,) = tmp_path.glob("w/data-*/maps.raw")
    data = bytearray(file.read_bytes())
    change(header, data)
    file.write_bytes(data)
    rewrite(tmp_path / "w", header)
    back = Warehouse.load(tmp_path / "w", engine=reader)
    assert contents(back) == contents(wh)
    assert problems(back) == []
    for each in (wh, back):
        each.insert("r", rows(2000, 2100))
    assert shown(back) == shown(wh)


def test_every_block_is_checked_and_damage_is_named(tmp_path) -> None:
    wh = filled("native")
    wh.save(tmp_path / "w")
    _, header = headers(tmp_path / "w")
    (file,) = tmp_path.glob("w/data-*/maps.raw")
    whole = file.read_bytes()
    blocks = [("the table of texts", header["values"]), ("the table of long numbers", header["boxes"])]
    blocks += [(f"map {name}", block[2:]) for name, told in header["maps"].items() for block in told["blocks"]]
    assert len(blocks) > 20
    for what, (at, size, _) in blocks:
        damaged = bytearray(whole)
        damaged[at + size // 2] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(errors.StoreError, match=f"the checksum of {what} is not"):
            Warehouse.load(tmp_path / "w")
    for short in (whole[:-1], b""):
        file.write_bytes(short)
        with pytest.raises(errors.StoreError, match="bytes, not"):
            Warehouse.load(tmp_path / "w")
    file.unlink()
    with pytest.raises(errors.StoreError, match=r"maps\.raw is missing"):
        Warehouse.load(tmp_path / "w")
    file.write_bytes(whole)
    assert contents(Warehouse.load(tmp_path / "w")) == contents(wh)
    headers(tmp_path / "w")[0].write_text("{}")
    with pytest.raises(errors.StoreError, match="damaged"):
        Warehouse.load(tmp_path / "w")


def test_maps_of_another_program_are_refused(tmp_path) -> None:
    Warehouse(SQL).save(tmp_path / "w")
    _, header = headers(tmp_path / "w")
    name = next(iter(header["maps"]))
    header["maps"][name]["columns"][0] += " of another"
    rewrite(tmp_path / "w", header)
    with pytest.raises(errors.MismatchError, match=rf"map {name}: (?s:.*)another program"):
        Warehouse.load(tmp_path / "w")


@pytest.mark.filterwarnings("ignore::cumulus.errors.MemoryLimitWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reader", KINDS)
def test_what_is_larger_than_the_limit_is_not_loaded(tmp_path, form, reader) -> None:
    wh = Warehouse("CREATE TABLE r (a BIGINT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    wh.insert("r", [(number,) for number in range(30_000)])
    wh.save(tmp_path / "w", format=form)
    with pytest.raises(errors.MemoryLimitError, match="memory_limit is 500"):
        Warehouse.load(tmp_path / "w", engine=reader, memory_limit="500KB")


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_leaves_the_old_one_and_its_room(tmp_path, form) -> None:
    path = tmp_path / "w"
    saving_driver.warehouse(1).save(path, format=form)
    larger = Warehouse(saving_driver.SQL)
    larger.insert("r", [(1, f"{number:0100}") for number in range(3000)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(errors.StoreError, match="cannot be written"):
            larger.save(path, format=form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert saving_driver.loaded(path) == 1
    assert len(list(path.glob("data-*"))) == 1
    larger.save(path, format=form)
    assert len(Warehouse.load(path).view("v").rows()) == 3000


def test_two_do_not_save_to_one_folder_at_once(tmp_path) -> None:
    wh = saving_driver.warehouse(1)
    wh.save(tmp_path)
    with (tmp_path / saved_folder.LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(errors.LockedError, match="being saved to"):
            wh.save(tmp_path)
        assert saving_driver.loaded(tmp_path) == 1
    wh.save(tmp_path)
    with pytest.raises(errors.UsageError, match="format is 'auto' or 'portable'"):
        wh.save(tmp_path, format="raw")


def test_what_is_not_ours_stays(tmp_path) -> None:
    wh = saving_driver.warehouse(1)
    (tmp_path / "data-2026").mkdir()
    with pytest.raises(errors.StoreError, match="not empty"):
        wh.save(tmp_path)
    wh.save(tmp_path / "w")
    (tmp_path / "w" / "data-2026").mkdir()
    wh.save(tmp_path / "w")
    assert (tmp_path / "w" / "data-2026").exists()
    assert saving_driver.loaded(tmp_path / "w") == 1


def test_who_loads_while_another_saves_gets_one_of_both(tmp_path, monkeypatch) -> None:
    saving_driver.warehouse(1).save(tmp_path)
    real, newer = saved_folder._open_data, saving_driver.warehouse(2)

    def overtaken(root: Path, manifest: dict[str, Any]) -> saved_folder.SavedState:
        monkeypatch.setattr(saved_folder, "_open_data", real)
        newer.save(root)
        return real(root, manifest)

    monkeypatch.setattr(saved_folder, "_open_data", overtaken)
    assert saving_driver.loaded(tmp_path) == 2


def driver(folder: Path, form: str, what: str) -> list[str]:
    return [sys.executable, str(Path(saving_driver.__file__)), str(folder), form, what]


@pytest.mark.parametrize("form", sampled(FORMS, of=2))
def test_a_kill_before_any_step_of_a_save_leaves_the_old_one_or_the_new_one(tmp_path, form) -> None:
    done = subprocess.run(driver(tmp_path / "w", form, "points"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 8 for count in done.stdout.split())


@pytest.mark.kill
@pytest.mark.parametrize("form", sampled(FORMS, of=2, first=1))
def test_a_kill_at_any_time_leaves_something_whole(tmp_path, form) -> None:
    choose = random.Random(5)
    for _ in range(40):
        with subprocess.Popen(driver(tmp_path / "w", form, "forever"), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(choose.random() * 0.2)
            os.kill(process.pid, 9)
        assert saving_driver.loaded(tmp_path / "w") in (1, 2, 3)


@pytest.mark.parametrize("place", ["s3://bucket/x", "file:///tmp/x", Path("gs://bucket/x")])
def test_an_address_of_another_machine_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(SQL)
    with pytest.raises(errors.UsageError, match=r"^(s3://|file:///|gs://).*only folders of this machine can be used"):
        warehouse.save(place)
    with pytest.raises(errors.UsageError, match="only folders of this machine can be used"):
        Warehouse.load(place)
    assert not list(tmp_path.iterdir())
