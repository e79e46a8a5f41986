"""Random M3 programs without definitions, whose statements join columns of one domain, and events for them."""

from __future__ import annotations

import itertools
import random

RELATIONS = {"r": "ab", "s": "bc", "t": "c"}
KEYS = {"m0": "b", "m1": "ab", "m2": "", "m3": "b", "m4": "bc", "m5": "c", "m6": "ab", "m7": "b"}


class RandomProgram:
    """Statements that read maps further down the list only, and join columns of one domain (a, b or c) only."""

    def __init__(self, seed: int, *, changes: bool = False) -> None:
        self.random = random.Random(seed)
        self.changes = changes  # whether statements follow what the event changes of other maps
        self.starting = 0.4 if seed % 2 else 0.0  # how often a map has entries before the first event

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        lines = [f"RELATION {name}({', '.join(f'{c} INT' for c in cs)});" for name, cs in RELATIONS.items()]
        lines += [
            f"MAP {name}[{', '.join(f'{c} INT' for c in cs)}](v HUGEINT){self.start(cs)};" for name, cs in KEYS.items()
        ]
        for relation, columns in RELATIONS.items():
            body = [self.statement(name, columns) for name in KEYS if self.often(0.3 if name < "m4" else 0.6)]
            if self.changes:
                body += [self.following(columns, [each[0] for each in body if each]) for _ in range(3)]
            for sign, factor in (("+", ""), ("-", "-1 * ")):
                statements = "; ".join(f"{target} += {factor}({term})" for target, term in filter(None, body))
                lines.append(f"ON {sign}{relation}({', '.join(columns)}) {{ {statements} }}")
            row = f"{relation}({', '.join(columns)})"
            statements = "; ".join(f"{target} += {row} * ({term})" for target, term in filter(None, body))
            lines.append(f"ON BATCH {relation} {{ {statements} }}")
        return "\n".join(lines)

    def start(self, columns: str) -> str:
        if not self.often(self.starting):
            return ""
        keys = dict.fromkeys(tuple(self.random.choice(["0", "1", "NULL"]) for _ in columns) for _ in range(2))
        return " START " + ", ".join(f"({', '.join(key)}: {self.random.choice([-1, 2])})" for key in keys)

    def statement(self, target: str, columns: str) -> tuple[str, str] | None:
        scope = {domain: [domain] if domain in columns else [] for domain in "abc"}
        index = int(target[1])
        factors = [self.factor(index, scope) for _ in range(self.random.choice([0, 1, 1, 2]))]
        keys = [self.variable(domain, scope) for domain in KEYS[target]]
        if any(key not in scope[domain] for key, domain in zip(keys, KEYS[target], strict=True)):
            return None
        if self.often(0.2):
            factors.append(self.random.choice(columns))
        if self.often(0.15):
            left = self.random.choice(columns)
            factors.append(f"{{{left} {self.random.choice(['<', '=', '<>'])} {self.scalar(index, scope)}}}")
        return f"{target}[{', '.join(keys)}]", " * ".join(factors) or "1"

    def following(self, columns: str, written: list[str]) -> tuple[str, str] | None:
        """A statement that takes away what the old entries of a map gave, and adds what the new ones give."""
        names = [target[:2] for target in written if target >= "m1"]
        if not names:
            return None
        name = self.random.choice(names)
        scope = {domain: [domain] if domain in columns else [] for domain in "abc"}
        read = self.read(0, scope, [name])
        factors = [self.read(int(name[1]), scope)] if name < "m7" and self.often(0.4) else []
        targets = [each for each in KEYS if each < name and all(scope[domain] for domain in KEYS[each])]
        if not targets:
            return None
        target = self.random.choice(targets)
        keys = [self.random.choice(scope[domain]) for domain in KEYS[target]]
        changed = f"CHANGED {read}"
        return (
            f"{target}[{', '.join(keys)}]",
            " * ".join([changed, *factors, f"({{NEW {read} > 0}} - {{{read} > 0}})"]),
        )

    def variable(self, domain: str, scope: dict[str, list[str]]) -> str:
        return self.random.choice(scope[domain]) if scope[domain] else "?"

    def scalar(self, index: int, scope: dict[str, list[str]]) -> str:
        bound = {domain: names for domain, names in scope.items() if names}
        reads = [name for name in KEYS if int(name[1]) > index and all(domain in bound for domain in KEYS[name])]
        if reads and self.often(0.6):
            name = self.random.choice(reads)
            keys = [self.variable(domain, scope) for domain in KEYS[name]]
            if keys and self.often(0.3):
                keys[self.random.randrange(len(keys))] = "end"
                return f"{self.random.choice(['MIN', 'MAX'])}[x]({name}[{', '.join(keys)}])".replace("end", "x")
            return f"{name}[{', '.join(keys)}]"
        return self.random.choice(["1", *itertools.chain(*bound.values())])

    def factor(self, index: int, scope: dict[str, list[str]]) -> str:
        kind = self.random.random()
        if index == 7 or kind < 0.1:
            return f"(1 + {self.scalar(index, scope)})" if self.often(0.5) else f"({self.scalar(index, scope)})"
        if kind < 0.7:
            return self.read(index, scope)
        if kind < 0.8:
            return f"EXISTS({self.read(index, scope)})"
        if kind < 0.9:
            before = {domain: [*names] for domain, names in scope.items()}
            inner = f"{self.read(index, scope)} * {self.read(index, scope)}"
            new = [name for domain, names in scope.items() for name in names if name not in before[domain]]
            hidden = [name for name in new if self.often(0.5)]
            for domain in scope:
                scope[domain] = [name for name in scope[domain] if name not in hidden]
            return f"SUM[{', '.join(itertools.chain(*scope.values()))}]({inner})"
        self.lifts = getattr(self, "lifts", 0) + 1
        return f"(x{self.lifts} := {self.scalar(index, scope)}) * x{self.lifts}"

    def read(self, index: int, scope: dict[str, list[str]], names: list[str] | None = None) -> str:
        name = self.random.choice(names or [name for name in KEYS if int(name[1]) > index])
        keys = []
        for domain in KEYS[name]:
            if not scope[domain] or self.often(0.3):
                self.loops = getattr(self, "loops", 0) + 1
                scope[domain].append(f"{domain}{self.loops}")
                keys.append(scope[domain][-1])
            else:
                keys.append(self.random.choice(scope[domain]))
        return f"{name}[{', '.join(keys)}]"


def random_events(rng: random.Random, count: int):
    """Insertions of few different rows, and deletions of rows that are there."""
    there: list[tuple[str, tuple]] = []
    for _ in range(count):
        if there and rng.random() < 0.3:
            relation, row = there.pop(rng.randrange(len(there)))
            yield -1, relation, row
        else:
            relation = rng.choice(list(RELATIONS))
            row = tuple(rng.choice([0, 1, 2, None]) for _ in RELATIONS[relation])
            there.append((relation, row))
            yield 1, relation, row
