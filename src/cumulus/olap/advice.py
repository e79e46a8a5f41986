"""Which levels of a cube to keep: by what selections read with and without them, and what keeping them costs.

Greedy, as in Harinarayan, Rajaraman and Ullman, "Implementing Data Cubes Efficiently" (1996), with sizes that are
counted and selections that were asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import pyarrow as pa

from cumulus.errors import UsageError
from cumulus.olap.blocks import key_values
from cumulus.olap.planning import needed_levels
from cumulus.olap.question import Question
from cumulus.olap.question_json import apply
from cumulus.olap.shape import CubeShape

LEVEL_US = 0.12
"""What keeping a small level costs an event, in µs of CPU, where keys are trusted."""
_GREAT_ENTRIES, _GREAT_FACTOR = 60_000, 3.5
"""A level with so many entries, which are beyond the processor's caches, costs so many times as much."""
MOST_CANDIDATES = 512

Levels = frozenset[str]


@dataclass(frozen=True, slots=True)
class AdvisedLevel:
    """A level worth keeping.

    Parameters
    ----------
    entries
        How many its map would have.
    saved
        How many entries fewer a selection reads on average, with it and all before it.
    """

    columns: tuple[str, ...]
    entries: int
    saved: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Which levels to keep.

    Parameters
    ----------
    levels
        The most useful first.
    before, after
        How many entries a selection reads on average, with the finest level alone and with these.
    cost_us
        What keeping them costs an event, in µs of CPU.
    """

    cube: str
    levels: tuple[AdvisedLevel, ...]
    before: float
    after: float
    cost_us: float

    @property
    def keep(self) -> str:
        """The clause of CREATE CUBE; "" if only the finest level is worth it."""
        if not self.levels:
            return ""
        return f"KEEP {', '.join('(' + ', '.join(each.columns) + ')' for each in self.levels)}"

    def __str__(self) -> str:
        lines = [
            f"{self.cube}: a selection reads {self.before:,.0f} entries on average from the finest level, "
            f"{self.after:,.0f} with these; they cost about {self.cost_us:.2g} µs an event"
        ]
        lines += [
            f"  ({', '.join(each.columns)}): {each.entries:,} entries, saves {each.saved:,.0f} of a selection"
            for each in self.levels
        ]
        return "\n".join([*lines, self.keep or "the finest level is enough"])


def advise(
    shape: CubeShape,
    finest: pa.Table,
    asked: Mapping[Levels, float] | None = None,
    *,
    most: int | None = None,
    level_us: float = LEVEL_US,
    budget_us: float | None = None,
) -> Advice:
    """Return which levels to keep.

    Parameters
    ----------
    finest
        The grouping columns of all groups of the cube.
    asked
        The levels that a selection needs → how often it was asked; None weighs every combination of levels alike.
    most
        How many levels, at most.
    level_us
        What keeping a small level costs an event, in µs; one with many entries costs more.
    budget_us
        What all of them may cost; None is no limit.

    Raises
    ------
    UsageError
        If nothing was asked, or a number is negative.
    """
    if level_us < 0 or (most is not None and most < 0) or (budget_us is not None and budget_us < 0):
        raise UsageError("limits and costs are not negative", hint="Give numbers from 0 on.")
    weights = dict.fromkeys(_every_combination(shape), 1.0) if asked is None else dict(asked)
    if not sum(weights.values()) > 0:
        raise UsageError("there are no selections to judge by", hint="Give a log with some, or none.")
    order = [column.name for column in shape.columns]
    size = _Sizes(shape, finest)
    reads = dict.fromkeys(weights, int(finest.num_rows))
    total = sum(weights.values())

    def mean() -> float:
        return sum((weights[each] * reads[each] for each in weights), 0.0) / total

    candidates = set(_candidates(weights)) - {frozenset(order)}
    before, chosen = mean(), list[AdvisedLevel]()
    spent = 0.0

    def cost(level: Levels) -> float:
        return level_us * (1 + (_GREAT_FACTOR - 1) * min(1.0, size.of(level) / _GREAT_ENTRIES))

    def benefit(level: Levels) -> float:
        entries = size.of(level)
        return sum((weights[each] * max(0, reads[each] - entries) for each in weights if each <= level), 0.0)

    def worth(level: Levels) -> float:
        # Under a budget it is what each µs saves that counts.
        return benefit(level) / cost(level) if budget_us and level_us else benefit(level)

    while most is None or len(chosen) < most:
        able = [each for each in candidates if budget_us is None or spent + cost(each) <= budget_us + 1e-9]
        best = max(sorted(able, key=sorted), key=worth, default=None)
        saved = 0.0 if best is None else benefit(best)
        if best is None or saved <= 0:
            break
        candidates.remove(best)
        spent += cost(best)
        for each in weights:
            if each <= best:
                reads[each] = min(reads[each], size.of(best))
        chosen.append(AdvisedLevel(tuple(name for name in order if name in best), size.of(best), saved / total))
    return Advice(shape.name, tuple(chosen), before, mean(), spent)


def read_log(question: Question, lines: Iterable[str]) -> dict[Levels, float]:
    """Return how often which levels were needed, from selections as JSON, one a line.

    A line is what `to_json` writes, or ``{"selection": …, "count": 3}``; those of other cubes are passed over.

    Parameters
    ----------
    question
        One that asks for nothing, of the cube.

    Raises
    ------
    UsageError
        For a line that is no selection of the cube.
    """
    found: dict[Levels, float] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            count = given.get("count", 1) if isinstance(given.get("selection"), dict) else 1
            asked = given["selection"] if isinstance(given.get("selection"), dict) else given
            if asked.get("cube", question.shape.name) != question.shape.name:
                continue
            levels = needed_levels(apply(question, asked))
        except (ValueError, AttributeError) as problem:
            raise UsageError(f"line {number} of the log is no selection: {problem}", hint="Give JSON lines.") from None
        if not isinstance(count, (int, float)) or count < 0:
            raise UsageError(f"line {number} of the log: count {count!r}", hint="Give how often it was asked.")
        found[levels] = found.get(levels, 0) + count
    return found


class _Sizes:
    """How many groups there are by some levels, counted once each."""

    def __init__(self, shape: CubeShape, finest: pa.Table) -> None:
        self._shape, self._finest, self._rows = shape, finest, int(finest.num_rows)
        self._known: dict[Levels, int] = {}

    def of(self, levels: Levels) -> int:
        """Return how many groups there are."""
        found = self._known.get(levels)
        if found is None:
            found = self._known[levels] = self._count(sorted(levels))
        return found

    def _count(self, levels: Sequence[str]) -> int:
        if not levels:
            return 1 if self._rows else 0
        try:
            return int(self._finest.group_by(levels).aggregate([]).num_rows)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # spans are no keys of Arrow
            return len(set(key_values(self._finest, [self._shape.column(level) for level in levels])))


def _every_combination(shape: CubeShape) -> Iterable[Levels]:
    """Return all combinations of levels, of each dimension one or none."""
    count = 1
    for each in shape.dimensions:
        count *= len(each.levels) + 1
    if count > MOST_CANDIDATES:
        raise UsageError(
            f"{shape.name} has {count:,} combinations of levels; {MOST_CANDIDATES} is the most that are judged",
            hint="Give a log of selections.",
        )
    depths = product(*(range(len(each.levels) + 1) for each in shape.dimensions))
    return {
        frozenset(level for each, depth in zip(shape.dimensions, chosen, strict=True) for level in each.levels[:depth])
        for chosen in depths
    }


def _candidates(asked: Mapping[Levels, float]) -> Iterable[Levels]:
    """Return what may be worth keeping: what was needed, and what serves two of them."""
    by_weight: Callable[[Levels], float] = lambda levels: -asked[levels]  # noqa: E731
    found = dict.fromkeys(sorted(sorted(asked, key=sorted), key=by_weight)[:MOST_CANDIDATES])
    for one, other in combinations(tuple(found), 2):
        if len(found) >= MOST_CANDIDATES:
            break
        found.setdefault(one | other)
    return found
