"""Messages between the nodes of a simulated ring: through the bytes that real ones send, and as lines of a trace."""

from __future__ import annotations

import pickle
from dataclasses import replace

from cumulus_lab.experiments.ring_seeds.member import RingTold
from cumulus_lab.simulation import Wire
from cumulus_ring.machine.messages import ChunkSent, CreditCame, RequestsCame, SendChunk, SendStraight, StraightSent
from cumulus_ring.process.wire import decode_header, decode_requests, encode_header, encode_requests


def encode(message: object) -> bytes:
    """Return a message as bytes; headers and requests as real nodes send them."""
    match message:
        case SendChunk(header, slot):
            return b"c" + pickle.dumps((encode_header(header), slot, header.stamp))
        case SendStraight(header, slot, to):
            return b"s" + pickle.dumps((encode_header(header), slot, to, header.stamp))
        case RequestsCame(requests):
            return b"r" + encode_requests(requests)
        case _:
            return b"p" + pickle.dumps(message)


def decode(said: bytes) -> object:
    """Return a message."""
    match said[:1]:
        case b"c":
            header, slot, stamp = pickle.loads(said[1:])
            return SendChunk(replace(decode_header(header), stamp=stamp), slot)
        case b"s":
            header, slot, to, stamp = pickle.loads(said[1:])
            return SendStraight(replace(decode_header(header), stamp=stamp), slot, to)
        case b"r":
            return RequestsCame(decode_requests(said[1:]))
        case _:
            return pickle.loads(said[1:])


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
                + (f", {header.stamp}" if header.stamp is not None else "")
            )
        case RequestsCame(requests):
            return "requests for " + ", ".join(
                f"{each.chunk} by {each.origin}" + f": {each.refusal}" * bool(each.refusal) for each in requests
            )
        case SendStraight(header, _, to):
            return f"chunk {header.chunk} of {header.home}, straight to {to}"
        case StraightSent(slot, to):
            return f"slot {slot} has come to {to}"
        case ChunkSent(slot):
            return f"slot {slot} has come"
        case CreditCame(count):
            return f"room for {count} bytes"
        case _:
            return repr(message)


RING_WIRE = Wire(encode, decode, message_text)
