"""What is found in a figure, beside what the paper says of it, and what must be found whatever the seed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FigureFinding:
    """One thing that is found.

    Parameters
    ----------
    what
        What it is about.
    paper
        What the paper says.
    here
        What was found.
    must
        What must be found, or "" where anything may.
    is_inside
        Whether it was.
    differs
        In what it differs from the paper, or "" if it does not.
    """

    what: str
    paper: str
    here: str
    must: str = ""
    is_inside: bool = True
    differs: str = ""

    @property
    def verdict(self) -> str:
        """What to think of it, in a few words."""
        if not self.is_inside:
            return "OUTSIDE"
        if self.differs:
            return f"differs: {self.differs}"
        if self.must:
            return "as it must be"
        return "as in the paper" if self.paper else ""


@dataclass(frozen=True, slots=True)
class Band:
    """From where to where something may be; None for no bound.

    Examples
    --------
    >>> [str(Band(2.4)), str(Band(most=0.8)), str(Band(5_500, 10_500)), 3 in Band(2.4)]
    ['2.4 or more', '0.8 or less', '5,500 to 10,500', True]
    """

    least: float | None = None
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least is None:
            return f"{self.most:,} or less" if self.most is not None else ""
        if self.least == self.most:
            return f"{self.most:,}"
        return f"{self.least:,} or more" if self.most is None else f"{self.least:,} to {self.most:,}"
