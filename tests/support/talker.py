"""A process that goes on and talks: `python -m support.talker`, as `cumulus.transport.detached` starts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cumulus.transport.detached import run_detached

MOST_BYTES = 20_000


def talk(is_stopped: Callable[[], bool], on_up: Callable[[], None], note: Callable[[str], None]) -> None:
    """Write a line that is numbered every five milliseconds, by turns as notes and on standard output."""
    on_up()
    number = 0
    while not is_stopped():
        number += 1
        text = f"{number:06} " + "x" * 100
        if number % 2:
            note(text)
        else:
            print(text, flush=True)
        time.sleep(0.005)
    note("the end")


if __name__ == "__main__":
    sys.stdin.read()
    run_detached(talk, "the log", MOST_BYTES)
