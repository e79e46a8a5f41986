"""The release of DuckDB whose results scalar functions give, and what releases before it gave instead.

A checkpoint or a saved warehouse records the release that it was made under. Its maps keep what the functions gave
then, so whoever goes on with it is warned if one of the program's functions has changed since ([docs/releases.md]).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

from cumulus.errors import ReleaseWarning

FOLLOWED = "2.0.1"
UNRECORDED = "2.0.0"
"""What was followed when checkpoints and saved warehouses did not record it yet."""
CHANGED: Mapping[str, tuple[str, ...]] = {
    "2.0.1": ("round", "levenshtein", "damerau_levenshtein", "hamming", "fmod"),
}
"""Release → functions that give other values since."""


def functions_changed_since(release: str, program: str) -> list[str]:
    """Return the functions of a program that have changed after `release` and up to `FOLLOWED`, or the other way.

    Examples
    --------
    >>> functions_changed_since("2.0.0", "MAP v[](n DOUBLE) = SUM[](r(x) * round(x, 2));")
    ['round']
    >>> functions_changed_since("2.0.1", "MAP v[](n DOUBLE) = SUM[](r(x) * round(x, 2));")
    []
    """
    first, last = sorted((_numbers(release), _numbers(FOLLOWED)))
    changed = [name for since, names in CHANGED.items() if first < _numbers(since) <= last for name in names]
    return [name for name in changed if re.search(rf"\b{name}\(", program)]


def warn_if_changed(place: object, release: str, program: str) -> None:
    """Issue a `ReleaseWarning` if state at `place` was made under a release whose results differ for a program.

    Parameters
    ----------
    place
        The folder, as the warning names it.
    release
        Of DuckDB, recorded with the state.
    program
        M3 text.
    """
    names = functions_changed_since(release, program)
    if names:
        warnings.warn(
            f"{place} was made with the functions of DuckDB {release}, these are those of {FOLLOWED}: "
            f"{', '.join(names)} may give other values for new rows than for the rows in it. Compute the views anew, "
            "from new folders, to have one release throughout; docs/releases.md has what has changed.",
            ReleaseWarning,
            stacklevel=3,
        )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])
