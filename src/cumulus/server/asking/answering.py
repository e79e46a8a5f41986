"""The process of a query: ``python -m cumulus.server.asking.answering``. It takes questions until its input ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

import duckdb
import pyarrow as pa

from cumulus.algebra.printing import print_text, quoted
from cumulus.errors import LimitError, QueryTimeoutError, UsageError
from cumulus.server.asking.protocol import READY, receive, receive_table, send, send_table
from cumulus.views.duckdb_sql.functions import set_utc
from cumulus.views.duckdb_sql.limits import NOTHING_ELSE, ApartQuery, lock
from cumulus.views.duckdb_sql.selects import select
from cumulus.views.measuring.functions import create_finishing

_HIGHER = "Ask for less of it, or start the server with a higher --limit query_bytes."
_NICE = 5
"""Writers and small requests go first."""


def main(memory: int) -> None:
    """Answer until there are no more questions.

    Parameters
    ----------
    memory
        Of DuckDB, in bytes; the server ends the process when it takes more.
    """
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(OSError):  # where the system has it: it ends this process before the server
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.nice(_NICE)
    send(answers, READY)
    while True:
        try:
            asked: ApartQuery = receive(questions)
        except EOFError:
            return
        names: list[str] = receive(questions)
        tables = {name: receive_table(questions) for name in names}
        _answer(replace(asked, tables=tables), memory, answers)


def _answer(asked: ApartQuery, memory: int, answers: IO[bytes]) -> None:
    try:
        table = _result(asked, memory)
    except (UsageError, LimitError, QueryTimeoutError) as problem:
        send(answers, (type(problem).__name__, problem.message, problem.hint))
    except duckdb.OutOfMemoryException:
        send(answers, ("LimitError", f"the query takes more memory than the {memory:,} bytes of all", _HIGHER))
    except duckdb.Error as problem:
        send(answers, (type(problem).__name__, str(problem), ""))
    else:
        send(answers, None)
        send_table(answers, table)


def _result(asked: ApartQuery, memory: int) -> pa.Table:
    with duckdb.connect(config={**NOTHING_ELSE, "memory_limit": f"{memory}B"}) as connection:
        set_utc(connection)
        for name, table in asked.tables.items():
            connection.register(name, table)
        for name, paths in asked.files.items():
            listed = ", ".join(print_text(path) for path in paths)
            connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM read_parquet([{listed}])")
        for name, sql in asked.selects.items():
            connection.execute(f"CREATE VIEW {quoted(name)} AS {sql}")
        if asked.is_measured:
            create_finishing(connection)
        lock(connection, [path for paths in asked.files.values() for path in paths])
        with asked.limits.stopping(connection):
            return select(connection, asked.sql, asked.parameters, asked.limits.collect)


if __name__ == "__main__":
    main(int(sys.argv[1]))
