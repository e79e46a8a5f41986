"""A function of the user's, as a program of the simulated clusters calls it."""

from __future__ import annotations

import cumulus


@cumulus.function(name="inverse", arguments=["INTEGER"], returns="INTEGER")
def inverse(x: int) -> int:
    """Fail for 0, as such functions may."""
    return 12 // x
