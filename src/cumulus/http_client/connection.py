"""Requests that come through: sent again after lost connections, as each may be, until their time is over."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from cumulus.errors import ClosedError, CumulusError, DelayError, MissingError, NotRunningError
from cumulus.http_client.errors_of_answers import error_of

if TYPE_CHECKING:
    import httpx

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_SILENCE_S = 60.0
"""A server that tells changes says something more often, if only that it is there."""
_AGAIN = (429, 503)
"""A server that says these has done nothing of the request."""


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingError("httpx is not installed", hint="pip install 'cumulus-ivm[client]'") from None
    return httpx


ARROW = "application/vnd.apache.arrow.stream"


class HttpConnection:
    """Requests to one server; any thread may send them.

    Parameters
    ----------
    timeout_s
        For a request with all its repetitions.
    verify
        False takes any certificate; a path is a file of certificates to trust.
    """

    def __init__(self, address: str, token: str, timeout_s: float, verify: bool | str) -> None:
        self._library, self._timeout_s, self.address = _httpx(), timeout_s, address.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        trusted: bool | ssl.SSLContext = (
            verify if isinstance(verify, bool) else ssl.create_default_context(cafile=verify)
        )
        self._client: httpx.Client | None = self._library.Client(
            base_url=self.address,
            headers=headers,
            verify=trusted,
            timeout=timeout_s,
            trust_env=False,  # a token goes to nobody's proxy
        )

    @property
    def timeout_s(self) -> float:
        """How long a request may take."""
        return self._timeout_s

    def close(self) -> None:
        """End."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of the answer to a request that may be sent more than once; see `send`."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        return self.send(method, path, headers=headers, body=sent).json()

    def rows(self, path: str, body: Any, parameters: Mapping[str, Any] | None = None) -> httpx.Response:
        """Return the answer to a POST that asks for rows as Arrow; see `send`."""
        headers = {"Accept": ARROW, "Content-Type": "application/json"}
        return self.send("POST", path, parameters=parameters, headers=headers, body=json.dumps(body).encode())

    def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> httpx.Response:
        """Return the answer to a request that may be sent more than once.

        Raises
        ------
        CumulusError
            The one that the server has told.
        NotRunningError
            If the server cannot be reached.
        DelayError
            If it does not answer in time. What was sent may be done, or not.
        """
        if self._client is None:
            raise ClosedError("the client is closed", hint="Connect again: cumulus.connect(address).")
        until, tries = monotonic() + self._timeout_s, 0
        while True:
            left = until - monotonic()
            try:
                answer = self._client.request(
                    method, path, params=parameters, headers=headers, content=body, timeout=max(left, 0.01)
                )
                if answer.status_code < 400:
                    return answer
                told = error_of(answer.status_code, answer.content)
                if answer.status_code not in _AGAIN or isinstance(told, (DelayError, ClosedError)):
                    raise told
                problem = told
            except self._library.TimeoutException:
                problem = self._late()
            except self._library.TransportError as lost:
                problem = self._unreachable(lost)
            pause = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
            tries += 1
            if monotonic() + pause >= until:
                raise problem
            sleep(pause)

    def events(self, path: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Iterate over server-sent events, kind and data of each, until the server ends them.

        Raises
        ------
        CumulusError
            The one that the server has told.
        NotRunningError
            If the server cannot be reached, or says nothing for too long.
        """
        if self._client is None:
            raise ClosedError("the client is closed", hint="Connect again: cumulus.connect(address).")
        timeout = self._library.Timeout(self._timeout_s, read=_SILENCE_S)
        headers = {"Accept": "text/event-stream"}
        try:
            with self._client.stream("GET", path, params=parameters, headers=headers, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    raise error_of(answer.status_code, answer.read())
                kind = ""
                for line in _lines(answer.iter_bytes()):
                    if line.startswith(b"event: "):
                        kind = line[7:].decode()
                    elif line.startswith(b"data: "):
                        yield kind, line[6:].decode()
        except self._library.TransportError as lost:
            raise self._unreachable(lost) from None

    def _late(self) -> CumulusError:
        return DelayError(
            f"{self.address} has not answered within {self._timeout_s:g} s", hint="Give it more time: timeout_s=."
        )

    def _unreachable(self, lost: Exception) -> CumulusError:
        return NotRunningError(
            f"{self.address}: {lost or type(lost).__name__}", hint="Is `cumulus serve` running there? See its address."
        )


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Iterate over lines: texts in them may have what is a line's end to Unicode, but not a line feed."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        for line in others:
            yield b"".join(begun)
            begun = [line]
