"""Nodes that join a ring of this machine, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import SECRET, read_address


class JoinedNode:
    """A node in a process of its own, as the command starts it."""

    def __init__(self, ring: RingClient, home: Path, *more: object) -> None:
        secret = ring.home / SECRET
        words = ["ring", "join", read_address(ring.home).door, "--secret-file", secret, "--home", home, *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cumulus", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> JoinedNode:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "of the ring at 127.0.0.1:" in line, line + self.process.stdout.read()
        return self

    def said(self, code: int) -> str:
        told, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == code, told
        return told

    def __enter__(self) -> JoinedNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)
