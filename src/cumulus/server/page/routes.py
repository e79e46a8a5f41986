"""The page's routes: its files, and the WebSockets over which it is alive."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from cumulus.errors import CumulusError, UnknownNameError, UsageError
from cumulus.server.access import EVERYBODY, LOG, User
from cumulus.server.page.gate import grid_request
from cumulus.server.page.graph import map_details, map_numbers
from cumulus.server.page.page_files import page_files
from cumulus.server.sources import ServedSource

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",  # Perspective writes the widths of its columns into the page
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
STATE_S = 1.0
"""Numbers, errors and the quarantine are told so often."""
MOST_ROWS = 200
"""Of errors, quarantine and epochs so many are told, the newest."""

Told = dict[str, Any]
_CANNOT_BE_READ = 1007
"""The code with which a WebSocket is closed after bytes that are no message (RFC 6455, 7.4.1)."""
_PONG: Told = {"pong": True}
"""The answer to ``{"ping": true}``, by which a page knows that its connection is alive."""


def missing_extra() -> str:
    """Return what must be installed for the page, "" if it is all there."""
    lacking = [name for name in ("perspective", "graphlay") if importlib.util.find_spec(name) is None]
    return f"The page needs {' and '.join(lacking)}: pip install 'cumulus-ivm[server]'" if lacking else ""


def page_routes(source: ServedSource) -> APIRouter:
    """Return the routes of the page; without what it needs, one that says what is missing."""
    router = APIRouter(include_in_schema=False)
    missing = missing_extra()
    if missing:

        @router.get("/")
        async def without() -> Response:
            return PlainTextResponse(missing + "\n", 501)

        return router
    router.lifespan_context = _closing(site := _Site(source))
    _file_routes(router, site)
    _program_routes(router, site)
    router.add_api_websocket_route("/page/state", site.state)
    router.add_api_websocket_route("/page/views", site.views)
    router.add_api_websocket_route("/page/cubes", site.grids)
    return router


def _file_routes(router: APIRouter, site: _Site) -> None:
    own = files("cumulus.server.page")
    spec = importlib.util.find_spec("perspective")
    assert spec is not None, "the routes are made where it is installed"
    assert spec.origin is not None, "it is a package with files"
    # Where the wheel keeps the browser's part is not documented; the browser's test tells when it has moved.
    bundle = Path(spec.origin).parent / "widget" / "static" / "perspective-anywidget"
    known = page_files(Path(str(own)), bundle)

    @router.get("/")
    def index(request: Request) -> Response:
        return known["index.html"].answer(request, HEADERS)

    @router.get("/page/files/{name}")
    def file(name: str, request: Request, v: str | None = None) -> Response:
        if name not in known or name == "index.html":
            raise UnknownNameError(f"the page has no file {name}", hint="Load the page anew.")
        return known[name].answer(request, HEADERS, v)


def _program_routes(router: APIRouter, site: _Site) -> None:
    @router.get("/page/program.svg")
    def drawing(request: Request) -> Response:
        from cumulus.explain.program_drawing import MapNumbers, to_svg

        user_of(request).require_all_views()
        program = site.source.program
        told = map_numbers(program, site.source.status())
        numbers = {each["name"]: MapNumbers(each["entries"], each["bytes"]) for each in told}
        return Response(to_svg(program, numbers), media_type="image/svg+xml", headers=HEADERS)

    @router.get("/page/maps/{name:name}")
    def details(name: str, request: Request) -> Response:
        user_of(request).require_all_views()
        try:
            return JSONResponse(map_details(site.source.program, name))
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint="Load the page anew.") from None


def user_of(connection: HTTPConnection) -> User:
    """Return who asks."""
    found: User = connection.scope.get("cumulus.user", EVERYBODY)
    return found


def _closing(site: _Site) -> Callable[[Any], Any]:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(site.close)

    return lifespan


class _Site:
    """What the page's WebSockets share."""

    def __init__(self, source: ServedSource) -> None:
        from cumulus.server.page.tables import LiveTables

        self.source = source
        self._tables = LiveTables(source)

    def close(self) -> None:
        """End what runs beside the loop."""
        self._tables.close()

    # --- numbers ----------------------------------------------------------------------------------------------------

    async def state(self, socket: WebSocket) -> None:
        """Tell numbers, errors and what was refused, again and again."""
        await socket.accept()
        user = user_of(socket)
        with suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.send_json(await run_in_threadpool(self._state_now, user))
                with suppress(TimeoutError):
                    await asyncio.wait_for(socket.receive_text(), STATE_S)

    def _state_now(self, user: User) -> Told:
        program = self.source.program
        shown = [view.name for view in program.shown_views if user.may_read(view.name)]
        told: Told = {"kind": self.source.kind, "at": self.source.at, "views": shown}
        told["cubes"] = [each.name for each in program.cubes if each.name in shown]
        if user.views is not None:
            return told
        status = self.source.status()
        told["maps"] = map_numbers(program, status)
        told["numbers"] = {
            name: value for name, value in status.items() if value is None or isinstance(value, (int, float, str))
        }
        for name, found in (
            ("errors", self.source.errors()),
            ("quarantine", self.source.quarantine()),
            ("epochs", self.source.epochs()),
        ):
            table = (
                found.table.slice(0, MOST_ROWS)
                if name == "epochs"
                else found.table.slice(max(0, found.table.num_rows - MOST_ROWS))
            )
            told[name] = {
                "count": found.table.num_rows,
                "columns": table.column_names,
                "rows": [[_text(value) for value in row.values()] for row in table.to_pylist()],
            }
        return told

    # --- views ------------------------------------------------------------------------------------------------------

    async def views(self, socket: WebSocket) -> None:
        """Speak with the grid of a view: Perspective's messages are bytes, the page's are texts."""
        import perspective

        await socket.accept()
        loop, user = asyncio.get_running_loop(), user_of(socket)
        sending = _Sending(socket)
        server, watched = perspective.Server(), None
        client = server.new_local_client()

        def answer(data: bytes) -> None:
            loop.call_soon_threadsafe(sending.put, data)

        def tell(words: Told) -> None:
            loop.call_soon_threadsafe(sending.put, words)

        session = server.new_session(answer)
        try:
            async with _closed_by_garbage(socket), sending.running():
                async for message in _messages(socket):
                    if isinstance(message, bytes):
                        request = grid_request(message)
                        if request.problem is None:
                            await run_in_threadpool(session.handle_request, message)
                        else:
                            sending.put(request.refused(request.problem))
                        continue
                    if "ping" in message:
                        sending.put(_PONG)
                        continue
                    wanted = str(message.get("open"))
                    try:
                        if not user.may_read(wanted) or wanted not in self._shown():
                            raise UnknownNameError(f"there is no view {wanted}", hint="The page lists them.")
                        fed = await run_in_threadpool(self._tables.watch, wanted, client, tell)
                    except CumulusError as problem:
                        sending.put({"error": problem.message, "hint": problem.hint})
                        continue
                    if watched is not None:
                        await run_in_threadpool(self._tables.leave, watched)
                    watched = fed
                    if "cumulus.open" in socket.scope:
                        socket.scope["cumulus.open"].view = wanted  # for who wants to drop it
                    sending.put(fed.told)
        finally:
            if watched is not None:
                await run_in_threadpool(self._tables.leave, watched)
            session.close()

    def _shown(self) -> set[str]:
        return {view.name for view in self.source.program.shown_views}

    # --- cubes ------------------------------------------------------------------------------------------------------

    async def grids(self, socket: WebSocket) -> None:
        """Speak with the cube explorer: Perspective's messages are bytes, the page's are texts."""
        from cumulus.server.page.cubes import CubeGrids

        await socket.accept()
        loop, user = asyncio.get_running_loop(), user_of(socket)
        sending = _Sending(socket)

        def tell(words: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(sending.put, {"told": words})

        grids = CubeGrids(self.source.cubes(), user, lambda: self.source.at, tell)
        try:
            async with _closed_by_garbage(socket), sending.running():
                async for message in _messages(socket):
                    if isinstance(message, bytes):
                        sending.put(await run_in_threadpool(grids.handle, message))
                    elif "ping" in message:
                        sending.put(_PONG)
                    else:
                        sending.put(await run_in_threadpool(grids.take, message))
        finally:
            grids.close()


class _Sending:
    """Sends what is put, in that order, from one task."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._waiting: asyncio.Queue[bytes | Told] = asyncio.Queue()
        self.put = self._waiting.put_nowait

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send until the block ends, or whoever listens has gone."""
        task = asyncio.create_task(self._send())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await task

    async def _send(self) -> None:
        while True:
            message = await self._waiting.get()
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_json(message)


@asynccontextmanager
async def _closed_by_garbage(socket: WebSocket) -> AsyncIterator[None]:
    """Close a socket whose messages cannot be read, with a line in the log."""
    try:
        yield
    except UsageError as problem:
        LOG.warning("%s is closed: %s", socket.url.path, problem.message)
        with suppress(RuntimeError):
            await socket.close(_CANNOT_BE_READ, problem.message)


async def _messages(socket: WebSocket) -> AsyncIterator[bytes | Told]:
    """Yield what comes, until the other side goes."""
    import json

    with suppress(WebSocketDisconnect):
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("bytes") is not None:
                yield message["bytes"]
                continue
            with suppress(ValueError):
                words = json.loads(message["text"])
                if isinstance(words, dict):
                    yield words


def _text(value: Any) -> Any:
    is_plain = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value))
    return value if is_plain else str(value)
