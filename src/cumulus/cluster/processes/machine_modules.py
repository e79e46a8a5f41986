"""What a process imports from which the machines of a cluster are forked: all that most of them need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from cumulus.transport.forked_processes import ForkServer

MACHINE_MODULES = (
    "cumulus.transport.process",
    "cumulus.cluster.processes.import_without_pandas",
    "cumulus.cluster.processes.machine_states",
    "cumulus.engine.native.engine",
    "cumulus.epochs.bucket.native_positions",
    "numpy.ma",
)
"""The last ones are what machines import later. None imports pandas, as `pyarrow.dataset` does: whether PyArrow finds
that is decided in the machine (`cumulus.cluster.processes.import_without_pandas`).
"""


def fork_server(note: Callable[[str], None]) -> ForkServer:
    """Start a process that forks machines of a cluster; `note` takes a line about it."""
    return ForkServer(MACHINE_MODULES, note)


def forks_beside(note: Callable[[str], None], *, has_hosts: bool) -> AbstractContextManager[ForkServer | None]:
    """Return what forks machines of this computer, to be entered: None where all machines are on hosts of agents."""
    return nullcontext() if has_hosts else fork_server(note)
