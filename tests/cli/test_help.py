"""The help of each command in the whole tree shows each of its options and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from cumulus.cli.main import command_line


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command of a tree with the words that call it."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


TREE = dict(commands(get_command(command_line()), ("cumulus",)))


def help_of(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        TREE[("cumulus",)].main([*path[1:], "--help"], "cumulus")
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_help_shows_what_a_command_takes(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = TREE[path]
    shown = help_of(path, monkeypatch, capsys)
    words = {
        word.strip("{}.").lower()
        for word in shown.replace(",", " ").replace("[", " ").replace("]", " ").replace("=", " ").split()
    }
    for each in command.params:
        assert not each.hidden, f"{each.name} is hidden"
        if each.param_type_name == "option":
            assert words.issuperset(map(str.lower, each.opts)), (each.opts, shown)
            assert words.issuperset(map(str.lower, each.secondary_opts)), (each.secondary_opts, shown)
            assert each.help, f"{each.name} has no help"
        else:
            name = (each.metavar or each.name).strip("[]").rstrip(".").lower()
            assert words.issuperset(name.replace("|", " ").split()) or name in words, (name, shown)
    for name in getattr(command, "commands", {}):
        assert name in words, f"{name} is not listed"


@pytest.mark.parametrize("path", [path for path, each in TREE.items() if each.callback is not None], ids=" ".join)
def test_a_command_takes_each_parameter_of_its_function(path: tuple[str, ...]) -> None:
    command = TREE[path]
    taken = {each.name for each in command.params}
    for name, parameter in inspect.signature(inspect.unwrap(command.callback)).parameters.items():
        if "Context" not in str(parameter.annotation):
            assert name in taken, name
