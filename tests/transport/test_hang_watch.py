"""Machines that do not answer: those that hang are found, those that compute are waited for."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cumulus.transport.hang_watch import HangWatch
from cumulus.transport.machine_process import MachineMessage, Process
from cumulus.transport.supervisor import Supervisor
from support.relay import ListCodec

FACTORY = "support.relay:make"


def test_a_machine_that_is_stopped_is_found_and_one_that_computes_is_not() -> None:
    notes: list[str] = []
    with Supervisor([Process(name, FACTORY) for name in "abc"]) as supervisor:
        watch = HangWatch(supervisor, 2.0, notes.append)
        supervisor.send("a", b"".join(ListCodec().encode(["compute", 4])))
        pids = supervisor.pids()
        os.kill(pids["b"], signal.SIGSTOP)
        begun, hung = time.monotonic(), None
        while hung is None:
            assert time.monotonic() - begun < 60
            hung = watch.poll()
            time.sleep(0.02)
        assert hung == "b"
        assert time.monotonic() - begun >= 2
        supervisor.kill("b")
        found = supervisor.wait(30)
        while not isinstance(found, MachineMessage):
            assert found is not None
            watch.poll()
            found = supervisor.wait(30)
        assert (found.name, ListCodec().decode(found.payload)) == ("a", ["computed"])
        assert all(each == "a has not answered for 2 s; it computes, and is waited for" for each in notes)


@pytest.mark.slow
def test_a_supervisor_that_was_stopped_itself_takes_nobody_for_dead() -> None:
    """It counts questions without an answer, not seconds."""
    with Supervisor([Process(name, FACTORY) for name in "ab"]) as supervisor:
        watch = HangWatch(supervisor, 2.0, lambda _: None)
        for _ in range(3):
            assert watch.poll() is None
            time.sleep(2.2)
        assert watch.poll() is None
