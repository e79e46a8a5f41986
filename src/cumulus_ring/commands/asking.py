"""`cumulus ring query`, `explain` and `status`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import typer

from cumulus.algebra.printing import quoted
from cumulus.cli.row_output import ARROW, AS_CSV, AS_JSON, PARQUET, RowOutput
from cumulus_ring.commands.running import HOME, RING, SECRET_FILE, client_of

SQL = typer.Argument(..., help="One SELECT over the tables of the ring.")
EPOCH = typer.Option(0, "--epoch", min=0, help="Which epoch of the tables; 0 for the last one.")
NODE = typer.Option("any", "--node", help="Which node is to answer; any for the one with the lowest price.")
JSON = typer.Option(False, "--json", help="Print JSON.")


def query(
    sql: str = SQL,
    home: Path = HOME,
    ring: str = RING,
    secret_file: Path | None = SECRET_FILE,
    node: str = NODE,
    epoch: int = EPOCH,
    timeout: float | None = typer.Option(None, "--timeout", min=0.001, help="Give the query up after so many seconds."),
    split: bool = typer.Option(True, "--split/--no-split", help="Whether all nodes may compute parts of it."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
    parquet: Path | None = PARQUET,
    arrow: Path | None = ARROW,
) -> None:
    """Ask a ring that runs; Ctrl-C cancels the query.

    Example: cumulus ring query "SELECT count(*) FROM lineitem"
    """
    from cumulus.cli.terminal.consoles import plain_console

    output = RowOutput(as_json, as_csv, parquet, arrow)
    answer = client_of(home, ring, secret_file).query(sql, node=node, epoch=epoch, timeout=timeout, split=split)
    output.write(answer.arrow())
    if as_json or as_csv:
        return
    plain_console(to_errors=True).print(f"epoch {answer.epoch}, by {answer.node}", soft_wrap=True)


def tables(
    name: str = typer.Argument("", help="A table, for its columns; all tables if not given.", show_default=False),
    home: Path = HOME,
    ring: str = RING,
    secret_file: Path | None = SECRET_FILE,
    epoch: int = EPOCH,
    as_json: bool = AS_JSON,
) -> None:
    """List the tables of a ring with their rows, or the columns of one.

    Example: cumulus ring tables lineitem
    """
    import pyarrow as pa

    client = client_of(home, ring, secret_file)
    if name:
        columns = f'SELECT column_name AS "column", column_type AS type FROM (DESCRIBE {quoted(name)})'
        RowOutput(as_json).write(client.query(columns, epoch=epoch).arrow())
        return
    found = client.tables(epoch=epoch)
    rows = {"table": list(found), "rows": [each["rows"] for each in found.values()]}
    RowOutput(as_json).write(pa.table({**rows, "columns": [each["columns"] for each in found.values()]}))


def explain(
    sql: str = SQL,
    home: Path = HOME,
    ring: str = RING,
    secret_file: Path | None = SECRET_FILE,
    node: str = NODE,
    epoch: int = EPOCH,
    as_json: bool = JSON,
) -> None:
    """Say what a query would ask for, and how it would run.

    Example: cumulus ring explain "SELECT sum(l_tax) FROM lineitem"
    """
    text, plan = client_of(home, ring, secret_file).explain(sql, node=node, epoch=epoch)
    print(json.dumps(plan, indent=1, ensure_ascii=False) if as_json else text, end="\n" if as_json else "")


def status(
    home: Path = HOME,
    ring: str = RING,
    secret_file: Path | None = SECRET_FILE,
    watch: bool = typer.Option(False, "--watch", help="Every second, until Ctrl-C."),
    as_json: bool = JSON,
) -> None:
    """Say of each node what it holds, what goes round, and what waits.

    Example: cumulus ring status --watch
    """
    from rich.live import Live

    from cumulus.cli.terminal.consoles import plain_console
    from cumulus_ring.process.status_table import status_table

    client = client_of(home, ring, secret_file)
    if not watch:
        said = client.status()
        if as_json:
            print(json.dumps(said, indent=1))
        else:
            plain_console().print(status_table(said))
        return
    if as_json:
        while True:
            print(json.dumps(client.status()), flush=True)
            time.sleep(1.0)
    with Live(status_table(client.status()), console=plain_console()) as live:
        while True:
            time.sleep(1.0)
            live.update(status_table(client.status()))
