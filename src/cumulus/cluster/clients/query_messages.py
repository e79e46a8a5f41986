"""What is said where a client reads through a switch: it sees the switch alone, which asks the others for it.

==================  ===================================================================================================
QUERY               from a client to a switch: ask this machine
QUERYMARK           from the switch to all nodes, behind all blocks that it has sent
QUERYCHECKPOINT     from a node to a node: all is sent of a depth that follows from what was sent before the mark
FORWARDEDQUERY      from the switch to a machine: the question, to be answered when all before a mark is there
QUERYANSWER         from the machine to the switch, which passes it on
==================  ===================================================================================================

References
----------
Cumulus semester paper, section 3.2: "A switch will issue a QUERY message encoded, among with TS and the reference to
the switch a client is communicating with."
"""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.machine import Name


@dataclass(frozen=True, slots=True)
class Query:
    """From a client to a switch: what it would ask a machine that it does not see.

    Parameters
    ----------
    number
        That of the question, too; the answers have it.
    asked
        What the machine gets: of a node entries or parts, of the publisher its output or its status.
    """

    number: int
    machine: Name
    asked: object


@dataclass(frozen=True, slots=True)
class ForwardedQuery:
    """From a switch to the machine that is asked.

    Parameters
    ----------
    query
        Its number at the switch, which the answers have.
    epoch
        The last one of which this switch has sent anything; 0 if that is committed.
    mark
        The last `QueryMark` before it; 0 for none: then the end of the epoch is waited for.
    """

    query: int
    epoch: int
    mark: int
    asked: object


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """From the machine that was asked to the switch: an answer, or a part of one, as the client gets it."""

    query: int
    answer: object


@dataclass(frozen=True, slots=True)
class QueryMark:
    """From a switch to all nodes: so much was sent when a client asked.

    Parameters
    ----------
    mark
        Its number, from 1 in each incarnation.
    epoch
        Of what was sent last.
    """

    mark: int
    epoch: int


@dataclass(frozen=True, slots=True)
class QueryCheckpoint:
    """From a node to a node: all is sent of a depth that follows from what a switch sent before a mark."""

    switch: Name
    mark: int
    depth: int
