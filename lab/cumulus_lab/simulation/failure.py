"""What is wrong with a run."""

from __future__ import annotations

import traceback
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """What is wrong.

    Parameters
    ----------
    check
        The name of the check that has failed. `step` and `check` are the machine's own, `task` is what performs tasks,
        `world` is what no driver can do, such as to send what cannot be encoded, and `rest` is a world without any.
    kind, message
        The exception's.
    traceback
        Where it was raised.
    step
        At or after which step.
    """

    check: str
    kind: str
    message: str
    traceback: str
    step: int

    @property
    def is_of(self) -> tuple[str, str]:
        """What two runs have in common that fail alike."""
        return self.check, self.kind

    def __str__(self) -> str:
        return f"{self.check} fails at step {self.step}: {self.kind}: {self.message}"


def failure_of(check: str, error: BaseException, step: int) -> Failure:
    """Return the failure that an exception is."""
    lines = traceback.format_exception(error)
    return Failure(check, type(error).__name__, str(error), "".join(lines), step)
