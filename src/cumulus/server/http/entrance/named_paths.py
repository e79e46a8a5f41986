"""Names in addresses: a slash in a name is told from one between two parts of an address."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

_SLASH, _OTHER = "\x1f", "\x1e"
"""Stand for a slash in a part of a path, and for that stand-in itself: no name has control characters."""

_MARKED = re.compile(rb"%(?:2f|1f)", re.IGNORECASE)


class NamedPaths:
    """ASGI: keeps slashes that an address has as ``%2F`` inside the part of the path in which they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] in ("http", "websocket") and _MARKED.search(raw) is not None:
            parts = raw.decode("latin-1").split("/")
            scope = {**scope, "path": "/".join(map(_part, parts))}
        await self._app(scope, receive, send)


def _part(text: str) -> str:
    return unquote(text).replace(_SLASH, _OTHER).replace("/", _SLASH)


class _Name(Convertor[str]):
    """``{name:name}`` in a route: one part of a path, with its slashes."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        return value.replace("/", _SLASH)


register_url_convertor("name", _Name())
