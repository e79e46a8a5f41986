"""A client whose connections are lost sends again, and nothing counts twice."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cumulus import connect, errors
from support.http_server import Running, running

ROW = (1, "ASIA", "1.50", None)


@contextmanager
def losing(server: Running, answers_lost: int) -> Iterator[str]:
    """Yield the address of what passes requests on to a server, and loses the first answers."""
    listening = socket.create_server(("127.0.0.1", 0))
    left = [answers_lost]

    def pass_on(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", server.port)) as behind:
            is_write = False
            while True:
                ready, _, _ = select.select([client, behind], [], [])
                if client in ready:
                    piece = client.recv(1 << 20)
                    is_write = piece.startswith(b"POST") or (is_write and not piece.startswith(b"GET"))
                    if not piece:
                        return
                    behind.sendall(piece)
                    continue
                answer = behind.recv(1 << 20)
                if not answer:
                    return
                if is_write and left[0] > 0:
                    left[0] -= 1
                    return
                client.sendall(answer)

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_a_write_whose_answer_was_lost_counts_once(tmp_path: Path) -> None:
    with running(tmp_path) as server, losing(server, 2) as address, connect(address) as client:
        token = client.insert("orders", [ROW])
        assert (token.rows, client.get("sales", "ASIA", after=token).row) == (1, ("ASIA", 1, 1.5, 1.5))
        assert server.keeper.at == token.at == 1
        with pytest.raises(errors.DuplicateKeyError):
            client.insert("orders", [ROW])


def test_what_is_never_answered_is_told(tmp_path: Path) -> None:
    with running(tmp_path) as server, losing(server, 10**6) as address, connect(address, timeout_s=0.5) as client:
        with pytest.raises(errors.NotRunningError, match="cumulus serve"):
            client.delete("orders", [])
        assert client.view("sales").rows() == []
