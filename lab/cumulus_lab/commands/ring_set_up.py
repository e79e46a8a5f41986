"""Options of `cumulus experiments ring` to the set-up that they describe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from math import inf, isfinite
from typing import Any

from cumulus.errors import UsageError
from cumulus_lab.experiments.ring.figures import FIGURES, usual_set_up
from cumulus_lab.experiments.ring.set_up import (
    SCALES,
    Access,
    EvenAccess,
    GaussianAccess,
    MixAccess,
    PulseAccess,
    RingSetUp,
    SkewedAccess,
    SuiteAccess,
    TableAccess,
    ZipfAccess,
)
from cumulus_lab.experiments.ring.suite_cpu import measured_cpu_s

NUMBERS = {
    "nodes": "nodes",
    "chunks": "chunks",
    "total_gb": "total_gb",
    "queue_mb": "queue_mb",
    "link_gbs": "link_gbs",
    "latency_us": "latency_us",
    "at": "at",
    "until": "most_seconds",
    "adapt_ms": "adapt_ms",
    "seed": "seed",
    "resend_s": "resend_s",
    "load_all_ms": "load_all_ms",
    "pins": "pins",
    "disk_mb_s": "disk_mb_s",
}
"""Option → what it is in the set-up."""

RANGES: dict[str, tuple[str, str, type[int] | type[float]]] = {
    "chunk_mb": ("smallest_mb", "largest_mb", float),
    "query_chunks": ("fewest_chunks", "most_chunks", int),
    "work_ms": ("shortest_ms", "longest_ms", int),
    "loit_loads": ("lower_at", "raise_at", float),
}
LISTS: dict[str, type[int] | type[float]] = {"skews": int, "starts": float, "ends": float, "rates": float}
OF_QUERIES = {
    each.name
    for access in (EvenAccess, GaussianAccess, MixAccess, PulseAccess, SkewedAccess, TableAccess, ZipfAccess)
    for each in fields(access)
}
"""Options that not all figures know: which queries come."""
NOT_OF_SUITES = {"chunks", "total_gb", "query_chunks", "work_ms", "pins"}
"""Options of what follows from tables and queries where these are given."""


def ring_set_up(figure: str, scale: str, given: Mapping[str, Any]) -> RingSetUp:
    """Return the set-up of a figure with what is given by options.

    Raises
    ------
    UsageError
        If an option says what cannot be, or is one of another figure.
    """
    known(scale, SCALES, "scale")
    known(given.get("pins", "any"), ("sequential", "parallel", "any"), "way to pin")
    for option, value in given.items():
        if isinstance(value, float) and not isfinite(value):
            raise UsageError(f"--{option.replace('_', '-')} is {value}", hint="Say a number that is finite.")
    usual = usual_set_up(figure, scale)
    _check_suite(figure, usual.access, given)
    found = {name: given[option] for option, name in NUMBERS.items() if option in given}
    for option in RANGES.keys() & given.keys():
        least, most, number = RANGES[option]
        found[least], found[most] = _range(option, given[option], number)
    return replace(usual, **found, access=_access(figure, usual.access, given))


def _check_suite(figure: str, usual: Access, given: Mapping[str, Any]) -> None:
    if not isinstance(usual, SuiteAccess):
        if given.get("measure"):
            raise UsageError(
                f"{figure} has no --measure", hint="table2 and fig17 have queries whose CPU time is known."
            )
        return
    for option in sorted(NOT_OF_SUITES & given.keys()):
        raise UsageError(
            f"{figure} has no --{_option(option)}, as its chunks are those of TPC-H",
            hint="Say --scale-factor and --chunk-mb, of which the larger number counts.",
        )


def _access(figure: str, usual: Access, given: Mapping[str, Any]) -> Access:
    """Return which queries come."""
    own = {each.name for each in fields(usual) if each.compare}
    for option in sorted(OF_QUERIES & given.keys() - own):
        others = ", ".join(
            each for each in FIGURES if option in {it.name for it in fields(FIGURES[each].access["full"])}
        )
        raise UsageError(
            f"{figure} has no --{_option(option)}, but {others}",
            hint=f"It has --{', --'.join(map(_option, sorted(own)))} for its queries.",
        )
    chosen: dict[str, Any] = {
        option: _list(option, given[option], LISTS[option]) if option in LISTS else given[option]
        for option in sorted(own & given.keys())
    }
    access = replace(usual, **chosen)
    if isinstance(access, SkewedAccess | PulseAccess):
        _check_workloads(access)
    if isinstance(access, SuiteAccess) and given.get("measure"):
        return replace(access, cpu_s=measured_cpu_s())
    return access


def _option(name: str) -> str:
    return name.replace("_", "-")


def _check_workloads(access: SkewedAccess | PulseAccess) -> None:
    first, *others = {each.name: len(getattr(access, each.name)) for each in fields(access)}.items()
    if any(count != first[1] for _, count in others):
        named = [f"--{name}" for name, _ in others]
        told = f"{', '.join(named[:-1])} and {named[-1]}"
        raise UsageError(f"there are not as many --{first[0]} as {told}", hint="Say one of each for each workload.")
    if isinstance(access, PulseAccess) and len(access.starts) < 2:
        raise UsageError("there is no quiet time", hint="Say --starts, --ends and --rates of two times at least.")
    if any(end <= start for start, end in zip(access.starts, access.ends, strict=True)):
        raise UsageError("a workload ends before it begins", hint="Say --ends that are after --starts.")
    skews = access.skews if isinstance(access, SkewedAccess) else (1,)
    if min(skews) < 1 or min(access.rates) <= 0 or min(access.starts) < 0:
        raise UsageError("a skew is below 1, a rate is 0, or a start is before 0", hint="Say larger numbers.")


def _range(option: str, text: str, number: type[int] | type[float]) -> tuple[float, float]:
    """Return the ends of ``1:10``."""
    least, _, most = text.partition(":")
    try:
        found = number(least), number(most or least)
    except ValueError:
        found = 0, 0
    if not 0 < found[0] <= found[1] < inf:
        raise UsageError(
            f"{text!r} is no range", hint=f"Say the least and the most: --{option.replace('_', '-')} 1:10."
        )
    return found


def _list(option: str, text: str, number: type[int] | type[float]) -> tuple[float, ...]:
    """Return the numbers of ``3,5,7``."""
    try:
        found = tuple(number(each) for each in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise UsageError(f"{text!r} is no list of numbers", hint=f"Say one for each workload: --{option} 3,5,7.")
    return found


def threshold_levels(text: str) -> list[tuple[float, ...]]:
    """Return the levels, lowest first, of each of the runs of ``0.1,0.1:0.6:1.1``."""
    return [_levels(each) for each in text.split(",") if each.strip()]


def _levels(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split(":"))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)) or list(found) != sorted(set(found)) or found[0] < 0:
        raise UsageError(
            f"{text!r} is no threshold", hint="Say --loit 0.1,1.1 for two runs, --loit 0.1:0.6:1.1 for a dynamic one."
        )
    return found


def known(name: str, names: Collection[str], what: str) -> None:
    """Refuse a name that is not one of those that there are."""
    if name not in names:
        raise UsageError(f"there is no {what} {name!r}", hint=f"There are: {', '.join(names)}.")
