"""A Spark session with the settings that the pipeline was measured with, and a Java to run it on."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cumulus.errors import MissingError, UsageError
from cumulus.spark.bucket_template import start_template
from cumulus.spark.java import find_java
from cumulus.spark.private_folder import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_has_log = False
"""Whether this process has a session whose words go to `log_file`."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
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
    active = _active_session()
    if active is not None:
        return active
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS"):
        os.environ.setdefault(variable, "1")  # workers inherit them; a task is one thread
    start_template(log_file())
    threads = cores or os.cpu_count() or 1
    return _launch(f"local[{threads},4]", name, {**_settings(threads, memory), **(settings or {})})


def session(master: str = "", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session that a command runs in.

    Under ``spark-submit`` and in a notebook that is the session there is, as it is.

    Parameters
    ----------
    master
        A URL such as ``spark://host:7077``, ``yarn`` or ``local[4]``; ``sc://host`` is a Spark Connect server. Empty is
        a `local_session`.
    settings
        Spark settings.

    Raises
    ------
    UsageError
        If there is a session, and a master or settings are given that it cannot have any more.
    MissingError
        Without pyspark or Java.
    """
    active = _active_session()
    if active is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has begun one
        from pyspark.sql import SparkSession

        active = SparkSession.builder.getOrCreate()
    if active is not None:
        if master or settings:
            raise UsageError(
                "there is a Spark session already, which is used as it is",
                hint="Give --master and --conf to spark-submit, or to whoever makes the session.",
            )
        return active
    if not master:
        return local_session(settings=dict(settings or {}))
    if master.startswith("sc://"):
        from pyspark.sql import SparkSession

        _check_answers(master)
        try:
            builder = SparkSession.builder.remote(master)
            for setting, value in (settings or {}).items():
                builder = builder.config(setting, value)
            return builder.getOrCreate()
        except ImportError as problem:
            raise MissingError(
                f"--master {master}: a package of Spark Connect is missing: {problem.name or problem}",
                hint="pip install 'cumulus-ivm[connect]'",
            ) from None
    return _launch(master, "cumulus", dict(settings or {}))


def _check_answers(master: str) -> None:
    """Check that somebody listens at the address of a server of Spark Connect: its client tries for minutes.

    Raises
    ------
    UsageError
        If not.
    """
    place = urlsplit(master)
    try:
        socket.create_connection((place.hostname or "", place.port or 15002), timeout=10.0).close()
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"--master {master}: no server of Spark Connect answers there: {problem}",
            hint="Give sc://HOST:PORT of one that runs; the port is 15002 if it is left out.",
        ) from None


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, whose driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run side by side, as Spark says."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id

    return spark.range(1 << 10).select(spark_partition_id()).distinct().count()


def state_provider(spark: SparkSession) -> str:
    """Return the state store for a query: the session's, if `transformWithState` runs on it, as on a platform's own."""
    provider = str(spark.conf.get(PROVIDER, None))
    return provider if "RocksDB" in provider else STATE_PROVIDER


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a Spark setting inside a block; a query keeps what it was started with."""
    old = spark.conf.get(name)
    assert old is not None
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, old)


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings that ``NAME=VALUE`` texts give.

    Raises
    ------
    UsageError
        If one has no name or no value.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--conf {text}", hint="Give NAME=VALUE, such as spark.executor.memory=4g.")
        found[name] = value
    return found


def _active_session() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingError(
            "pyspark is not installed", hint="pip install 'cumulus-ivm[spark]', or run with --host embedded."
        ) from None
    return SparkSession.getActiveSession()


def _launch(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a JVM with a session."""
    os.environ["JAVA_HOME"] = find_java().home
    if "spark.pyspark.python" in settings:  # which pyspark itself takes from spark-submit alone
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setMaster(master).setAppName(name)
    conf.setAll(list(settings.items()))
    global _has_log
    # Spark's helpers print to the JVM's output, which is ours: a terminal belongs to our progress and results.
    with log_file().open("ab") as log:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        _has_log = True
    return SparkSession(SparkContext(gateway=gateway, conf=conf))


def log_file() -> Path:
    """Return the file that Spark's own words go to, in a session of `local_session`."""
    return private_folder() / f"spark-{os.getpid()}.log"


def log_place() -> str:
    """Return where Spark's own words are, for an error: of sessions that others have made nobody knows."""
    return f"in {log_file()}" if _has_log else "in the log of its driver"


def _settings(threads: int, memory: str) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.sql.shuffle.partitions": str(threads),
        PROVIDER: STATE_PROVIDER,
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
        # Over TCP, Python's workers wait 40 ms for an acknowledgement in each task that reads.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if memory:
        settings["spark.driver.memory"] = memory
    return settings
