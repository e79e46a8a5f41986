"""Consoles that print text as it is: rich replaces nothing in it."""

from __future__ import annotations

from rich.console import Console


def plain_console(*, to_errors: bool = False, width: int | None = None) -> Console:
    """Return a console of standard output, or standard error, without markup, emoji codes and highlighting.

    Names and values of users may contain `:x:` or `[bold]`.
    """
    return Console(stderr=to_errors, width=width, highlight=False, markup=False, emoji=False)
