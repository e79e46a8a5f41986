"""`cumulus compile` and `cumulus explain`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cumulus.cli.programs import program_in


class Format(StrEnum):
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
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.M3,
    form: Annotated[Form, typer.Option(help="paper: without what the papers' programs do not have.")] = Form.FULL,
    rely: Annotated[bool, typer.Option(help="Use FOREIGN KEY … RELY.")] = True,
    keep: Annotated[str, typer.Option(help="Whose rows are kept: auto, all or none.")] = "auto",
) -> None:
    """Compile a SQL script and print its M3 program.

    Example: cumulus compile examples/shop.sql --format mermaid
    """
    from cumulus.m3.dataflow import to_dot, to_json, to_mermaid

    program = program_in(file, rely=rely, keep=keep, form="" if form is Form.FULL else form.value)
    match format:
        case Format.M3:
            print(str(program), end="")
        case Format.DOT:
            print(to_dot(program))
        case Format.MERMAID:
            print(to_mermaid(program))
        case Format.JSON:
            print(json.dumps(to_json(program), indent=2, ensure_ascii=False))


def explain_command(
    file: File,
    view: Annotated[str, typer.Argument(help="The view; all views if left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    rely: Annotated[bool, typer.Option(help="Use FOREIGN KEY … RELY.")] = True,
) -> None:
    """Say for each view and kind of event what keeping it costs, and how Spark would lay it out.

    Example: cumulus explain examples/shop.sql revenue
    """
    from cumulus.compiler.explain import explain
    from cumulus.m3.layout import choose_layout

    program = program_in(file, rely=rely)
    found = [explain(program, name) for name in ([view] if view else [v.name for v in program.views])]
    layout = choose_layout(program).explain()
    if as_json:
        print(json.dumps({"views": [one.as_dict() for one in found], "layout": layout}, indent=2))
        return
    for one in found:
        print(one, end="\n\n")
    print(layout)
