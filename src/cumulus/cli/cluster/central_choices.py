"""`--dispatch`, `--arity` and `--gc`, of the commands that plan or run a cluster."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from cumulus.cluster.planning.central_options import ARITY_HELP, DISPATCH_HELP, GC_HELP

DispatchChoice: TypeAlias = Annotated[str, typer.Option("--dispatch", help=DISPATCH_HELP, show_default=False)]
ArityChoice: TypeAlias = Annotated[int | None, typer.Option("--arity", help=ARITY_HELP, show_default=False)]
GcChoice: TypeAlias = Annotated[str, typer.Option("--gc", help=GC_HELP, show_default=False)]
