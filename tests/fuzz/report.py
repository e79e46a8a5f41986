"""The table of a run: construct → views, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fuzz.compare import Failure
from fuzz.constructs import CONSTRUCTS
from fuzz.examine import Examined, Seen

FEW, ALL_DIFFERENCES = 2, 10
"""How many failures of one signature are told in full."""


class Tally:
    """What a run has seen so far."""

    def __init__(self, *, dry: bool) -> None:
        self.dry = dry
        self.generated = 0
        self.accepted = 0
        self.enforced = 0
        self.seeing_updates = 0
        self.invalid = 0
        self.failure_count = 0
        self.doubted_count = 0
        self.refused: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.invalid_examples: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in ("all views", *CONSTRUCTS)}

    def add(self, examined: Examined) -> Iterator[Failure]:
        """Count what a seed has shown; yield the failures that are worth a look: the first few of a kind."""
        for view in examined.views:
            self._add_view(view)
        for feature, messages in examined.refused.items():
            self.refused[feature] += len(messages)
            self.examples.setdefault(feature, messages[0])
        self.invalid_examples += examined.invalid
        self.failure_count += len(examined.failures)
        self.doubted_count += len(examined.doubted)
        for failure in examined.failures:
            signature = failure.signature()
            self.kinds[signature] += 1
            if self.kinds[signature] <= (ALL_DIFFERENCES if failure.kind == "difference" else FEW):
                yield failure

    def _add_view(self, view: Seen) -> None:
        self.generated += 1
        self.accepted += view.state == "accepted"
        self.enforced += view.state == "accepted" and view.is_enforced
        self.seeing_updates += view.state == "accepted" and view.sees_updates
        self.invalid += view.state == "invalid"
        for name in ("all views", *view.constructs):
            counts = self.counts[name]
            counts[view.state] += 1
            if view.state == "accepted":
                counts["three"] += view.relations >= 3
                counts["shown"] += view.shown
                counts["changed"] += view.changed

    def line(self) -> str:
        """Return the state in one line."""
        refused = sum(self.refused.values())
        compared = f"{self.accepted} compared, {self.seeing_updates} with updated parents"
        return f"{self.generated} views: {compared}, {refused} refused, {self.failure_count} failures"

    def report(self, seconds: float) -> str:
        """Return the tables of the run."""
        lines = [
            "",
            f"{'construct':28}{'views':>8}{'refused':>9}{'≥ 3 relations':>15}{'non-empty':>11}{'changing':>10}",
        ]
        for name, counts in self.counts.items():
            views = counts["accepted"]
            shares = [f"{counts[each] / views:.0%}" if views else "–" for each in ("three", "shown", "changed")]
            lines.append(f"{name:28}{views:>8}{counts['refused']:>9}{shares[0]:>15}{shares[1]:>11}{shares[2]:>10}")
        if self.refused:
            lines += ["", "refused"]
            for feature, number in self.refused.most_common():
                lines += [
                    f"{number:>7}  {feature}",
                    *(f"           {line}" for line in self.examples[feature].splitlines()),
                ]
        if self.invalid:
            lines += ["", f"not valid in DuckDB: {self.invalid} of {self.generated}", *self.invalid_examples[:5]]
        if self.kinds:
            lines += ["", "failures", *(f"{number:>7}  {kind}" for kind, number in self.kinds.most_common())]
        lines += [
            "",
            f"{self.enforced} views over enforced references, of which {self.seeing_updates} saw an update of a "
            "referred parent",
            f"{self.generated} views in {seconds:.0f} s: {self.accepted} {'valid' if self.dry else 'compared'}, "
            f"{sum(self.refused.values())} refused, {self.failure_count} failures; "
            f"{self.doubted_count} times DuckDB agreed only without its optimizer",
        ]
        return "\n".join(lines)
