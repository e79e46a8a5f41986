"""`cumulus`: the command line. One file per subcommand; this one puts them together and tells errors."""

from __future__ import annotations

import sys
import warnings

import typer
from rich.console import Console

from cumulus.bench.command import bench
from cumulus.cli.cluster.command import cluster
from cumulus.cli.compile import compile_command
from cumulus.cli.cube.command import cube
from cumulus.cli.demo import demo
from cumulus.cli.doctor import doctor
from cumulus.cli.experiments import experiments
from cumulus.cli.explain import explain_command
from cumulus.cli.query import query
from cumulus.cli.recheck import recheck
from cumulus.cli.ring.command import ring
from cumulus.cli.run import run
from cumulus.cli.serve import serve
from cumulus.cli.shell.command import shell
from cumulus.cli.simulate import simulate
from cumulus.cli.stats import stats
from cumulus.errors import CumulusError, UsageError
from cumulus.version import VERSION

app = typer.Typer(
    name="cumulus",
    help="SQL aggregates kept exact while the data changes.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.command("compile")(compile_command)
app.command("explain")(explain_command)
app.command("run")(run)
app.command("query")(query)
app.command("shell")(shell)
app.add_typer(serve)
app.command("recheck")(recheck)
app.command("stats")(stats)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.add_typer(cube)
app.add_typer(cluster)
app.add_typer(ring)
app.add_typer(simulate)
app.add_typer(experiments)
app.add_typer(bench)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"cumulus {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """SQL aggregates kept exact while the data changes."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True, highlight=False, markup=False).print(f"warning: {message}", soft_wrap=True)


def main() -> None:
    """Run the command line: exit codes 0 ok, 1 failed, 2 usage; errors and warnings are a paragraph each on stderr."""
    warnings.showwarning = _show_warning
    try:
        app()
    except CumulusError as problem:
        Console(stderr=True, highlight=False, markup=False).print(f"error: {problem}", soft_wrap=True)
        sys.exit(2 if isinstance(problem, UsageError) else 1)
