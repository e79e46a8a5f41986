"""One switch of a cluster, stepped by hand, with rows of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.catalog.arrow import to_ipc
from cumulus.catalog.events import INSERT
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.cluster.machine_tasks import Payloads, ReadFiles
from cumulus.cluster.messages import ClientRows, EpochEnd, EpochTurn, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import equip
from cumulus.compiler import compile_sql
from cumulus.machine import Append, Completed, Effect, Machine, Received, Send

TABLES = """
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE TABLE sales (p INT NOT NULL, amount INT NOT NULL);
"""
VIEWS = {
    "by_town": "SELECT town, SUM(amount) AS a, COUNT(*) AS n FROM sales JOIN people USING (p) GROUP BY town",
    "amounts": "SELECT p, SUM(amount) AS a FROM sales GROUP BY p",
    "different": "SELECT COUNT(DISTINCT amount) AS n FROM sales",
}
SCRIPT = TABLES + "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())
PROGRAM = compile_sql(SCRIPT, rely=False, enforced=False)


def switch_of(tmp_path: Path, script: str = SCRIPT, **settings: Any) -> Machine:
    """Return the only switch of a new cluster."""
    program = compile_sql(script, rely=False, enforced=False)
    with Home(
        program, (), tmp_path, None, mode=Mode.EVENTUAL, nodes=1, switches=1, engine="interpreter", **settings
    ) as home:
        spec = equip("switch0", {"home": home.settings.home})
        assert spec.log is not None
        spec.log.close()
        return spec.machine


def sent_rows(number: int, amount: int, table: str = "sales") -> Received:
    return Received(
        "client", ClientRows(number, table, to_ipc(rows_to_send(PROGRAM.relation("sales"), INSERT, [(1, amount)])))
    )


def sent(effects: list[Effect], kind: type) -> list[Any]:
    return [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def records(effects: list[Effect]) -> list[bytes]:
    return [each.record for each in effects if isinstance(each, Append)]


def ended(switch: Machine, epoch: int) -> list[Effect]:
    """Tell a switch an epoch without files; return what it does at its end."""
    effects = switch.step([Received("publisher", EpochTurn(epoch, {}, False))])
    read = Completed(ReadFiles(epoch, {}), Payloads([b""], b""))
    return effects + (switch.step([read]) if not sent(effects, EpochEnd) else [])


def amounts(effects: list[Effect]) -> list[int]:
    """Return the amounts that nodes hear of."""
    blocks = [block for events in sent(effects, Events) for block in events.blocks]
    return [
        each
        for block in blocks
        if "amount" in block.table().column_names
        for each in block.table()["amount"].to_pylist()
    ]
