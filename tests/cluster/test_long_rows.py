"""A row of the most bytes that a switch takes can be read from the nodes, and a longer one is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cumulus.catalog.arrow import to_ipc
from cumulus.catalog.events import INSERT
from cumulus.cluster import codec
from cumulus.cluster.clients import client_sessions
from cumulus.cluster.clients.reads import answers
from cumulus.cluster.intake import BlockMaker
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.messages import ClientRows, EntriesRead, ReadEntries, RequestRefused, RowsAccepted
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.compiler import compile_sql
from cumulus.epochs.stages.judge import TableDelta
from cumulus.machine import Received
from cumulus.transport.framing import PAYLOAD_BYTES
from support.one_switch import sent, switch_of

SCRIPT = "CREATE TABLE r (t VARCHAR, u VARCHAR); CREATE VIEW v AS SELECT t, u, COUNT(*) AS n FROM r GROUP BY t, u;"
PROGRAM = compile_sql(SCRIPT, rely=False, enforced=False)


def rows_of(size: int) -> pa.Table:
    return rows_to_send(PROGRAM.relation("r"), INSERT, [("t" * (size // 2), "u" * (size - size // 2))])


@pytest.mark.parametrize("less", [0, 4096])
def test_what_is_accepted_can_be_read(tmp_path: Path, less: int) -> None:
    size = client_sessions.MOST_BYTES - less
    told = switch_of(tmp_path, SCRIPT).step([Received("client", ClientRows(1, "r", to_ipc(rows_of(size))))])
    is_taken = bool(sent(told, RowsAccepted))
    assert is_taken == (less > 0)
    assert bool(sent(told, RequestRefused)) != is_taken
    if not is_taken:
        return
    plan = plan_cluster(PROGRAM, 1, 1, Mode.EVENTUAL)
    part = EventualNode(NodeLife(plan, 0, "native"))
    maker = BlockMaker(Numbering(VersionOrder.CLOCK, 0), EventualSwitch(plan), frozenset())
    for _, events in maker.make(1, [TableDelta("r", rows_of(size).select(["t", "u"]), np.array([1]))]):
        part.take(-1, events)
    assert not list(part.drain())
    (answer,) = answers(part.maps, ReadEntries(1, part.maps.names.index(PROGRAM.view("v").maps[0]), [], b""))
    assert isinstance(answer, EntriesRead)
    assert sum(map(len, codec.encode(answer))) <= PAYLOAD_BYTES
