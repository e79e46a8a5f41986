"""`--functions`: where the user's functions are, on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from cumulus.scalars.function_modules import functions_in

__all__ = ["FUNCTIONS_HELP", "FunctionPlaces", "functions_in"]

FUNCTIONS_HELP = "A Python module (package.module) or file (FILE.py) with @cumulus.function functions; repeatable."
FunctionPlaces = Annotated[list[str] | None, typer.Option("--functions", help=FUNCTIONS_HELP, show_default=False)]
