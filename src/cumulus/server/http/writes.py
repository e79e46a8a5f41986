"""Routes that write: transactions, rows of a table, views created and dropped, snapshots; and the tables they write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request

from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.errors import (
    DuplicateKeyError,
    EvaluationError,
    LimitError,
    OrphanError,
    RepeatedIdError,
    SubscribedError,
    UnknownNameError,
    UsageError,
)
from cumulus.hosts import TableRows, WriteRequest
from cumulus.server.access import Role, User
from cumulus.server.http.answering import PROBLEMS
from cumulus.server.http.bodies import (
    MEDIA_TYPES,
    QUICK_BYTES,
    QUICK_ROWS,
    SMALL_BYTES,
    quick_bounds,
    rows_of_body,
    small_json,
    table_of_base64,
)
from cumulus.server.http.models import Moved, StatementModel, TableList, TableModel, TransactionModel, WrittenAnswer
from cumulus.server.http.site import Site, user_of
from cumulus.server.http.views import column_models
from cumulus.server.intake.bounds import BodyBounds
from cumulus.server.intake.json_slices import parsed_json

Operation = Literal["insert", "delete", "upsert"]
_MOST_PARTS = 1_000
_FEW_BYTES = 4 << 10
"""A body of so many has no more values than it may."""
_OPERATIONS: tuple[Operation, ...] = ("insert", "delete", "upsert")
ID = Header(
    alias="Idempotency-Key",
    max_length=200,
    description="Of your making: the same request with the same key is applied once, however often it is sent.",
)


def write_routes(site: Site) -> APIRouter:
    """Return the routes that write."""
    router = APIRouter(prefix="/v1", tags=["tables"], responses=PROBLEMS)

    @router.get("/tables", response_model=TableList)
    async def list_tables(request: Request) -> Any:
        """List the tables."""
        relations = _tables(site, user_of(request)).values()
        rows = await site.read(_counted, site)
        return TableList(at=site.source.at, tables=[_described(each, rows) for each in relations])

    @router.get("/tables/{name:name}", response_model=TableModel)
    async def show_table(name: str, request: Request) -> Any:
        """Describe a table."""
        relation = _table_named(site, user_of(request), name)
        return _described(relation, await site.read(_counted, site))

    @router.post("/tables/{name:name}/rows", response_model=WrittenAnswer, openapi_extra={"requestBody": _rows_body()})
    async def write_rows(
        request: Request,
        name: str,
        op: Annotated[Operation, Query(description="What is done with the rows.")] = "insert",
        id: Annotated[str, ID] = "",
    ) -> Any:
        """Insert, delete or upsert rows of one table, in one transaction."""
        user = user_of(request)
        user.require(Role.WRITER)
        relation = _table_named(site, user, name)
        _check_encoding(request)
        body = await request.body()
        kind = request.headers.get("content-type", "application/json")
        rows = await rows_of_body(kind, body, site.bounds_of(relation), site.take_apart)
        return await _apply(site, user, (TableRows(op, relation.name, rows),), id, len(body))

    @router.post("/transactions", response_model=WrittenAnswer, openapi_extra={"requestBody": _transaction_body()})
    async def write_transaction(request: Request, id: Annotated[str, ID] = "") -> Any:
        """Apply several parts together, or none of them."""
        user = user_of(request)
        user.require(Role.WRITER)
        _check_encoding(request)
        body = await request.body()
        try:
            parts = _parts(site, user, body, quick_bounds) if len(body) <= QUICK_BYTES else None
        except LimitError:
            parts = None  # a few bytes may stand for many rows
        if parts is None:
            parts = await site.take_apart(_parts, site, user, body)
        return await _apply(site, user, parts, id, len(body))

    @router.post("/execute", response_model=Moved, openapi_extra={"requestBody": _statement_body()})
    async def execute(request: Request) -> Any:
        """Create or drop views and cubes, or create tables."""
        user_of(request).require(Role.ADMIN)
        body = await small_json(request)
        if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
            raise UsageError("the body has no sql", hint='Such as {"sql": "CREATE VIEW v AS SELECT …"}.')
        return Moved(at=await _execute(site, body["sql"]))

    @router.post("/snapshot", response_model=Moved)
    async def snapshot(request: Request) -> Any:
        """Write a snapshot; return the transaction that it holds."""
        user_of(request).require(Role.ADMIN)
        future = await asyncio.to_thread(site.source.snapshot)
        return Moved(at=await asyncio.wrap_future(future))

    return router


async def _execute(site: Site, sql: str) -> int:
    """Create or drop views; return the transaction of it. SubscribedError names who follows a view, and the way out."""
    await asyncio.to_thread(site.hub.forget_idle)
    future = await asyncio.to_thread(site.source.execute, sql)
    try:
        return await asyncio.wrap_future(future)
    except SubscribedError as problem:
        users = sorted({each.user.name for each in site.open.listed() if each.view == problem.view})
        raise SubscribedError(
            f"{problem.message}: {', '.join(users) or 'none over HTTP'}",
            view=problem.view,
            hint=f"End them: cumulus serve streams ADDRESS --end --view {problem.view}; or POST /v1/streams/end.",
        ) from None


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UsageError(
            f"Content-Encoding {encoding} is not unpacked here",
            hint="Send the body plain; Arrow and Parquet are small.",
        )


def _tables(site: Site, user: User) -> dict[str, Relation]:
    """Return the tables that there are for a user: none for who may read some views only, and write nothing."""
    if user.views is not None and not user.has_role(Role.WRITER):
        return {}
    return {relation.name: relation for relation in site.source.program.relations}


def _table_named(site: Site, user: User, name: str) -> Relation:
    known = _tables(site, user)
    return known[known_name(name, known, "table")]


def _counted(site: Site) -> dict[str, int]:
    return dict(site.source.status().get("rows", {}))


def _described(relation: Relation, rows: dict[str, int]) -> TableModel:
    return TableModel(
        name=relation.name,
        columns=column_models(relation.columns),
        key=list(relation.key),
        static=relation.static,
        rows=rows.get(relation.name),
    )


def _whole(bounds: BodyBounds) -> BodyBounds:
    return bounds


def _parts(
    site: Site, user: User, body: bytes, within: Callable[[BodyBounds], BodyBounds] = _whole
) -> tuple[TableRows, ...]:
    tables = _tables(site, user).values()
    most = max((within(site.bounds_of(each)).values for each in tables), default=0) if len(body) > _FEW_BYTES else None
    given = parsed_json(body, "the body", None if most is None else most + _MOST_PARTS * 8)
    parts = given.get("parts") if isinstance(given, dict) else None
    if not isinstance(parts, list):
        raise UsageError(
            "the body has no list of parts",
            hint='Such as {"parts": [{"op": "insert", "table": "r", "rows": [[1]]}]}.',
        )
    if len(parts) > _MOST_PARTS:
        raise LimitError(f"the body has {len(parts):,} parts, more than {_MOST_PARTS:,}", hint="Put rows together.")
    found = []
    rows_left, bytes_left = site.limits.body_rows, site.limits.body_bytes
    for number, part in enumerate(parts, 1):
        if not isinstance(part, dict) or part.keys() - {"op", "table", "rows", "arrow"}:
            raise UsageError(f"part {number} is no object of op, table and rows", hint="Or op, table and arrow.")
        if part.get("op") not in _OPERATIONS:
            raise UsageError(f"part {number}: {part.get('op')!r} is no op", hint=f"Ops: {', '.join(_OPERATIONS)}.")
        if ("rows" in part) == ("arrow" in part):
            raise UsageError(f"part {number} has not one of rows and arrow", hint="Give one of them.")
        if not isinstance(part.get("table"), str):
            raise UnknownNameError(f"part {number} names no table")
        relation = _table_named(site, user, part["table"])
        if "rows" in part and not isinstance(part["rows"], list):
            raise UsageError(f"part {number}: rows is no list", hint="A row is a list or an object.")
        bounds = within(replace(site.bounds_of(relation), rows=rows_left, bytes=bytes_left))
        rows = part["rows"] if "rows" in part else table_of_base64(part["arrow"], bounds)
        bounds.check_rows(len(rows))
        rows_left, bytes_left = rows_left - len(rows), bytes_left - _unpacked_bytes(rows)
        found.append(TableRows(part["op"], relation.name, rows))
    return tuple(found)


async def _apply(site: Site, user: User, parts: tuple[TableRows, ...], id: str, size: int) -> WrittenAnswer:
    # Keys of different users have nothing to do with each other.
    request = WriteRequest(parts, f"{user.name}:{id}" if id else "")
    rows, unpacked = 0, 0
    for part in parts:
        rows += len(part.rows)
        unpacked += _unpacked_bytes(part.rows)
    if size <= QUICK_BYTES and rows <= QUICK_ROWS and unpacked <= SMALL_BYTES:
        future, unpacked = site.source.write(request), 0
    else:
        site.waiting.take(unpacked)
        try:
            future = await site.take_apart(site.source.write, request)
        except BaseException:
            site.waiting.give(unpacked)
            raise
    done_here = asyncio.wrap_future(future)
    if unpacked:
        done_here.add_done_callback(lambda _: site.waiting.give(unpacked))
    # Who goes away does not take back what was sent.
    try:
        done = await asyncio.shield(done_here)
    except (DuplicateKeyError, OrphanError) as problem:
        if user.views is None:
            raise
        # The message has a row that somebody else may have written.
        raise type(problem)(
            f"a row is against a key of {problem.relation}", relation=problem.relation, hint=problem.hint
        ) from None
    except RepeatedIdError as problem:
        raise RepeatedIdError(f"another request had the id {id!r}, with other content", hint=problem.hint) from None
    except EvaluationError:
        if user.views is None:
            raise
        raise EvaluationError("a number of a view would be beyond its type", hint="Send smaller numbers.") from None
    return WrittenAnswer(at=done.at, rows=done.rows, repeated=done.is_repeated)


def _unpacked_bytes(rows: pa.Table | list[Any]) -> int:
    """Return about how many bytes rows take; those that are plain values are no more than their body."""
    return rows.nbytes if isinstance(rows, pa.Table) else 0


def _rows_body() -> dict[str, Any]:
    row = {"anyOf": [{"type": "array"}, {"type": "object"}]}
    content: dict[str, Any] = {kind: {} for kind in MEDIA_TYPES}
    content["application/json"] = {"schema": {"type": "array", "items": row}}
    return {"required": True, "content": content}


def _transaction_body() -> dict[str, Any]:
    schema = TransactionModel.model_json_schema(ref_template="#/components/schemas/{model}")
    part = schema.pop("$defs")["TransactionPart"]
    schema["properties"]["parts"]["items"] = part
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _statement_body() -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": StatementModel.model_json_schema()}}}
