"""Who may send what to whom: clients ask, and machines tell each other what their kinds do.

It is asked for each message before its receiver hears of it, so that what a stranger makes up ends its own link and no
machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from cumulus.cluster.clients.query_messages import ForwardedQuery, Query, QueryAnswer, QueryCheckpoint, QueryMark
from cumulus.cluster.messages import (
    ClientRows,
    EpochCommit,
    EpochEnd,
    EpochPart,
    EpochReady,
    EpochRefused,
    EpochToken,
    EpochTurn,
    EpochWanted,
    MapCheckpoint,
    ReadEntries,
    ReadParts,
    StatusAsked,
    node_name,
    switch_name,
)
from cumulus.cluster.output_files import ListOutput, OutputFile, ReadOutput
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.standby.copies import (
    CopyForget,
    CopyHeld,
    CopyKept,
    CopyOffered,
    CopyRecord,
    CopyState,
    CopyWhole,
)
from cumulus.cluster.standby.standby import STANDBY, standby_name
from cumulus.cluster.switches.files_elsewhere import FilesAsked, FilesFound
from cumulus.machine import Name

SWITCH, NODE, _CLIENT = "switch", "node", "client"
_SENDERS: Mapping[str, Mapping[type, tuple[str, ...]]] = {
    PUBLISHER: {
        OutputFile: (SWITCH, NODE),
        FilesFound: (SWITCH,),
        EpochReady: (SWITCH, NODE),
        EpochRefused: (SWITCH, NODE),
        EpochWanted: (SWITCH, NODE),
        StatusAsked: (_CLIENT,),
        ReadOutput: (_CLIENT,),
        ListOutput: (_CLIENT,),
        ForwardedQuery: (SWITCH,),
    },
    SWITCH: {
        EpochTurn: (PUBLISHER,),
        EpochReady: (SWITCH, NODE),
        EpochCommit: (PUBLISHER,),
        EpochToken: (SWITCH,),
        FilesAsked: (PUBLISHER,),
        ClientRows: (_CLIENT,),
        Query: (_CLIENT,),
        QueryAnswer: (PUBLISHER, NODE),
        StatusAsked: (_CLIENT,),
        CopyHeld: (STANDBY,),
        CopyKept: (STANDBY,),
    },
    NODE: {
        EpochPart: (SWITCH,),
        EpochEnd: (SWITCH,),
        MapCheckpoint: (NODE,),
        EpochCommit: (PUBLISHER, SWITCH),
        ReadEntries: (_CLIENT,),
        ReadParts: (_CLIENT,),
        ForwardedQuery: (SWITCH,),
        QueryMark: (SWITCH,),
        QueryCheckpoint: (NODE,),
        StatusAsked: (_CLIENT,),
        CopyHeld: (STANDBY,),
        CopyKept: (STANDBY,),
    },
    STANDBY: {
        **dict.fromkeys((CopyOffered, CopyWhole, CopyRecord, CopyState, CopyForget), (SWITCH, NODE)),
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
    takes
        Kind of machine → message of the cluster's protocol → the kind of machine that sends it there.
    hosts
        How many there are: each may have a standby.
    """

    def __init__(
        self, me: Name, nodes: int, switches: int, takes: Mapping[str, Mapping[type, str]], hosts: int = 0
    ) -> None:
        self._kinds = {
            PUBLISHER: PUBLISHER,
            **dict.fromkeys(map(switch_name, range(switches)), SWITCH),
            **dict.fromkeys(map(node_name, range(nodes)), NODE),
            **dict.fromkeys(map(standby_name, range(hosts)), STANDBY),
        }
        self._taken = dict(_SENDERS[self._kinds[me]])
        self._taken |= {message: (kind,) for message, kind in takes.get(self._kinds[me], {}).items()}

    def may_send(self, sender: Name, message: object) -> bool:
        """Whether a message may come from there."""
        return self._kinds.get(sender, _CLIENT) in self._taken.get(type(message), ())
