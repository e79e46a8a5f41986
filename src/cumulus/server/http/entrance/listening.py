"""The socket that HTTP listens at: its address, TLS, and how connections are kept."""

from __future__ import annotations

import resource
import socket

import uvicorn

from cumulus.errors import ProcessError, UsageError
from cumulus.server.access import UserFile
from cumulus.server.http.app import create_app
from cumulus.server.http.entrance.connections import HeldConnections
from cumulus.server.http.site import Site
from cumulus.server.settings import ServerSettings


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises
    ------
    ProcessError
        If the port is taken, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as problem:
        raise ProcessError(
            f"{host}:{port} cannot be listened at: {problem.strerror or problem}",
            hint="Take another port: --port 0 finds a free one.",
        ) from None
    return listening


def check_exposure(settings: ServerSettings) -> None:
    """Raise UsageError for a server that strangers could reach, without users or without TLS."""
    if (settings.certificate is None) != (settings.private_key is None):
        raise UsageError("TLS needs a certificate and its private key", hint="Give both.")
    if settings.is_local or settings.insecure:
        return
    if not UserFile(settings.data).users:
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there are no users",
            hint="Make some: cumulus serve token add NAME --data DIR. Or --insecure: anybody may read and change all.",
        )
    if settings.certificate is None:
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there is no TLS",
            hint="Give --certificate and --private-key. Or --insecure: tokens and rows can be read on their way.",
        )


def _allow_connections(count: int) -> None:
    """Let the process have so many files open at once, and those that it needs besides, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 512
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))


def http_config(site: Site) -> uvicorn.Config:
    """Return how a site is served.

    Raises
    ------
    UsageError
        If strangers could reach it, without users or without TLS.
    """
    settings = site.settings
    check_exposure(settings)
    _allow_connections(settings.limits.connections)
    return uvicorn.Config(
        create_app(site),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
        ws_max_size=64 << 10,
        ws_ping_timeout=None,  # who reads slowly answers late; that somebody has gone, TCP tells
        http=HeldConnections(settings.limits).protocol(),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )
