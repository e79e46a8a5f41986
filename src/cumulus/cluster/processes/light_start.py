"""The first thing that a machine's process does: it lets PyArrow do without pandas.

PyArrow imports pandas, where there is one, as soon as an array is made. Nothing here has frames, and pandas takes as
long as all else that a process imports. A program's own functions may want PyArrow with pandas, and then have it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from cumulus.machine import Name
    from cumulus.transport.equipment import Equipment


class _NoPandas(MetaPathFinder):
    """Finds that there is no pandas."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def leave_pandas_out() -> None:
    """Let PyArrow look for pandas now and find none; whoever imports pandas afterwards gets it."""
    if "pandas" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)


def start_machine(name: Name, argument: Mapping[str, Any]) -> Equipment:
    """Return the machine that a process is to drive.

    Parameters
    ----------
    argument
        As `cumulus.cluster.processes.processes.equip` takes it, with "has_functions": whether there are any of the
        user's.
    """
    if not argument["has_functions"]:
        leave_pandas_out()
    from cumulus.cluster.processes.processes import equip

    return equip(name, argument)
