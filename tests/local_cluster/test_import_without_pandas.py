"""What a machine's process imports."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from cumulus.cluster.processes.import_without_pandas import import_pyarrow_alone
import_pyarrow_alone()
import cumulus.cluster.processes.processes
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
print(*({"pandas", "duckdb", "llvmlite", "sqlglot", "rich.console", "typer"} & sys.modules.keys()))
import pandas as pd
assert pd.Series([1, 2]).sum() == 3
"""

BEFORE = """
import sys
from importlib import import_module
from cumulus.cluster.processes.machine_modules import MACHINE_MODULES
for each in MACHINE_MODULES:
    import_module(each)
print(*({"pandas", "duckdb", "sqlglot", "rich.console", "typer"} & sys.modules.keys()))
from cumulus.cluster.processes.import_without_pandas import import_pyarrow_alone
import_pyarrow_alone()
import pyarrow.dataset
assert "pandas" not in sys.modules
"""


def test_what_forks_machines_leaves_to_them_whether_there_is_pandas() -> None:
    found = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True, check=False)
    assert (found.stdout.split(), found.stderr) == ([], "")


def test_a_machine_imports_nothing_large_before_it_needs_it() -> None:
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (found.stdout.split(), found.stderr) == ([], "")
