"""What is no script: one readable error, with a way out, wherever a script is taken."""

from __future__ import annotations

from typing import Any

import pytest

import cumulus
from cumulus.errors import UsageError

WAYS = {
    "warehouse": cumulus.Warehouse,
    "compile": cumulus.compile,
    "execute": lambda script: cumulus.Warehouse("CREATE TABLE r (a INT)").execute(script),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("script", "kind", "hint"),
    [
        (5, "int", "as a str"),
        (1.5, "float", "as a str"),
        (None, "None", "as a str"),
        (object(), "object", "as a str"),
        (b"CREATE TABLE r (a INT)", "bytes", "script.decode()"),
        (bytearray(b"CREATE TABLE r (a INT)"), "bytearray", "script.decode()"),
        ({"r": [1]}, "dict", "Warehouse.from_frames"),
        (["CREATE TABLE r (a INT)"], "list", "Warehouse.from_frames"),
    ],
)
def test_what_is_no_script(way: str, script: Any, kind: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        WAYS[way](script)
    said, advice = str(caught.value).splitlines()
    assert said.endswith(f", not {kind}.")
    assert hint in advice
    assert advice.endswith(".")
