"""Standard output that says why it cannot be written, whichever command prints to it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from cumulus.errors import StoreError


class TellingOutput(io.TextIOWrapper):
    """Text output of which a failure is a `StoreError`; a reader that has gone, as of ``| head``, is left to typer."""

    def write(self, text: str) -> int:
        """Write a text, maybe later."""
        with _as_store_error():
            return super().write(text)

    def flush(self) -> None:
        """Write what has not been written."""
        with _as_store_error():
            super().flush()


@contextlib.contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise StoreError(
            f"standard output cannot be written: {problem.strerror or problem}",
            hint="Make room, or send the output elsewhere; some of it may be missing.",
        ) from None


@contextlib.contextmanager
def telling_output() -> Iterator[None]:
    """Print by `TellingOutput` in a block, and write all of it before the block ends.

    Raises
    ------
    StoreError
        If it cannot be written.
    """
    kept = sys.stdout
    if not isinstance(kept, io.TextIOWrapper):  # in a test, or without a standard output
        yield
        return
    telling = TellingOutput(kept.buffer, kept.encoding, kept.errors, line_buffering=kept.line_buffering)
    sys.stdout = telling
    try:
        try:
            yield
        finally:
            telling.flush()
    finally:
        sys.stdout = kept
        _detach(telling)


def _detach(output: TellingOutput) -> None:
    """Let go of the file; what could not be written goes nowhere, since Python would try again when it ends."""
    try:
        output.detach()
    except (OSError, ValueError, StoreError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output.fileno())
            os.close(nowhere)
