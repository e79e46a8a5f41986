"""What a user may choose about a compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


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
        Multiplies the limits of what a program may be: 2,000 maps, 15,000 deltas of products, 1,000 looks into
        sub-queries, 8,000 sums of sub-queries spelled out in definitions (docs/sql.md).
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


class ExcessError(Exception):
    """A program outgrows a limit while it is made; `cumulus.compiler.orders` says what follows.

    Parameters
    ----------
    limit
        The limit, as a number with its noun.
    hint
        What makes the program smaller.
    work
        How much of it each view took, by their names.
    size
        The least `CompilerOptions.size` that may allow it.
    order
        The order that needs less; None if the next lower one may.
    """

    def __init__(self, limit: str, hint: str, work: Counter[str], size: int, order: int | None = None) -> None:
        self.limit = limit
        self.hint = hint
        self.work = work
        self.size = size
        self.order = order
        super().__init__(limit)


PAPER = CompilerOptions(lookups=False, counts=False, splits=False, payloads=False, batches=False, keep="none")
"""The form of the programs printed in the papers (docs/papers.md)."""
