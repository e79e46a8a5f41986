"""The start of `cumulus`: what needs no command line is answered before one is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        from cumulus.version import VERSION

        print(f"cumulus {VERSION}")
        return
    from cumulus.cli.main import main as run

    run()
