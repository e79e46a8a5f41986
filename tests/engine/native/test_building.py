"""Machine code is found in the cache, made again where that is damaged, and loaded wherever there is memory."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.engine.native import build
from cumulus.engine.native.engine import NativeEngine

SQL = "CREATE TABLE r (a INT NOT NULL); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a"

FAR_APART = f"""
import ctypes

from cumulus import Warehouse

PAGE, ANONYMOUS = 4096, 0x4022  # private, and nothing is set aside for it
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def taken(size):
    return libc.mmap(None, size, 0, ANONYMOUS, -1, 0)


Warehouse({SQL.replace("a INT", "a TEXT")!r})  # all that is loaded once is
wall = taken(8 << 30)
page = taken(PAGE)
while page > wall:  # the highest hole is taken first: fill all above the wall
    last, page = page, taken(PAGE)
libc.munmap(last, PAGE)
wh = Warehouse({SQL!r})
wh.insert("r", [(1,), (1,)])
print(wh.view("v").rows())
"""
"""Compiles where one page is free, and the next one eight gigabytes away."""


def test_code_need_not_lie_in_one_place() -> None:
    done = subprocess.run([sys.executable, "-c", FAR_APART], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("[(1, 2)]\n", 0), done.stderr


@pytest.mark.parametrize("suffix", ["plan", "o"])
@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:-1] + b"?", lambda data: b""])
def test_a_damaged_file_is_made_again(suffix, damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_CACHE", str(tmp_path))
    program = compile_sql(SQL)
    build.forget()
    NativeEngine(program)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in tmp_path.glob(f"*.{suffix}"):
        path.write_bytes(damage(files[path]))
    build.forget()
    engine = NativeEngine(program)
    engine.begin()
    engine.on_event(1, "r", (1,))
    engine.commit()
    assert dict(engine.items("v")) == {(1,): (1,)}
    sizes = {path: len(data) for path, data in files.items()}
    assert {path: len(path.read_bytes()) for path in tmp_path.iterdir()} == sizes
    build.forget()


@pytest.mark.parametrize("folder", ["there", "file/below"])
def test_a_cache_that_cannot_be_written_is_none(folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUMULUS_CACHE", str(tmp_path / folder))
    program = compile_sql(SQL)
    build.forget()
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # a file ends where a disk would be full
    try:
        engine = NativeEngine(program)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    engine.begin()
    engine.on_event(1, "r", (1,))
    engine.commit()
    assert dict(engine.items("v")) == {(1,): (1,)}
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["file"]
    build.forget()


def test_the_cache_knows_all_sources_that_decide_code() -> None:
    """Whatever is imported to write code is part of its name, and a change of its text is another name."""
    script = (
        "import sys, cumulus.engine.native.build\n"
        "print(*(each.__file__ for name, each in sys.modules.items() if name.startswith('cumulus.')), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    package = Path(build.version.__file__).parent
    used = {Path(each).relative_to(package).parts[0] for each in done.stdout.split()}
    assert used - {*build.SOURCES} == set()


@pytest.mark.parametrize("changed", ["scalars/arithmetic.py", "engine/native/code/adders.py", "version.py"])
def test_another_source_is_another_name(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(build.version.__file__).parent
    copy = tmp_path / "cumulus"
    copy.mkdir()
    for source in build.SOURCES:
        copying = shutil.copytree if (package / source).is_dir() else shutil.copy2
        copying(package / source, copy / source)
    monkeypatch.setattr(build.version, "__file__", str(copy / "version.py"))
    before = build._source.__wrapped__()
    place = copy / changed
    stat, text = place.stat(), place.read_text()
    place.write_text(text.replace("0", "1", 1))  # as many bytes, and the times that it had
    os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert build._source.__wrapped__() != before
    place.write_text(text)
    assert build._source.__wrapped__() == before
    monkeypatch.setattr(build.version, "VERSION", "0.0.0")
    assert build._source.__wrapped__() != before
