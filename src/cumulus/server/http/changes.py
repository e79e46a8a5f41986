"""Routes of those who subscribe: how a view's rows change, as server-sent events, or over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

from cumulus.errors import CumulusError, UsageError
from cumulus.server.http.answering import PROBLEMS
from cumulus.server.http.selections import seconds_of, wanted_columns, wanted_rows
from cumulus.server.http.site import Site, entry_of, user_of
from cumulus.server.hub.hub import Subscriber
from cumulus.server.hub.messages import MessageForm, encode_error

PING_S = 15.0
"""A subscriber that hears nothing else hears so often that the connection is there."""
_OPTIONS = ("columns", "where", "snapshot", "since", "every", "format")


def change_routes(site: Site) -> APIRouter:
    """Return the routes of changes."""
    router = APIRouter(prefix="/v1", tags=["changes"])

    @router.get("/views/{name:name}/changes", responses=PROBLEMS, response_class=StreamingResponse)
    async def send_events(
        request: Request,
        name: Annotated[str, Path()],
        columns: Annotated[str | None, Query(description="Some columns, with commas between them.")] = None,
        where: Annotated[str | None, Query(description="As for rows.")] = None,
        snapshot: Annotated[bool, Query(description="Begin with all rows that there are.")] = True,
        since: Annotated[int | None, Query(ge=0, le=1 << 62, description="Begin after this `at` instead.")] = None,
        every: Annotated[str, Query(description="Put changes within this time together, such as 100ms.")] = "",
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        """Tell how rows of a view change, as server-sent events; whoever comes back sends Last-Event-ID.

        Each event `changes` has an object: `at`, and `rows`, each with `change`, how often it came (above 0) or left.
        An event `part` is followed by others of the same `at`. The rows of the first are a snapshot if they say so.
        """
        if last_event_id is not None and last_event_id.isdecimal() and len(last_event_id) < 18:
            since = int(last_event_id)
        found = await _subscribed(site, request, name, MessageForm.SSE, snapshot, since, every)
        return StreamingResponse(_events(found), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @router.websocket("/views/{name:name}/changes")
    async def send_messages(socket: WebSocket, name: str) -> None:
        """Tell the same over a WebSocket: as objects, or with format=arrow as Arrow streams."""
        given = socket.query_params
        form = MessageForm.ARROW if given.get("format") == "arrow" else MessageForm.JSON
        await socket.accept()
        try:
            since = given.get("since")
            if since is not None and not (since.isdecimal() and len(since) < 18):
                raise UsageError(f"since={since!r}", hint="since is the at of a message.")
            snapshot = given.get("snapshot", "true").lower() not in ("false", "0", "no")
            since_at = None if since is None else int(since)
            found = await _subscribed(site, socket, name, form, snapshot, since_at, given.get("every", ""))
        except CumulusError as problem:
            told = encode_error(MessageForm.JSON, problem, site.source.at)
            await socket.send_text(told.decode())
            await socket.close(1008)
            return
        await _send(socket, found, form)

    return router


async def _subscribed(
    site: Site, request: Any, name: str, form: MessageForm, snapshot: bool, since: int | None, every: str
) -> Subscriber:
    view = site.view_named(user_of(request), name)
    every_s = seconds_of("every", every) if every else 0.0
    columns = wanted_columns(view, request.query_params.get("columns"))
    bounds = wanted_rows(view, request.query_params, _OPTIONS)
    found = await site.hub.subscribe(
        view.name, columns=columns, where=bounds, form=form, snapshot=snapshot, since=since, every_s=every_s
    )
    entry = entry_of(request)
    if entry is not None:
        entry.view = view.name
        entry.when_ended(found.end)
    return found


async def _events(subscriber: Subscriber) -> AsyncIterator[bytes]:
    async with aclosing(subscriber.messages(PING_S)) as messages:
        async for message in messages:
            yield b": nothing new\n\n" if message is None else message


async def _send(socket: WebSocket, subscriber: Subscriber, form: MessageForm) -> None:
    """Send messages until either end has enough."""
    sending = asyncio.create_task(_send_all(socket, subscriber, form))
    leaving = asyncio.create_task(_left(socket))
    try:
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_all(socket: WebSocket, subscriber: Subscriber, form: MessageForm) -> None:
    async with aclosing(subscriber.messages()) as messages:
        async for message in messages:
            assert message is not None
            if form is MessageForm.ARROW and not message.startswith(b"{"):
                await socket.send_bytes(message)
            else:
                await socket.send_text(message.decode())
        await socket.close(1011)


async def _left(socket: WebSocket) -> None:
    """Return when the other end has closed; what it sends is not looked at."""
    with suppress(WebSocketDisconnect, RuntimeError):
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass
