"""The server's process: the source is opened, the loop runs, and at its end everything is on the disk."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from cumulus.server.http.entrance.listening import http_config, open_socket
from cumulus.server.http.site import Site
from cumulus.server.opening import open_source
from cumulus.server.settings import ServerSettings


class _Server(uvicorn.Server):
    """A server that SIGTERM and SIGINT end; uvicorn's own would then end the process by the same signal.

    Parameters
    ----------
    ready
        Told the address when requests are taken.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None], site: Site) -> None:
        super().__init__(config)
        self._ready, self._site = ready, site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Go down; those who subscribe are told so, and leave."""
        await asyncio.to_thread(self._site.end_subscriptions)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        self._ready(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")


def serve(place: Path, settings: ServerSettings, ready: Callable[[str], None]) -> None:
    """Serve what is at a path until SIGINT or SIGTERM; then all that was acknowledged is on the disk.

    Parameters
    ----------
    place
        As in `cumulus.server.opening.open_source`.
    ready
        Told the address when requests are taken.
    """
    source = open_source(place, settings)
    site = Site(source, settings)
    try:
        _Server(http_config(site), ready, site).run([open_socket(settings.host, settings.port)])
    finally:
        source.close()
