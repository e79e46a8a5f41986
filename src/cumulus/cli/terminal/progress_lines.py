"""How a long run is told: one line that moves on a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table

from cumulus.cli.terminal.consoles import plain_console

if TYPE_CHECKING:
    from cumulus.epochs.progress import Epoch


class ProgressReporter:
    """Reports committed epochs; as JSON, one object per epoch and nothing else on standard output."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._console = plain_console(to_errors=as_json)
        self._live: Live | None = None
        self._epochs = 0
        self._last: Epoch | None = None

    def __enter__(self) -> ProgressReporter:
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Tell one line."""
        self._console.print(line, soft_wrap=True)

    def epoch(self, epoch: Epoch) -> None:
        """Tell an epoch."""
        self._epochs += 1
        self._last = epoch
        for view, reason in epoch.errors.items():
            self.say(f"epoch {epoch.number}: view {view} still shows older rows: {reason}")
        for view, count in epoch.view_errors.items():
            total = epoch.view_error_totals[view]
            self.say(f"epoch {epoch.number}: view {view} could not take {count:,} rows in whole ({total:,} so far)")
        if self._as_json:
            told = {**asdict(replace(epoch, store=None)), "events_per_s": round(epoch.events_per_s)}
            del told["store"]
            print(json.dumps(told), flush=True)
        elif self._live is not None:
            self._live.update(_table(epoch))
        else:
            self.say(_line(epoch))

    def finish(self, out: str, seconds: float) -> None:
        """Tell the end."""
        from cumulus.durable.store import is_address

        place = out if is_address(out) else f"{out}/latest"
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._as_json:
            return
        if self._last is None:
            self.say(f"nothing new; the views are in {place}")
            return
        totals = self._last.totals
        errors = f", {totals['errors']:,} errors of views" if totals.get("errors") else ""
        fates = {**totals, "waiting": self._last.counts.get("waiting", 0)}
        others = _counted(fates, ("repeated", "waiting", "tombstones", "messages"))
        self.say(
            f"{self._epochs} epochs in {seconds:.1f} s; up to epoch {self._last.number}: "
            f"{totals.get('events', 0):,} events, {totals.get('applied', 0):,} applied, "
            f"{totals.get('quarantined', 0):,} quarantined{others}{errors}; the views are in {place}"
        )


def _line(epoch: Epoch) -> str:
    counts = epoch.counts
    others = _counted(counts, ("quarantined", "waiting", "repeated", "tombstones", "messages", "errors"))
    return (
        f"epoch {epoch.number}: {counts.get('events', 0):,} events in {epoch.seconds:.2f} s "
        f"({epoch.events_per_s:,.0f}/s), {epoch.files_left} files behind{others}"
    ) + (" (replayed)" if epoch.replayed else "")


def _counted(counts: Mapping[str, int], names: Iterable[str]) -> str:
    return "".join(f", {counts[name]:,} {name}" for name in names if counts.get(name))


def _table(epoch: Epoch) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    cells = {
        "epoch": f"{epoch.number}",
        "events": f"{epoch.totals.get('events', 0):,}",
        "events/s": f"{epoch.events_per_s:,.0f}",
        "behind": f"{epoch.files_left} files",
        "waiting": f"{epoch.counts.get('waiting', 0):,}",
        "quarantined": f"{epoch.totals.get('quarantined', 0):,}",
    }
    for name in cells:
        table.add_column(name, justify="right")
    table.add_row(*cells.values())
    return table
