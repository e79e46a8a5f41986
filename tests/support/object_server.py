"""An S3 server on this machine, and a proxy before it that counts requests, delays, refuses, cuts and loses answers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cumulus.durable.store import Storage, store_of

KEY, SECRET = "AKIDOWNER", "the owner's secret"
READER, READERS_SECRET = "AKIDREADER", "the reader's secret"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
_IDENTITIES = {
    "identities": [
        {
            "name": "owner",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER, "secretKey": READERS_SECRET}],
            "actions": ["Read", "List"],
        },
    ]
}


def _ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@contextmanager
def object_server(folder: Path) -> Iterator[str]:
    """Run SeaweedFS; yield its endpoint. Buckets are made by the first write of the owner."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(json.dumps(_IDENTITIES))
    s3, master, volume, filer, *grpc = _ports(8)
    command = [str(Path(sys.executable).with_name("weed")), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    command += [f"-dir={folder}", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}", f"-master.port={master}"]
    command += [f"-volume.port={volume}", f"-filer.port={filer}", "-master.volumeSizeLimitMB=64", "-volume.max=50"]
    command += [f"-s3.port.grpc={grpc[0]}", f"-master.port.grpc={grpc[1]}", f"-volume.port.grpc={grpc[2]}"]
    command += [f"-filer.port.grpc={grpc[3]}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=folder)
    try:
        _wait_for(s3, process, folder / "weed.log")
        yield f"http://127.0.0.1:{s3}"
    finally:
        with suppress(ProcessLookupError):  # told to end, it goes on for ten seconds
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            asked.request("GET", "/")
            asked.getresponse().read()
            # It answers before it can keep anything: try.
            if _can_write(port):
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


def _can_write(port: int) -> bool:
    options = {"endpoint": f"http://127.0.0.1:{port}", "allow_http": "true", "region": "us-east-1"}
    storage = Storage({**options, "access_key_id": KEY, "secret_access_key": SECRET})
    try:
        store_of("s3://first-bucket/x", storage).put("probe", b"x")
    except OSError:
        return False
    return True


Fault = Callable[[str, str, Mapping[str, str]], "int | str | None"]
"""From method, path and headers of a request to a status to answer with, "cut", "lose" or None."""


class Proxy:
    """Forwards requests to a server; an address of its own.

    Attributes
    ----------
    requests
        (method, path without the bucket, what is asked for by a query) of each request, in order.
    fault
        What happens to a request: a status is answered in place of the server; "cut" ends the connection before it is
        asked, "lose" after it has done what was asked; None forwards.
    delay_s
        Before each request.
    """

    def __init__(self, endpoint: str) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.fault: Fault = lambda method, path, headers: None
        self.delay_s = 0.0
        target = urlsplit(endpoint)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _forward(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                split = urlsplit(self.path)
                path = unquote(split.path)
                kind = "list" if "list-type" in split.query else ""
                proxy.requests.append((self.command, path, kind))
                time.sleep(proxy.delay_s)
                found = proxy.fault(self.command, path, dict(self.headers.items()))
                if found == "cut":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if isinstance(found, int):
                    self.send_response(found)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                asked = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
                asked.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    asked.putheader(name, value)
                asked.endheaders(body)
                answer = asked.getresponse()
                data = answer.read()
                if found == "lose":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                size = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", size or str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def counted(self) -> Counter[str]:
        """Return how often each kind of request came: "list", or its method with the folder of what it names."""
        return Counter(kind or f"{method} {path.rsplit('/', 2)[-2]}" for method, path, kind in self.requests)

    def reset(self) -> None:
        """Forget what was counted, and do no harm."""
        self.fault = lambda method, path, headers: None
        self.delay_s = 0.0
        self.requests.clear()

    def storage(self, **more: str) -> Storage:
        """Return how the server is reached by its owner, or with other options."""
        options = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1", "allow_http": "true"}
        return Storage({**options, "endpoint": self.endpoint, **more})

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
