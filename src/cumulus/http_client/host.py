"""A server as a `cumulus.hosts.Host`: what is asked goes over HTTP."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar, NoReturn

from cumulus.errors import HistoryError, NotOfferedError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.host import Host
from cumulus.hosts.requests import LATEST, Freshness, RowRequest, WriteRequest
from cumulus.http_client.client import HttpClient
from cumulus.http_client.remote_changes import RemoteChanges
from cumulus.views.consistency import Consistency
from cumulus.views.duckdb_sql.limits import QueryGuard
from cumulus.views.duckdb_sql.selects import Parameters
from cumulus.views.row_changes import ViewChanges

_CUBES = ("a server answers questions about cubes, and gives no parts of groups", "Use Cube(client, name).")


class HttpHost(Host):
    """Reads and writes what a server serves; hosts of one client are equal."""

    lacks: ClassVar = {
        "program": ("a server does not give its program", "See /v1/views and /v1/tables of it."),
        "finisher": _CUBES,
        "fold": _CUBES,
        "facts": _CUBES,
        "listen": ("a server calls nobody", "Use HttpClient.changes, or ask with after=."),
    }

    def __init__(self, client: HttpClient) -> None:
        self.client = client

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HttpHost) and self.client is other.client

    def __hash__(self) -> int:
        return id(self.client)

    @property
    def program(self) -> NoReturn:
        """Refuse it: the server keeps it to itself."""
        raise self.not_offered("program")

    @property
    def view_names(self) -> tuple[str, ...]:
        """The names of the views that there are for who asks."""
        return self.client.views

    @property
    def at(self) -> int:
        """The last transaction or epoch that readers see."""
        return self.client.at

    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Return rows of a view; the server picks rows and columns."""
        self._check(freshness)
        if len({bound.column.lower() for bound in request.where}) < len(request.where):
            raise NotOfferedError("two bounds of one column do not go over HTTP", hint="Give one that says both.")
        read, after = freshness.read or Consistency.COMMITTED, freshness.after
        most = "" if freshness.max_staleness is None else f"{round(freshness.max_staleness * 1000)}ms"
        if request.key is not None:
            found = self.client.get(request.view, *request.key, read=read, after=after, max_staleness=most)
            if request.columns is None:
                return found
            return Answer(found.table.select(request.columns), found.at, found.consistency, found.view)
        return self.client.view(
            request.view,
            read,
            columns=request.columns,
            where=request.where,
            limit=request.limit,
            after=after,
            max_staleness=most,
        )

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        guard: QueryGuard | None = None,
        freshness: Freshness = LATEST,
    ) -> Answer:
        """Return the result of a SELECT; the server has limits of its own."""
        if guard is not None:
            raise NotOfferedError("a server guards queries by its own limits", hint="Leave the guard out.")
        self._check(freshness)
        return self.client.query(sql, parameters, after=freshness.after)

    def changes(self, view: str) -> tuple[int, RemoteFeed]:
        """Return the changes of a view from now on, and the transaction or epoch after which that is."""
        at = self.at
        return at, RemoteFeed(self.client.changes(view, since=at))

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Send rows; the future is done when they are on the disk of the server and seen by its readers."""
        done: Future[WriteReceipt] = Future()
        done.set_result(self.client.send(request))
        return done

    def status(self) -> Mapping[str, Any]:
        """Return the numbers of the server's source."""
        return self.client.status()

    def listen(self, moved: Callable[[int], None]) -> None:
        """Refuse it."""
        raise self.not_offered("listen")

    def close(self) -> None:
        """End; the server goes on."""
        self.client.close()

    def _check(self, freshness: Freshness) -> None:
        if freshness.at is not None:
            raise HistoryError(f"at={freshness.at!r}: a server gives its last state alone", hint="Leave at out.")


class RemoteFeed:
    """The changes of a view of a server, read by a thread as they come; a `cumulus.hosts.ChangeFeed`."""

    def __init__(self, changes: RemoteChanges) -> None:
        self._changes = changes
        self._come: queue.Queue[ViewChanges | Exception] = queue.Queue()
        self._is_closed = False
        threading.Thread(target=self._read, name="changes", daemon=True).start()

    def _read(self) -> None:
        try:
            for each in self._changes:
                self._come.put(each)
                if self._is_closed:
                    return
        except Exception as problem:  # noqa: BLE001  # it is raised where changes are taken
            self._come.put(problem)

    def take(self) -> list[ViewChanges]:
        """Return what has come since.

        Raises
        ------
        CumulusError
            If nothing more comes: what is not read any more is not kept, or the server is gone.
        """
        found: list[ViewChanges] = []
        while not self._come.empty():
            each = self._come.get_nowait()
            if isinstance(each, Exception):
                raise each
            found.append(each)
        return found

    def close(self) -> None:
        """End it."""
        self._is_closed = True
