"""Claims of the papers about a cluster: what each says, how it is measured, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.compiler import compile_sql
from cumulus.m3.program import Program
from cumulus_lab.bench.cluster_bench import write_input

Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ClaimScale:
    """How much is run for a claim.

    Parameters
    ----------
    events
        Of a run over folders, about.
    epochs
        In which they come; the first two do not count.
    seconds
        How long clients send or read.
    largest
        The largest number of nodes that is computed.
    """

    events: int
    epochs: int
    seconds: float
    largest: int = 1000


SCALES = {"full": ClaimScale(400_000, 8, 10.0), "ci": ClaimScale(60_000, 6, 3.0)}


@dataclass(frozen=True, slots=True)
class ClaimFound:
    """What was found.

    Parameters
    ----------
    rows
        What was measured, and what was computed from it.
    sentence
        What they say of the claim.
    until
        Where it stops being true.
    """

    rows: Rows
    sentence: str
    until: str


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """A claim of a paper.

    Parameters
    ----------
    says, source
        What it says, in short, and where.
    run
        Measures it, with a folder for what it needs.
    axes
        Of a picture: the columns for x, y, and what tells its lines apart.
    is_log
        Whether both axes are logarithmic.
    """

    says: str
    source: str
    run: Callable[[ClaimScale, Path], ClaimFound]
    axes: tuple[str, str, str]
    is_log: bool = False


def write_program(workload: str, folder: Path, scale: ClaimScale) -> Program:
    """Write the files of a workload of `cumulus bench cluster`; return its program, as a cluster runs it."""
    text = write_input(workload, folder, scale.events, scale.epochs, 0, None)
    return compile_sql(text, rely=False, enforced=False)


def row_of(rows: Sequence[Mapping[str, Any]], **chosen: Any) -> Mapping[str, Any]:
    """Return the only row with some values."""
    [found] = [row for row in rows if all(row.get(name) == value for name, value in chosen.items())]
    return found


def ratio(one: float, other: float) -> str:
    """Return how often one number is the other, for a sentence."""
    return f"{one / other:.2f} times" if other else "any number of times"
