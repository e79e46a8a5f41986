"""`cumulus ring replay`."""

from __future__ import annotations

from pathlib import Path

import typer


def replay(
    file: Path = typer.Argument(..., help="The record.jsonl in a node's folder, by `ring start --record`."),
) -> None:
    """Repeat what a node has recorded, and compare.

    A machine alone is told what the node's was told; if it says anything else, the exit code is 1.

    Example: cumulus ring replay ring/node1/record.jsonl
    """
    from cumulus_ring.process.recording import replay as replayed

    found = replayed(file)
    if found.difference:
        print(f"{found.name}: {found.steps:,} steps are the same, and then not\n{found.difference}")
        raise typer.Exit(1)
    cut = "; the last line is not whole, and left out" if found.is_cut else ""
    print(f"{found.name}: {found.steps:,} steps, all the same{cut}")
