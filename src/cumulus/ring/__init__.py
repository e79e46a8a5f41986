"""The ring: nodes that let hot chunks of data go round, clockwise, and requests for them the other way.

Owns the rules: what is asked for, loaded, passed on, kept and forgotten, as one machine without input and output. It
does not know what a chunk holds, where it is read from, or what a query does with it: a chunk is a number, a size and a
slot. Who drives a node is told by `cumulus.ring.messages`; each rule cites the resolution that it follows (E1-E43).
"""

from cumulus.ring.node import RingNode, RingStatus
from cumulus.ring.settings import RingSettings

__all__ = ["RingNode", "RingSettings", "RingStatus"]
