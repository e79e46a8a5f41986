"""A client of a running cluster: `cumulus.connect(home)`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from cumulus.catalog.events import DELETE, INSERT, UPSERT
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.cluster.live.client_rows import Once, messages_of, rows_to_send
from cumulus.cluster.live.cluster_places import AgentPlace, HomePlace
from cumulus.cluster.live.committed_reads import check_staleness, not_committed, wait_until_committed
from cumulus.cluster.live.folds import ClusterFolds
from cumulus.cluster.live.known_layout import KnownLayout
from cumulus.cluster.live.link_store import LinkStore, output_of
from cumulus.cluster.live.links import ClientLinks, require_switch
from cumulus.cluster.live.status import STATUS_SECONDS, status_of
from cumulus.cluster.live.tentative_reads import reads_tentative, tentative_rows
from cumulus.cluster.messages import StatusAsked
from cumulus.cluster.publisher import PUBLISHER
from cumulus.durable.store import Place
from cumulus.epochs.committed.manifest import committed_epochs, newest_manifest
from cumulus.epochs.output.host import FolderHost
from cumulus.errors import ClosedError, UsageError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.requests import RowRequest
from cumulus.hosts.selecting import typed_value
from cumulus.m3.program import Program, ViewDef
from cumulus.m3.view_reads import key_columns
from cumulus.machine import Name
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import Functions
from cumulus.views.folding import Bound, Partial, bounds_of

T = TypeVar("T")
_CONNECT = "Connect again: cumulus.connect(home)."


class ClusterClient:
    """Sends rows to a running cluster and reads its views; several threads may use it, one at a time does.

    Parameters
    ----------
    home
        The folder that ``cumulus cluster start --home`` was given, or where else the cluster is found.
    timeout_s
        How long any call may wait.
    through
        As `cumulus.connect` takes it.

    Raises
    ------
    InputError
        If this is no home of a cluster.
    NotRunningError
        If the cluster does not run.
    """

    def __init__(self, home: str | Path | AgentPlace, *, timeout_s: float = 30.0, through: Name = "") -> None:
        self._timeout_s, self._through = timeout_s, through
        self._place = home if isinstance(home, AgentPlace) else HomePlace(Path(home).absolute())
        self._layout = KnownLayout(self._place)
        require_switch(self._place, through, self._layout.settings.switch_names)
        self._links: ClientLinks | None = self._new_links()
        self.home: Place = output_of(self._place, self._layout, self._new_links, timeout_s)
        self._lock, self._pid, self._number = Lock(), os.getpid(), 0

    def _new_links(self) -> ClientLinks:
        name, program = f"client-{uuid.uuid4().hex[:12]}", self._layout.settings.agreed
        return ClientLinks(
            self._place, name, program, lambda: max(committed_epochs(self.home), default=0), self._through
        )

    @cached_property
    def _committed(self) -> FolderHost:
        return FolderHost(self.home, self.functions, program=self._layout.program)

    @cached_property
    def _folds(self) -> ClusterFolds:
        return ClusterFolds(lambda: self._layout.plan, self._committed)

    @property
    def program(self) -> Program:
        """What the cluster runs."""
        return self._layout.program

    @property
    def functions(self) -> Functions:
        """The user's functions that the views call."""
        return functions_in(self._layout.settings.functions)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(view.name for view in self._layout.program.shown_views)

    @property
    def spread_views(self) -> tuple[str, ...]:
        """The names of the views that have tentative rows; the others are gated."""
        return tuple(view.name for view in self._layout.plan.division.spread.shown_views)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self._layout.tables)

    def relation(self, table: str) -> Relation:
        """Return the columns and keys of a table; UnknownNameError if there is none."""
        return self._layout.table_named(table)

    def close(self) -> None:
        """End; the cluster goes on."""
        with self._lock:
            links, self._links = self._links, None
            if links is not None:
                links.close()
            if isinstance(self.home, LinkStore):
                self.home.close()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- rows -------------------------------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any, *, once: Once = None) -> WriteReceipt:
        """Insert rows; return when they are on the disk.

        Parameters
        ----------
        rows
            In any form that `cumulus.Warehouse.insert` takes. All of them are accepted, or none; more than 100,000, or
            16 MB, in several parts, and those of a table that is split by each switch for itself.
        once
            A name and a number, from 1 to 2⁴⁰: these rows count once, whichever client sends them again under both. For
            each table numbers under a name ascend: what is not above the last one counts as there already.

        Raises
        ------
        DataError
            If a row is not of the table; nothing is sent then. What depends on other rows, such as a key that is there
            already, is found later, and goes to the quarantine of the epoch.
        DelayError
            If a switch does not answer in time. Then the rows may be in, or not.
        """
        return self._send(INSERT, table, rows, once)

    def delete(self, table: str, rows: Any, *, once: Once = None) -> WriteReceipt:
        """Delete rows, all columns given; see `insert`."""
        return self._send(DELETE, table, rows, once)

    def upsert(self, table: str, rows: Any, *, once: Once = None) -> WriteReceipt:
        """Insert rows, each in place of the row with its primary key, if there is one; see `insert`."""
        return self._send(UPSERT, table, rows, once)

    def _send(self, op: int, table: str, data: Any, once: Once) -> WriteReceipt:
        relation = self.relation(table)
        return self.send_typed(relation, rows_to_send(relation, op, data), once)

    def send_typed(self, relation: Relation, rows: pa.Table, once: Once = None) -> WriteReceipt:
        """Send rows of `cumulus.epochs.intake.reading.Reading.rows`, which have their operations; see `insert`."""
        until, epoch = time.monotonic() + self._timeout_s, 0
        with self._lock:
            links = self._open_links
            for sent in messages_of(relation, rows, once, self._next_number):
                epoch = max(epoch, self._agreed(partial(self._layout.send, links, sent, until), until))
        return WriteReceipt(epoch, rows.num_rows)

    def _agreed(self, work: Callable[[], T], until: float = 0) -> T:
        return self._layout.agreed(work, self._open_links, until or time.monotonic() + self._timeout_s)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    @property
    def _open_links(self) -> ClientLinks:
        if self._links is None:
            raise ClosedError("the client is closed", hint=_CONNECT)
        if os.getpid() != self._pid:  # both would number what they send alike, and only one of them would be heard
            raise UsageError("the client belongs to the process that this one was forked from", hint=_CONNECT)
        return self._links

    # --- views ------------------------------------------------------------------------------------------------------

    def view(
        self, name: str, read: str = "committed", *, after: WriteReceipt | None = None, max_staleness: str = ""
    ) -> Answer:
        """Return the rows of a view.

        Parameters
        ----------
        read
            "committed": of the last committed epoch, all views of the same; "tentative": as new as the nodes have them,
            which later corrections may change. A view that is gated has no tentative rows: its committed ones are
            returned, and the answer says so.
        after
            Wait until the rows of this token are committed.
        max_staleness
            Such as "2s": fail if something has waited for its commit for longer.

        Raises
        ------
        DelayError
            If the token's epoch is not committed in time, or the rows are older than they may be.
        """
        return self._read(name, {}, read, after, max_staleness)

    def get(
        self, name: str, *key: Any, read: str = "committed", after: WriteReceipt | None = None, max_staleness: str = ""
    ) -> Answer:
        """Return the row with a key, from one node; `Answer.row` is the row, or None.

        Parameters
        ----------
        name, key
            The view, and one value for each of its grouping columns, in the order of its SELECT list.
        read, after, max_staleness
            As in `view`.
        """
        view = self._layout.view_named(name)
        columns = list(key_columns(view, self._layout.program.map(view.maps[0]).keys))
        if len(key) != len(columns):
            raise UsageError(
                f"{view.name} is looked up by ({', '.join(columns)}), {len(key)} values were given",
                hint="Give one value for each of these columns.",
            )
        return self._read(name, dict(zip(columns, key, strict=True)), read, after, max_staleness)

    def slice(
        self,
        name: str,
        *,
        read: str = "committed",
        after: WriteReceipt | None = None,
        max_staleness: str = "",
        **keys: Any,
    ) -> Answer:
        """Return the rows of a view that have some values in some columns; None means NULL. See `view`."""
        names = [each.name for each in self._layout.view_named(name).columns]
        given = {known_name(column, names, "column"): keys[column] for column in keys}
        return self._read(name, given, read, after, max_staleness)

    def fold(
        self,
        name: str,
        by: Sequence[str],
        where: Mapping[str, Any] | Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        *,
        read: str = "committed",
        after: WriteReceipt | None = None,
        max_staleness: str = "",
    ) -> Partial:
        """Return the parts of a view's groups, put together to larger groups; `finish()` makes rows of them.

        Committed, they are of the files of the last epoch, which has those of cubes. Tentative, each node folds what it
        owns of any spread view, and only those are asked that can have a group that `where` wants.

        Parameters
        ----------
        by, where, columns
            As in `cumulus.warehouse.view_access.WarehouseView.fold`.
        read, after, max_staleness
            As in `view`; `consistency` of the parts says what was read.

        Raises
        ------
        UnknownNameError
            If the view has no such column.
        UsageError
            If the view is no cube, or a column of it cannot be folded.
        DelayError
            As in `view`.
        """
        view, bounds = self._layout.view_named(name), bounds_of(where)
        is_tentative = self._is_tentative(view, read, after, max_staleness)
        with self._opened(max_staleness):
            if not is_tentative:
                return self._folds.committed(view.name, by, bounds, columns)
            return self._agreed(lambda: self._folds.tentative(self._asking(), view.name, by, bounds, columns))

    def _read(
        self, name: str, given: Mapping[str, Any], read: str, after: WriteReceipt | None, max_staleness: str
    ) -> Answer:
        view = self._layout.view_named(name)
        values = {column: typed_value(view, column, value) for column, value in given.items()}
        is_tentative = self._is_tentative(view, read, after, max_staleness)
        with self._opened(max_staleness) as links:
            if is_tentative:
                answer = self._agreed(
                    lambda: tentative_rows(self._layout.plan, self._asking(), view.name, values, self.functions)
                )
                return replace(answer, through=links.asked_through)
            if newest_manifest(self.home) is None:
                raise not_committed(self.home)
            where = tuple(Bound(column, (value,)) for column, value in values.items())
            return self._committed.read(RowRequest(view.name, where=where))

    def _is_tentative(self, view: ViewDef, read: str, after: WriteReceipt | None, max_staleness: str) -> bool:
        """Whether tentative rows are read, when what is to be committed before is so."""
        asks_age = after is not None or bool(max_staleness)
        is_tentative = reads_tentative(view.name, read, self.spread_views, asks_age=asks_age)
        if after is not None:
            wait_until_committed(self._open_links, self.home, after, self._timeout_s)
        return is_tentative

    def wait_committed(self, after: WriteReceipt | None, max_staleness: str = "") -> None:
        """Wait until the rows of a receipt are committed; DelayError if they are not in time, or what is is too old."""
        if after is not None:
            wait_until_committed(self._open_links, self.home, after, self._timeout_s)
        with self._opened(max_staleness):
            pass

    @contextmanager
    def _opened(self, max_staleness: str) -> Iterator[ClientLinks]:
        with self._lock:
            links = self._open_links  # a closed client reads nothing
            if max_staleness:
                (told,) = self._agreed(lambda: self._asking()(PUBLISHER, StatusAsked))
                check_staleness(float(told.facts["behind_ms"]) / 1000, max_staleness)
            yield links

    def _asking(self) -> Callable[[Name, Callable[[int], Any]], list[Any]]:
        """Return what asks a machine, by a message with the number that it is given, and returns what it answers."""
        until = time.monotonic() + self._timeout_s
        return lambda machine, message_of: self._open_links.ask(machine, message_of(self._next_number()), until)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def status(self, seconds: float = STATUS_SECONDS) -> dict[Name, dict[str, Any]]:
        """Return how each machine is, by name: docs/cluster.md, "Live"; "problem": it does not answer in `seconds`."""
        with self._lock:
            return self._agreed(
                lambda: status_of(self._open_links, self._place.members().pids, self._next_number(), seconds)
            )
