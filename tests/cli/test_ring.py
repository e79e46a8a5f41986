"""What `cumulus ring` says to what it cannot do; nothing here starts a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus import connect
from cumulus.errors import InputError
from support.command_line import cumulus


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--storage", "lots"), "error: --storage lots is no size\nWrite a number with MB or GB, such as 256MB."),
        (("--storage", "1"), "error: --storage 1 holds no chunks\nGive 1MB or more; 256MB is usual."),
        (
            ("--transport", "rdma"),
            "error: --transport rdma: chunks do not travel by that\nIt is one of auto",
        ),
        (("--faults", "lost=1"), "error: 'lost=1' is no fault of a link\nKnown are drop, "),
    ],
)
def test_what_cannot_be_started_is_told_before_anything_is_made(
    options: tuple[str, str], message: str, tmp_path: Path
) -> None:
    ended = cumulus("ring", "start", "--from", "data", *options, folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(message)
    assert not list(tmp_path.iterdir())


def test_a_home_that_is_none_says_how_to_start_one(tmp_path: Path) -> None:
    for command in (["query", "SELECT 1"], ["explain", "SELECT 1"], ["status"], ["stop"]):
        ended = cumulus("ring", *command, "--home", "h", folder=tmp_path)
        assert ended.returncode == 1
        assert ended.stderr.endswith(
            "not the home of a ring\nStart one: cumulus ring start --from FOLDER --home HOME.\n"
        )


def test_connecting_to_what_is_no_home_names_both_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not the home of a cluster, nor of a ring\n.*cluster start.*ring start"):
        connect(tmp_path)
