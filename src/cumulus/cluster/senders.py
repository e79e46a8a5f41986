"""Who may send what to whom: clients ask, and machines tell each other what their kinds do.

It is asked for each message before its receiver hears of it, so that what a stranger makes up ends its own link and no
machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from cumulus.cluster.messages import (
    ClientRows,
    Deltas,
    EpochCommit,
    EpochEnd,
    EpochPart,
    EpochReady,
    EpochRefused,
    EpochTurn,
    EpochWanted,
    Events,
    MapCheckpoint,
    ReadEntries,
    ReadParts,
    StatusAsked,
    node_name,
    switch_name,
)
from cumulus.cluster.output_files import ListOutput, OutputFile, ReadOutput
from cumulus.cluster.publisher import PUBLISHER
from cumulus.machine import Name

_SWITCH, _NODE, _CLIENT = "switch", "node", "client"
_SENDERS: Mapping[str, Mapping[type, tuple[str, ...]]] = {
    PUBLISHER: {
        OutputFile: (_SWITCH, _NODE),
        EpochReady: (_SWITCH, _NODE),
        EpochRefused: (_SWITCH, _NODE),
        EpochWanted: (_SWITCH,),
        StatusAsked: (_CLIENT,),
        ReadOutput: (_CLIENT,),
        ListOutput: (_CLIENT,),
    },
    _SWITCH: {
        EpochTurn: (PUBLISHER,),
        EpochCommit: (PUBLISHER,),
        ClientRows: (_CLIENT,),
        StatusAsked: (_CLIENT,),
    },
    _NODE: {
        Events: (_SWITCH,),
        EpochPart: (_SWITCH,),
        EpochEnd: (_SWITCH,),
        Deltas: (_NODE,),
        MapCheckpoint: (_NODE,),
        EpochCommit: (PUBLISHER,),
        ReadEntries: (_CLIENT,),
        ReadParts: (_CLIENT,),
        StatusAsked: (_CLIENT,),
    },
}
"""Kind of the receiver → message → kinds of machines that send it."""


class Senders:
    """What a machine of a cluster takes from whom.

    Parameters
    ----------
    me
        The machine.
    nodes, switches
        How many there are; everybody else is a client.
    """

    def __init__(self, me: Name, nodes: int, switches: int) -> None:
        self._kinds = {
            PUBLISHER: PUBLISHER,
            **dict.fromkeys(map(switch_name, range(switches)), _SWITCH),
            **dict.fromkeys(map(node_name, range(nodes)), _NODE),
        }
        self._taken = _SENDERS[self._kinds[me]]

    def may_send(self, sender: Name, message: object) -> bool:
        """Whether a message may come from there."""
        return self._kinds.get(sender, _CLIENT) in self._taken.get(type(message), ())
