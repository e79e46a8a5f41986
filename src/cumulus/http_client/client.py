"""A client of a server: `cumulus.connect("http://…")`."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc, table_of, to_ipc
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.engine.frame_input import given_rows
from cumulus.engine.rows_in import checked_rows
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.hosts import Answer, WriteReceipt, WriteRequest
from cumulus.http_client.asked_rows import asked_rows, json_value, path_part
from cumulus.http_client.connection import ARROW, HttpConnection
from cumulus.http_client.remote_changes import RemoteChanges, open_changes
from cumulus.http_client.remote_cubes import RemoteCubes
from cumulus.http_client.told_columns import relation_of
from cumulus.views.folding import Bound
from cumulus.views.reader import Consistency

Operation = Literal["insert", "delete", "upsert"]


class HttpClient(RemoteCubes):
    """Sends rows to a server and reads its views; any thread may use it.

    Parameters
    ----------
    address
        Such as ``http://localhost:8321``.
    token
        What `cumulus serve token add` has shown; "" where nobody needs one.
    timeout_s
        How long any call may take, with all that is sent again.
    verify
        Whether the server's certificate must be good; a path is a file with those to trust.
    """

    def __init__(self, address: str, *, token: str = "", timeout_s: float = 30.0, verify: bool | str = True) -> None:
        self._connection = HttpConnection(address, token, timeout_s, verify)
        self._tables: dict[str, Relation] = {}

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._connection.address

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views that there are for who asks."""
        return tuple(view["name"] for view in self._connection.json("GET", "/v1/views")["views"])

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(table["name"] for table in self._connection.json("GET", "/v1/tables")["tables"])

    @property
    def at(self) -> int:
        """The last transaction or epoch that readers see."""
        return int(self._connection.json("GET", "/v1/views")["at"])

    def close(self) -> None:
        """End; the server goes on."""
        self._connection.close()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"HttpClient({self.address!r})"

    # --- rows -------------------------------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> WriteReceipt:
        """Insert rows in one transaction; return when they are on the disk of the server and seen by its readers.

        A connection that is lost, or a server that starts again, is tried again until the time is over; rows are never
        applied twice.

        Parameters
        ----------
        rows
            In any form that `cumulus.Warehouse.insert` takes.

        Raises
        ------
        DataError
            If a row is not of the table, or the table refuses it.
        DelayError
            If the server does not answer in time. Then the rows may be in, or not.
        """
        return self._write("insert", table, rows)

    def delete(self, table: str, rows: Any) -> WriteReceipt:
        """Delete rows, all columns given; see `insert`."""
        return self._write("delete", table, rows)

    def upsert(self, table: str, rows: Any) -> WriteReceipt:
        """Insert rows, each in place of the row with its primary key if there is one; see `insert`."""
        return self._write("upsert", table, rows)

    @contextmanager
    def transaction(self) -> Iterator[RemoteTransaction]:
        """Collect what is written in the block, and send it at its end: all of it is applied, or none."""
        collected = RemoteTransaction(self)
        yield collected
        if collected.parts:
            collected.token = self._sent("/v1/transactions", {}, "application/json", collected.body())

    def packed(self, table: str, rows: Any) -> tuple[str, pa.Table]:
        """Return the name of a table as it is, and rows of it, checked."""
        relation = self._relation(table)
        given = given_rows(relation, rows)
        if isinstance(given, pa.Table):  # the server checks it
            return relation.name, given
        return relation.name, table_of(relation.columns, checked_rows(relation, given))

    def _write(self, op: Operation, table: str, rows: Any, id: str = "") -> WriteReceipt:
        name, packed = self.packed(table, rows)
        return self._sent(f"/v1/tables/{path_part(name)}/rows", {"op": op}, ARROW, to_ipc(packed), id)

    def _sent(self, path: str, parameters: Mapping[str, Any], kind: str, body: bytes, id: str = "") -> WriteReceipt:
        headers = {"Content-Type": kind, "Idempotency-Key": id or uuid.uuid4().hex}
        answer = self._connection.send("POST", path, parameters=parameters, headers=headers, body=body)
        told = answer.json()
        return WriteReceipt(told["at"], told["rows"], told["repeated"])

    def send(self, request: WriteRequest) -> WriteReceipt:
        """Send the parts of a request together: all of it is applied, or none; once, if its `id` is sent again.

        A request of one part goes to its table: a cluster takes no several.
        """
        if len(request.parts) == 1:
            (part,) = request.parts
            return self._write(part.op, part.table, part.rows, request.id)
        collected = RemoteTransaction(self)
        for part in request.parts:
            collected.add(part.op, part.table, part.rows)
        return self._sent("/v1/transactions", {}, "application/json", collected.body(), request.id)

    def _relation(self, table: str) -> Relation:
        found = next((each for name, each in self._tables.items() if name.lower() == str(table).lower()), None)
        if found is None:
            listed = self._connection.json("GET", "/v1/tables")["tables"]
            self._tables = {each["name"]: relation_of(each) for each in listed}
            found = self._tables[known_name(table, self._tables, "table")]
        return found

    # --- views ------------------------------------------------------------------------------------------------------

    def view(
        self,
        name: str,
        read: str = "committed",
        *,
        columns: Sequence[str] | None = None,
        where: Mapping[str, Any] | Sequence[Bound] | None = None,
        limit: int | None = None,
        after: WriteReceipt | int | None = None,
        max_staleness: str = "",
    ) -> Answer:
        """Return rows of a view, all of one state: `Answer.at` says which.

        Parameters
        ----------
        read
            "committed", or "tentative" where the server is that of a cluster.
        columns
            Some columns; None is all.
        where, limit
            Column → a value (None is NULL), a list of values, or `cumulus.between(low, high)`; so many rows at most.
        after
            Wait until the rows of this token, or this transaction or epoch, are seen.
        max_staleness
            Such as "2s": fail if something has waited for its commit for longer.
        """
        asked = asked_rows(columns, where)
        if limit is not None:
            asked["limit"] = limit
        return self._rows(name, read, after, max_staleness, asked)

    def get(
        self,
        name: str,
        *key: Any,
        read: str = "committed",
        after: WriteReceipt | int | None = None,
        max_staleness: str = "",
    ) -> Answer:
        """Return the row with a key; `Answer.row` is the row, or None.

        Parameters
        ----------
        name, key
            The view, and one value for each of its grouping columns, in the order of its SELECT list.
        read, after, max_staleness
            As in `view`.
        """
        return self._rows(name, read, after, max_staleness, {"keys": json.dumps([json_value(each) for each in key])})

    def slice(
        self,
        name: str,
        *,
        read: str = "committed",
        after: WriteReceipt | int | None = None,
        max_staleness: str = "",
        **keys: Any,
    ) -> Answer:
        """Return the rows of a view that have some values in some columns; None means NULL. See `view`."""
        return self.view(name, read, where=keys, after=after, max_staleness=max_staleness)

    def query(self, sql: str, parameters: Any = None, *, after: WriteReceipt | int | None = None) -> Answer:
        """Return the result of a SELECT over the views; all that it reads are of one state."""
        given = parameters
        if isinstance(parameters, Mapping):
            given = {name: json_value(value) for name, value in parameters.items()}
        elif parameters is not None:
            given = [json_value(value) for value in parameters]
        return _answer("query", self._connection.rows("/v1/query", {"sql": sql, "parameters": given}, _after(after)))

    def changes(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        snapshot: bool = False,
        since: int | None = None,
        every: str = "",
    ) -> RemoteChanges:
        """Return the changes of a view's rows from now on, to be iterated over: `ViewChanges`, as of a warehouse.

        A lost connection is opened again where it broke; `close`, or leaving its ``with``, ends it.

        Parameters
        ----------
        columns, where
            As of `view`: of other rows nothing is told.
        snapshot
            Begin with all rows that there are, as insertions.
        since
            Begin with what came after this `at` instead; if that is not kept any more, with the snapshot if given.
        every
            Such as "100ms": what changes within this time comes as one.
        """
        told = self._connection.json("GET", f"/v1/views/{path_part(name)}")
        asked = asked_rows(columns, where) | {"snapshot": snapshot} | ({"every": every} if every else {})
        return open_changes(self._connection, told, columns, asked, since)

    def _rows(
        self, name: str, read: str, after: WriteReceipt | int | None, max_staleness: str, asked: dict[str, Any]
    ) -> Answer:
        if read not in list(Consistency):
            raise UsageError(f"unknown read {read!r}", hint='Read "tentative" or "committed".')
        asked |= {"read": read, **_after(after)}
        if max_staleness:
            asked["max_staleness"] = max_staleness
        path = f"/v1/views/{path_part(name)}/rows"
        return _answer(name, self._connection.send("GET", path, parameters=asked, headers={"Accept": ARROW}))

    # --- the server -------------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> int:
        """Create or drop views and cubes; return from which `at` on they are there. For admins."""
        self._tables = {}
        return int(self._connection.json("POST", "/v1/execute", {"sql": sql})["at"])

    def status(self) -> dict[str, Any]:
        """Return the numbers of the server's source."""
        return dict(self._connection.json("GET", "/v1/stats"))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of any other request that may be sent more than once, such as those of cubes."""
        return self._connection.json(method, path, body)


class RemoteTransaction:
    """What is to be written together; after the block, `token` is what a client gets for it."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.parts: list[dict[str, Any]] = []
        self.token: WriteReceipt | None = None

    def insert(self, table: str, rows: Any) -> None:
        """Insert rows."""
        self.add("insert", table, rows)

    def delete(self, table: str, rows: Any) -> None:
        """Delete rows, all columns given."""
        self.add("delete", table, rows)

    def upsert(self, table: str, rows: Any) -> None:
        """Insert rows, each in place of the row with its primary key if there is one."""
        self.add("upsert", table, rows)

    def add(self, op: Operation, table: str, rows: Any) -> None:
        """Do something with rows of a table: "insert", "delete" or "upsert"."""
        name, packed = self._client.packed(table, rows)
        self.parts.append({"op": op, "table": name, "arrow": base64.b64encode(to_ipc(packed)).decode()})

    def body(self) -> bytes:
        """Return the parts as a request has them."""
        return json.dumps({"parts": self.parts}).encode()


def _after(after: WriteReceipt | int | None) -> dict[str, Any]:
    return {} if after is None else {"after": after if isinstance(after, int) else after.at}


def _answer(name: str, answer: Any) -> Answer:
    try:
        table = from_ipc(answer.content)
        at = answer.headers.get("X-Cumulus-At")
        consistency = Consistency(answer.headers.get("X-Cumulus-Consistency", ""))
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise RemoteProtocolError(f"{answer.url}: no Arrow stream of a view: {problem}") from None
    return Answer(table, None if at is None else int(at), consistency, name)
