"""Start of a machine's process that imports PyArrow without pandas.

PyArrow imports an installed pandas when the first array is made. A machine has no data frames, and importing pandas
takes as long as all other imports of the process. If the program has user functions, pandas stays, because they may
need it.
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
    from cumulus.transport.machine_spec import MachineSpec


class _NoPandas(MetaPathFinder):
    """Import hook that reports pandas as not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def import_pyarrow_alone() -> None:
    """Make PyArrow look for pandas now and not find it; a later `import pandas` works."""
    if "pandas" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(finder)


def start_machine(name: Name, argument: Mapping[str, Any]) -> MachineSpec:
    """Return the machine that a process is to drive.

    Parameters
    ----------
    argument
        As `cumulus.cluster.processes.processes.equip` takes it, with "has_functions": whether there are any of the
        user's.
    """
    if not argument["has_functions"]:
        import_pyarrow_alone()
    from cumulus.cluster.processes.processes import equip

    return equip(name, argument)
