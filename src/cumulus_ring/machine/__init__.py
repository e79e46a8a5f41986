"""The ring: nodes that let hot chunks of data go round, clockwise, and requests for them the other way.

Owns the rules: what is asked for, loaded, passed on, kept and forgotten, as one machine without input and output. It
does not know what a chunk holds, where it is read from, or what a query does with it: a chunk is a number, a size and a
slot. Who drives a node is told by `messages`; each rule cites the resolution that it follows (E1-E43).

Names here are imported when they are first used: a client of a ring needs no node.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulus_ring.machine.node import RingNode, RingStatus
    from cumulus_ring.machine.settings import RingSettings

__all__ = ["RingNode", "RingSettings", "RingStatus"]

_MODULES = {"RingNode": "node", "RingSettings": "settings", "RingStatus": "node"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
