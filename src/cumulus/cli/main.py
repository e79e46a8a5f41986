"""`cumulus`: the command line. One file per subcommand; this one puts them together and tells errors."""

from __future__ import annotations

import contextlib
import sys
import warnings
from importlib import import_module
from typing import Any

import typer

from cumulus.cli.standard_output import telling_output
from cumulus.errors import CumulusError, MissingError, UsageError
from cumulus.extensions import COMMANDS, extensions
from cumulus.version import VERSION

_SUBCOMMANDS = {
    "compile": "cumulus.cli.compile:compile_command",
    "explain": "cumulus.cli.explain:explain_command",
    "run": "cumulus.cli.run:run",
    "query": "cumulus.cli.query:query",
    "shell": "cumulus.cli.shell.command:shell",
    "serve": "cumulus.cli.serve:serve",
    "recheck": "cumulus.cli.recheck:recheck",
    "stats": "cumulus.cli.stats:stats",
    "demo": "cumulus.cli.demo:demo",
    "doctor": "cumulus.cli.doctor:doctor",
    "cube": "cumulus.cli.cube.command:cube",
    "cluster": "cumulus.cli.cluster.command:cluster",
}
"""Name → module and attribute: a function, or a group of commands."""
_LAB = "It is not published: pip install -e lab, in a checkout of Cumulus."
_ELSEWHERE = {
    "ring": "Install cumulus-ivm again; its wheel has the package cumulus_ring.",
    "simulate": _LAB,
    "experiments": _LAB,
    "bench": _LAB,
}
"""Commands of other packages, which are found by entry points → how to install them."""


def command_line(only: str = "") -> typer.Typer:
    """Return the command line with all subcommands, or with one alone: to import all takes half a second of CPU time.

    Parameters
    ----------
    only
        The name of a subcommand; any other text stands for all of them.
    """
    made = typer.Typer(
        name="cumulus",
        help="SQL aggregates kept exact while the data changes.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for name in (only,) if only in _SUBCOMMANDS else () if only in _ELSEWHERE else _SUBCOMMANDS:
        module, _, attribute = _SUBCOMMANDS[name].partition(":")
        _add(made, name, getattr(import_module(module), attribute))
    if only not in _SUBCOMMANDS:
        others = extensions(COMMANDS)
        if only in _ELSEWHERE and only not in others:
            raise MissingError(f"cumulus {only} is a command of a package that is not installed", hint=_ELSEWHERE[only])
        for name in (only,) if only in others else others:
            _add(made, name, others[name].load())
    made.callback()(_options)
    return made


def _add(made: typer.Typer, name: str, found: Any) -> None:
    if isinstance(found, typer.Typer):
        made.add_typer(found)
    else:
        made.command(name)(found)


def __getattr__(name: str) -> Any:
    if name == "app":
        return command_line()
    raise AttributeError(name)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"cumulus {VERSION}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """SQL aggregates kept exact while the data changes."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    from cumulus.cli.terminal.consoles import plain_console

    plain_console(to_errors=True).print(f"warning: {message}", soft_wrap=True)


def main() -> None:
    """Run the command line: exit codes 0 ok, 1 failed, 2 usage; errors and warnings are a paragraph each on stderr."""
    warnings.showwarning = _show_warning
    try:
        with telling_output():
            command_line(sys.argv[1] if len(sys.argv) > 1 else "")()
    except CumulusError as problem:
        from cumulus.cli.terminal.consoles import plain_console

        with contextlib.suppress(OSError):
            plain_console(to_errors=True).print(f"error: {problem}", soft_wrap=True)
        sys.exit(2 if isinstance(problem, UsageError) else 1)
