"""What a user may choose about a compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the compiler.

    Parameters
    ----------
    rely
        Use the promises of `FOREIGN KEY … RELY`: deltas that can only be zero disappear. Hosts that do not see the
        order of parents and children take the program compiled without.
    lookups
        Drop joins that only look up a trusted parent.
    counts
        Keep the count of rows with every view and every map of floats; the papers' programs do without.
    splits
        Look parts of a join up by their primary keys where one map of it would be a cross product.
    payloads
        Put columns with the same entries into one map.
    batches
        Write `ON BATCH` triggers too.
    keep
        "auto", "all" or "none": which tables' rows are kept (architecture.md, "Kept rows"); a table's own setting wins.
    trace
        Is told, line by line, how every delta is simplified.
    """

    rely: bool = True
    lookups: bool = True
    counts: bool = True
    splits: bool = True
    payloads: bool = True
    batches: bool = True
    keep: str = "auto"
    trace: Callable[[str], None] | None = None


PAPER = Options(lookups=False, counts=False, splits=False, payloads=False, batches=False, keep="none")
"""The form of the programs printed in the papers (compiler.md §3)."""
