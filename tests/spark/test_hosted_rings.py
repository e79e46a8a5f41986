"""A ring in the executors of Spark, and in the actors of Ray: TPC-H at each node, with a worker killed at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cumulus.spark.java import find_java

pytestmark = pytest.mark.spark_hosts
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "engine", ["spark", pytest.param("ray", marks=pytest.mark.skipif(find_spec("ray") is None, reason="no Ray"))]
)
def test_a_ring_runs_where_an_engine_has_places(engine: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JAVA_HOME": find_java().home, "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "support.hosted_tables", engine, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    said = done.stdout.splitlines()
    assert any(line.startswith("refused: 5 hosts are asked for, and the") for line in said)
    assert "right at node1 node2 node3" in said
    assert said[-1] == "nothing is left"
    if engine == "ray":
        assert "it has come back" in said
    else:
        assert "[(60175,)]" in said, "the page's ring"
        assert any(line.startswith("told: Spark has ended the tasks with the nodes of a ring") for line in said)
