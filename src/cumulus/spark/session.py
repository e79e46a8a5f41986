"""A Spark session with the settings that the pipeline was measured with, and a Java to run it on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cumulus.errors import MissingError
from cumulus.spark.java import find_java
from cumulus.spark.private_folder import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def local_session(
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
    # Spark's helpers print to the JVM's output, which is ours: a terminal belongs to our progress and results.
    with log_file().open("ab") as log:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(gateway=gateway, conf=conf))


def log_file() -> Path:
    """Return the file that Spark's own words go to."""
    return private_folder() / f"spark-{os.getpid()}.log"


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
        # Java's second compiler takes the cores of the tasks: with it, the first dozen triggers took a quarter longer.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} -XX:TieredStopAtLevel=1",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if memory:
        settings["spark.driver.memory"] = memory
    return settings
