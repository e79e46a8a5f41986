"""HEAD wherever there is GET: the same status and headers, and no body."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FOUND_BY_ROUTING = ("route", "endpoint", "path_params")


class HeadRequests:
    """ASGI: answers HEAD by what GET would answer, up to its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_done = False

        async def headers_only(message: Message) -> None:
            nonlocal is_done
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                is_done = True
            elif message.get("more_body"):
                raise _EnoughError  # a stream may have no end

        asked: dict[str, Any] = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, headers_only)
        except BaseException as problem:
            if not is_done or not _is_enough(problem):
                raise
        finally:
            scope.update({name: asked[name] for name in _FOUND_BY_ROUTING if name in asked})


class _EnoughError(Exception):
    """The headers were sent, and that is all."""


def _is_enough(problem: BaseException) -> bool:
    if isinstance(problem, BaseExceptionGroup):
        return all(map(_is_enough, problem.exceptions))
    return isinstance(problem, _EnoughError)
