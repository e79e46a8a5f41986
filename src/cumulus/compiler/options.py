"""What a user may choose about a compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cumulus.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class CompilerOptions:
    """Choices of the compiler.

    Parameters
    ----------
    rely
        Use the promises of `FOREIGN KEY … RELY`: deltas that can only be zero disappear. Hosts that do not see the
        order of parents and children take the program compiled without.
    enforced
        Do the same for the references that the host checks.
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
    order
        What views keep beside their own numbers (docs/architecture.md, "Materialisation"): None whatever makes an event
        cheap ("full"), 1 only rows of tables and of sub-queries, 0 the same, and the view is evaluated again after each
        transaction. A view's own `WITH (order = …)` wins.
    keep
        "auto", "all" or "none": which tables' rows are kept (docs/architecture.md, "Kept rows"). A table's own setting
        wins.
    size
        Multiplies the limits of what a program may be: 2,000 maps, 1,000 looks into sub-queries, 8,000 sums
        of sub-queries spelled out in definitions.
    trace
        Is told, line by line, how every delta is simplified.
    """

    rely: bool = True
    enforced: bool = True
    lookups: bool = True
    counts: bool = True
    splits: bool = True
    payloads: bool = True
    batches: bool = True
    order: int | None = None
    keep: str = "auto"
    size: int = 1
    trace: Callable[[str], None] | None = None

    def refuse(self, count: int, limit: int, what: str, hint: str) -> None:
        """Refuse a program that is larger than allowed.

        Raises
        ------
        UnsupportedError
            If `count` is over the limit.

        Examples
        --------
        >>> CompilerOptions().refuse(2001, 2000, "maps", "Join fewer tables.")
        Traceback (most recent call last):
        ...
        cumulus.errors.UnsupportedError: these views need more than 2000 maps
        Join fewer tables. Or allow larger programs: Warehouse(…, size=2), --size 2.
        >>> CompilerOptions(size=2).refuse(2001, 2000, "maps", "Join fewer tables.")
        """
        if count > limit * self.size:
            raise UnsupportedError(
                f"these views need more than {limit * self.size} {what}",
                feature="a program of this size",
                hint=f"{hint} Or allow larger programs: Warehouse(…, size={2 * self.size}), --size {2 * self.size}.",
            )


PAPER = CompilerOptions(lookups=False, counts=False, splits=False, payloads=False, batches=False, keep="none")
"""The form of the programs printed in the papers (docs/papers.md)."""
