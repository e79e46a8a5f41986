"""A process that has imported the engine and forks the processes of buckets: to start one anew takes a second.

`local_session` starts it beside Java and says in the environment where it listens, so that the workers of this machine
find it. It ends with the process that has started it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from cumulus.spark.private_folder import private_folder
from cumulus.version import VERSION

PLACE = "CUMULUS_BUCKET_TEMPLATE"
"""The variable of the environment that has its socket."""
_WHAT_RUNS = (sys.executable, VERSION)
_PATIENCE_S = 10.0
"""So long at most a worker waits for a server, then it starts one itself."""
_started: subprocess.Popen[bytes] | None = None


def start_template(log: Path) -> None:
    """Start the process, whose own words go to a file, unless this process has one; do not wait for it."""
    global _started
    if _started is not None and _started.poll() is None:
        return
    path = private_folder() / f"template-{os.getpid()}"
    path.unlink(missing_ok=True)
    with log.open("ab") as words:
        _started = subprocess.Popen(
            [sys.executable, "-m", "cumulus.spark.bucket_template", str(path)],
            stdin=subprocess.PIPE,  # its end is the sign that this process has ended
            stdout=words,
            stderr=words,
            start_new_session=True,  # a Ctrl-C is for the driver
        )
    os.environ[PLACE] = str(path)


def forked_server(path: Path, owner: int) -> bool:
    """Have the process fork a server of a bucket; return whether it did, and the server listens.

    Parameters
    ----------
    path, owner
        As in `cumulus.spark.bucket_server.serve`.
    """
    place = os.environ.get(PLACE)
    if place is None:
        return False
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(place)
        except OSError:
            return False
        with suppress(OSError, EOFError), Connection(os.dup(client.fileno())) as connection:
            connection.send((_WHAT_RUNS, str(path), owner, sys.path, dict(os.environ)))
            return connection.poll(_PATIENCE_S) and bool(connection.recv())
    return False


def _serve(path: Path) -> None:
    """Fork a server for each who asks, until the standard input ends."""
    import_module("cumulus.engine.native.engine")
    import_module("cumulus.spark.bucket_server")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for servers
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            accepted, _ = listener.accept()
            with Connection(accepted.detach()) as connection, suppress(OSError, EOFError):
                if os.fork() == 0:
                    listener.close()
                    _become_server(connection)
    path.unlink(missing_ok=True)


def _become_server(connection: Connection) -> None:
    """Serve a bucket in this process, as a worker asks; does not return."""
    status = 1
    try:
        from cumulus.spark.bucket_server import serve

        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        what_runs, place, owner, modules, environment = connection.recv()
        if what_runs != _WHAT_RUNS:  # a worker with another Python or release, which must start its own
            return
        sys.path[:] = modules
        os.environ.clear()
        os.environ.update(environment)

        def tell() -> None:
            connection.send(True)
            connection.close()

        serve(Path(place), owner, tell=tell)
        status = 0
    except BaseException:  # noqa: BLE001 (the end of this process)
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
