"""Messages between the nodes of a simulated ring as lines, for who reads a trace."""

from __future__ import annotations

from cumulus.experiments.ring_seeds.member import RingTold
from cumulus.ring.messages import ChunkSent, CreditCame, RequestsCame, SendChunk


def message_text(message: object) -> str:
    """Return a message as a line.

    Examples
    --------
    >>> message_text(RingTold(2, ("node0", "node2")))
    'ring epoch 2 of node0, node2'
    """
    match message:
        case RingTold(ring_epoch, members):
            return f"ring epoch {ring_epoch} of {', '.join(members)}"
        case SendChunk(header):
            return (
                f"chunk {header.chunk} of {header.home}, life {header.ring_epoch}.{header.incarnation}, "
                f"cycle {header.cycles}, {header.copies} of {header.hops} used it, interest {header.loi:.2f}"
            )
        case RequestsCame(requests):
            return "requests for " + ", ".join(
                f"{each.chunk} by {each.origin}" + f": {each.refusal}" * bool(each.refusal) for each in requests
            )
        case ChunkSent(slot):
            return f"slot {slot} has come"
        case CreditCame(count):
            return f"room for {count} bytes"
        case _:
            return repr(message)
