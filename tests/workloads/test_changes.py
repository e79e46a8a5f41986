"""Tables of changes become events, files and, in the end, tables again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cumulus.catalog import Event
from cumulus.workloads import changes


def told(*rows: tuple[str, int, int, str]) -> pa.Table:
    ops, seqs, keys, names = zip(*rows, strict=True)
    return pa.table({"op": ops, "seq": seqs, "k": keys, "name": names})


def test_replay_follows_each_key_in_its_own_order() -> None:
    first = told(("i", 0, 1, "one"), ("i", 1, 2, "two"), ("u", 3, 1, "uno"), ("i", 2, 3, "three"))
    second = told(("d", 4, 2, "two"), ("i", 6, 3, "a duplicate"), ("i", 5, 2, "due"), ("d", 7, 1, "uno"))
    left = changes.replay([{"r": first}, {"r": second}], {"r": ("k",)})
    assert left["r"].to_pylist() == [{"k": 3, "name": "three"}, {"k": 2, "name": "due"}]


def test_an_update_is_the_old_row_out_and_the_new_row_in() -> None:
    epochs = [{"r": told(("i", 0, 1, "one"), ("u", 2, 1, "uno"), ("i", 1, 2, "two"))}, {"r": told(("u", 3, 1, "un"))}]
    assert list(changes.events(epochs, {"r": ("k",)})) == [
        [
            Event(+1, "r", (1, "one")),
            Event(+1, "r", (2, "two")),
            Event(-1, "r", (1, "one")),
            Event(+1, "r", (1, "uno")),
        ],
        [Event(-1, "r", (1, "uno")), Event(+1, "r", (1, "un"))],
    ]


def test_what_is_written_is_read_back_and_nothing_half_written_is_left(tmp_path: Path) -> None:
    epochs = [{"r": told(("i", 0, 1, "one")), "s": told(("i", 1, 1, "one"))}, {"r": told(("d", 2, 1, "one"))}]
    assert changes.write(tmp_path, epochs) == 2
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")) == [
        "r/000000.parquet",
        "r/000001.parquet",
        "s/000000.parquet",
    ]
    assert changes.read(tmp_path) == epochs
