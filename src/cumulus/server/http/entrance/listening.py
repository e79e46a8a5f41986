"""The socket that HTTP listens at: its address, TLS, and how connections are kept."""

from __future__ import annotations

import logging
import os
import resource
import socket
import ssl
from pathlib import Path

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


def check_exposure(settings: ServerSettings, users: UserFile | None = None) -> None:
    """Raise UsageError for a server that strangers could reach, without users or without TLS, or whose TLS is amiss.

    A list of users that cannot be used is no reason: nobody is let in until it is mended.
    """
    if (settings.certificate is None) != (settings.private_key is None):
        raise UsageError("TLS needs a certificate and its private key", hint="Give both.")
    if settings.certificate is not None and settings.private_key is not None:
        _check_certificate(settings.certificate, settings.private_key)
    if settings.is_local or settings.insecure:
        return
    if not (users or UserFile(settings.data)).look().is_there:
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there are no users",
            hint="Make some: cumulus serve token add NAME --data DIR. Or --insecure: anybody may read and change all.",
        )
    if settings.certificate is None:
        raise UsageError(
            f"{settings.host} can be reached from other machines, and there is no TLS",
            hint="Give --certificate and --private-key. Or --insecure: tokens and rows can be read on their way.",
        )


def _check_certificate(certificate: Path, private_key: Path) -> None:
    try:
        status = private_key.stat()
        if status.st_mode & 0o007 or status.st_uid not in (0, os.geteuid()):
            raise UsageError(
                f"{private_key}: other users can read or change the private key",
                hint=f"chmod 600 {private_key}, and let it belong to the user who starts the server, or to root.",
            )

        def refuse() -> str:
            raise UsageError(f"{private_key}: the private key has a password", hint="Give one that has none.")

        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, refuse)
    except OSError as problem:  # an error of TLS is one
        raise UsageError(
            f"TLS cannot be had with {certificate} and {private_key}: {problem.strerror or problem}",
            hint="Give two PEM files that can be read: a certificate, with those that signed it, and its private key.",
        ) from None


def _allow_connections(count: int) -> None:
    """Let the process have so many files open at once, and those that it needs besides, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 512
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))


class _ShortLines(logging.Filter):
    """Makes one line of an answer that was cut, and of a message that is no text: the server is all right then."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged, which it always is."""
        problem = record.exc_info[1] if record.exc_info else None
        if isinstance(problem, (ConnectionAbortedError, UnicodeDecodeError)):
            record.msg, record.args, record.exc_info, record.exc_text = str(problem), (), None, None
        return True


def http_config(site: Site) -> uvicorn.Config:
    """Return how a site is served.

    Raises
    ------
    UsageError
        If strangers could reach it, without users or without TLS.
    """
    settings = site.settings
    check_exposure(settings, site.users)
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, _ShortLines) for each in logger.filters):
        logger.addFilter(_ShortLines())
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
