"""`cumulus compile`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.programs import program_in


class OutputFormat(StrEnum):
    """How a program is printed."""

    M3 = "m3"
    DOT = "dot"
    MERMAID = "mermaid"
    JSON = "json"


class Form(StrEnum):
    """Which program is written."""

    FULL = "full"
    PAPER = "paper"


File = Annotated[Path, typer.Argument(help="A SQL script, or an M3 program (*.m3).", show_default=False)]


def compile_command(
    file: File,
    format: Annotated[OutputFormat, typer.Option(help="What to print.")] = OutputFormat.M3,
    form: Annotated[Form, typer.Option(help="paper: without what the papers' programs do not have.")] = Form.FULL,
    rely: Annotated[bool, typer.Option(help="Use FOREIGN KEY … RELY.")] = True,
    keep: Annotated[str, typer.Option(help="Whose rows are kept: auto, all or none.")] = "auto",
    functions: FunctionPlaces = None,
    order: Annotated[
        int | None, typer.Option(min=0, max=1, help="Keep only rows (1), or evaluate views again (0).")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Multiplies the limits of what a program may be.")] = 1,
    svg: Annotated[Path | None, typer.Option(help="Draw the maps and what they are made from, too.")] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print each delta after each pass, on standard error.")
    ] = False,
) -> None:
    """Compile a SQL script and print its M3 program.

    Example: cumulus compile examples/shop.sql --format mermaid
    """
    from cumulus.m3.dataflow import to_dot, to_json, to_mermaid

    program = program_in(
        file,
        rely=rely,
        keep=keep,
        form="" if form is Form.FULL else form.value,
        functions=functions_in(functions),
        order=order,
        size=size,
        trace=partial(print, file=sys.stderr) if trace else None,
    )
    if svg is not None:
        from cumulus.explain.program_drawing import to_svg

        svg.write_text(to_svg(program), encoding="utf-8")
    match format:
        case OutputFormat.M3:
            print(str(program), end="")
        case OutputFormat.DOT:
            print(to_dot(program))
        case OutputFormat.MERMAID:
            print(to_mermaid(program))
        case OutputFormat.JSON:
            print(json.dumps(to_json(program), indent=2, ensure_ascii=False))
