"""Saves a warehouse again and again, in a process of its own, and is killed while it does.

`python saving_driver.py FOLDER FORMAT points`: forks, for each call that changes the disk, a child that dies before it;
after each death what is loaded must be what was saved before, or what was being saved. `… FORMAT forever` saves one
state after another until somebody kills it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cumulus import Warehouse
from cumulus.warehouse import saved_folder

SQL = "CREATE TABLE r (a INT, t VARCHAR); CREATE VIEW v AS SELECT t, COUNT(*) AS n, SUM(a) AS s FROM r GROUP BY t"
MANY = 200


def warehouse(state: int) -> Warehouse:
    """Return the warehouse with a number, which is how many rows it has of each text."""
    wh = Warehouse(SQL)
    wh.insert("r", [(1, f"text {number}") for number in range(MANY) for _ in range(state)])
    return wh


def loaded(folder: Path) -> int:
    """Return the number of the warehouse in a folder; -1 if it is none of them."""
    rows = Warehouse.load(folder).view("v").rows()
    (state,) = {row[1:] for row in rows}
    return state[0] if len(rows) == MANY and state[0] == state[1] else -1


def dies_at(point: int, calls: list[str]) -> None:
    """Make the process kill itself before the `point`-th call that changes the disk; `calls` is told the others."""

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if len(calls) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(name)
            return real(*args, **named)

        return call

    os.fsync = watched("fsync", os.fsync)
    os.replace = watched("replace", os.replace)
    os.mkdir = watched("mkdir", os.mkdir)
    shutil.rmtree = watched("rmtree", shutil.rmtree)
    saved_folder._write = watched("write", saved_folder._write)


def points(folder: Path, form: str) -> None:
    """Die before each call once; print how many there are."""
    old, new = warehouse(1), warehouse(2)
    for first in (True, False):
        point, survived = 0, False
        while not survived:
            shutil.rmtree(folder, ignore_errors=True)
            if not first:
                old.save(folder, format=form)
            child = os.fork()
            if not child:
                dies_at(point, [])
                new.save(folder, format=form)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            survived = status == 0
            assert survived or os.WTERMSIG(status) == signal.SIGKILL
            if survived or not first:
                assert loaded(folder) in ((2,) if survived else (1, 2)), f"after a kill at point {point}"
            new.save(folder, format=form)
            assert loaded(folder) == 2
            assert len(list(folder.glob("data-*"))) == 1, "what a kill leaves, the next save removes"
            point += 1
        print(point - 1)


def forever(folder: Path, form: str) -> None:
    """Save the states 1, 2, 3, 1, … and say so."""
    states = [warehouse(state) for state in (1, 2, 3)]
    while True:
        for each in states:
            each.save(folder, format=form)
            print("saved", flush=True)


if __name__ == "__main__":
    {"points": points, "forever": forever}[sys.argv[3]](Path(sys.argv[1]), sys.argv[2])
