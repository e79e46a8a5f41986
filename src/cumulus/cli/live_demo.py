"""`cumulus demo --serve`: the year of flights behind a server, week by week, on a page that is alive."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cumulus.errors import CumulusError, DataError

if TYPE_CHECKING:
    from cumulus.catalog.events import Event
    from cumulus.http_client.client import HttpClient

CUBE = """
CREATE CUBE delays
  DIMENSION date (month, day)
  DIMENSION route (origin, dest)
  DIMENSION carrier
  KEEP (month, carrier), (origin)
AS SELECT month, day, origin, dest, carrier, COUNT(*) AS flights, AVG(dep_delay) AS departure_delay,
          AVG(arr_delay) AS arrival_delay, MAX(dep_delay) AS worst
   FROM flights GROUP BY ALL;
"""
SENT_AT_ONCE = 250
"""So many rows are a transaction: a few go by in a second, and are seen to."""


class LiveDemo:
    """Plays the year on a server, and checks its views when it is over.

    Parameters
    ----------
    seconds
        How long a week takes, at least.
    """

    def __init__(self, out: Path, epochs: int, seconds: float, console: Console) -> None:
        self._out, self._epochs, self._seconds, self._console = out, epochs, seconds, console
        self._is_over = threading.Event()
        self.wrong: list[str] = []
        """What differs from DuckDB's answers."""

    def run(self, port: int, stays: bool) -> None:
        """Serve until Ctrl-C; unless it `stays`, until the year is over."""
        from cumulus.server.process import serve
        from cumulus.server.settings import ServerSettings
        from cumulus.workloads import flights

        self._out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._out / "data", ignore_errors=True)
        script = self._out / "live.sql"
        script.write_text(flights.sql() + CUBE, encoding="utf-8")
        settings = ServerSettings(self._out / "data", port=port, sync="100ms")
        threads: list[threading.Thread] = []

        def ready(address: str) -> None:
            self._console.print(f"The year plays at {address}/#cube (Ctrl-C ends it)", style="bold", soft_wrap=True)
            threads.append(threading.Thread(target=self._play, args=(address, stays)))
            threads[0].start()

        serve(script, settings, ready)
        self._is_over.set()
        for thread in threads:
            thread.join()

    def _play(self, address: str, stays: bool) -> None:
        from cumulus import connect
        from cumulus.workloads import flights

        refused = set(flights.quarantined())
        try:
            with connect(address) as client:
                for number, week in enumerate(flights.events(epochs=self._epochs, duplicates=True), start=1):
                    started = time.monotonic()
                    if not self._send(client, week, refused):
                        return
                    self._console.print(f"week {number} of {self._epochs}: {len(week):,} changes", soft_wrap=True)
                    self._is_over.wait(self._seconds - (time.monotonic() - started))
                self._check(client)
        except CumulusError as problem:
            if not self._is_over.is_set():
                self.wrong.append(problem.message)
                self._console.print(f"The demo stopped: {problem.message}", style="bold", soft_wrap=True)
        if not stays:
            signal.raise_signal(signal.SIGINT)

    def _send(self, client: HttpClient, week: list[Event], refused: set[Event]) -> bool:
        """Send a week, a few rows at a time over its seconds; return whether somebody still looks."""
        parts = [week[first : first + SENT_AT_ONCE] for first in range(0, len(week), SENT_AT_ONCE)]
        for part in parts:
            if self._is_over.wait(0.8 * self._seconds / len(parts)):
                return False
            with client.transaction() as changes:
                for (sign, table), events in groupby(
                    (event for event in part if event not in refused), key=lambda event: (event.sign, event.relation)
                ):
                    (changes.insert if sign > 0 else changes.delete)(table, [event.row for event in events])
            for event in refused.intersection(part):
                try:
                    client.insert(event.relation, [event.row])
                except DataError:
                    continue  # its key is taken: the page tells it under problems
        return True

    def _check(self, client: HttpClient) -> None:
        """Compare every view with DuckDB's answer from the tables as they were played."""
        from cumulus.workloads import changes, checks, flights

        told = [flights.weeks().epoch(number) for number in range(self._epochs)]
        keys = {name: table.key for name, table in flights.tables().items()}
        tables = flights.final_tables() if self._epochs == flights.EPOCHS else changes.replay(told, keys)
        for view, select in checks.views(flights.sql()).items():
            found = checks.differences(checks.recompute(select, tables), client.view(view).arrow())
            self._console.print(f"  {view}: {'DIFFERS' if found else 'the same'}")
            self.wrong += [f"{view}: {line}" for line in found]
        self._console.print("All views are exact." if not self.wrong else "THE VIEWS ARE WRONG.", style="bold")
