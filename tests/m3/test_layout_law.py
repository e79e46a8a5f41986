"""The law of one-round layouts: merged buckets = one engine, for random programs, layouts, events and 1–8 buckets."""

import itertools
import random

import pytest

from cumulus.catalog.partition import bucket_of
from cumulus.engine.interpreter import Interpreter
from cumulus.errors import LayoutError
from cumulus.m3 import parse
from cumulus.m3.layout import choose_layout, lay_out

RELATIONS = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c",)}
WIDTHS = {"m0": 1, "m1": 2, "m2": 0, "m3": 1, "m4": 2, "m5": 1}


class RandomProgram:
    """Statements that read maps further down the list only, so that the program is acyclic."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        columns = "\n".join(f"RELATION {name}({', '.join(f'{c} INT' for c in cs)});" for name, cs in RELATIONS.items())
        maps = "\n".join(
            f"MAP {name}[{', '.join(f'k{i} INT' for i in range(width))}](v HUGEINT);" for name, width in WIDTHS.items()
        )
        triggers = []
        for relation, variables in RELATIONS.items():
            for sign in "+-":
                body = [
                    self.statement(f"m{index}", variables, index) for index in range(6) if self.random.random() < 0.5
                ]
                triggers.append(f"ON {sign}{relation}({', '.join(variables)}) {{ {'; '.join(body)} }}")
        return "\n".join([columns, maps, *triggers])

    def statement(self, target: str, variables: tuple[str, ...], index: int) -> str:
        scope = [*variables]
        factors = [self.factor(index, scope) for _ in range(self.random.randint(0, 2))]
        if self.random.random() < 0.2:
            factors.append(self.random.choice(scope))
        if self.random.random() < 0.2:
            factors.append(
                f"{{{self.random.choice(scope)} {self.random.choice(['<', '=', '<>'])} {self.scalar(index, scope)}}}"
            )
        keys = [self.random.choice(scope) for _ in range(WIDTHS[target])]
        sign = self.random.choice(["", "-"])
        return f"{target}[{', '.join(keys)}] += {sign}{' * '.join(factors) or '1'}"

    def scalar(self, index: int, scope: list[str]) -> str:
        if index < 5 and self.random.random() < 0.4:
            return self.read(index, scope, loops=False)
        return self.random.choice([*scope, "1"])

    def factor(self, index: int, scope: list[str]) -> str:
        if index == 5:
            return self.random.choice(scope)
        kind = self.random.random()
        if kind < 0.6:
            return self.read(index, scope)
        if kind < 0.7:
            return f"EXISTS({self.read(index, scope)})"
        if kind < 0.8:
            own = [*scope]
            inner = f"{self.read(index, own)} * {self.read(index, own)}"
            group = [name for name in own if name in scope or self.random.random() < 0.5]
            scope += [name for name in group if name not in scope]
            return f"SUM[{', '.join(group)}]({inner})"
        if kind < 0.9:
            name = f"x{len(scope)}"
            lift = f"({name} := {self.read(index, scope, loops=False)})"
            scope.append(name)
            return lift
        return f"({self.read(index, scope, loops=False)} + {self.read(index, scope, loops=False)})"

    def read(self, index: int, scope: list[str], loops: bool = True) -> str:
        name = f"m{self.random.randint(index + 1, 5)}"
        keys = []
        for _ in range(WIDTHS[name]):
            if loops and self.random.random() < 0.4:
                scope.append(f"x{len(scope)}")
                keys.append(scope[-1])
            else:
                keys.append(self.random.choice(scope))
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


def contents(engine, program):
    return {definition.name: dict(engine.items(definition.name)) for definition in program.maps}


def assert_merged_is_embedded(layout, events, buckets, epoch=5):
    program = layout.program
    embedded = Interpreter(program)
    spread = [Interpreter(layout.bucket_program(bucket)) for bucket in range(buckets)]
    events = list(events)
    for start in range(0, len(events), epoch):
        for engine in (embedded, *spread):
            engine.begin()
        for sign, relation, row in events[start : start + epoch]:
            embedded.on_event(sign, relation, row)
            position = layout.key_position(relation)
            homes = range(buckets) if position is None else [bucket_of(row[position], buckets)]
            for home in homes:
                spread[home].on_event(sign, relation, row)
        for engine in (embedded, *spread):
            engine.commit()
        whole = contents(embedded, program)
        for name, expected in whole.items():
            assert layout.merged(name, [engine.items(name) for engine in spread]) == expected, name


def every_choice():
    columns = [[(name, column) for column in (None, *columns)] for name, columns in RELATIONS.items()]
    for choice in itertools.product(*columns):
        yield {name: column for name, column in choice if column}


@pytest.mark.parametrize("seed", range(40))
def test_merged_buckets_are_the_embedded_engine(seed):
    program = parse(RandomProgram(seed).text())
    legal = 0
    for choice in every_choice():
        try:
            layout = lay_out(program, choice)
        except LayoutError:
            continue
        legal += 1
        rng = random.Random(seed)
        assert_merged_is_embedded(layout, random_events(rng, 40), rng.randint(1, 8))
    assert legal >= 1, "one bucket is always legal"


@pytest.mark.parametrize("seed", range(40))
def test_the_chosen_layout_is_legal_and_right(seed):
    program = parse(RandomProgram(seed).text())
    layout = choose_layout(program)
    assert lay_out(program, layout.partitioned).tags == layout.tags
    assert set(layout.partitioned) | set(layout.reasons) == set(RELATIONS)
    assert_merged_is_embedded(layout, random_events(random.Random(seed), 30), 4)


def test_most_random_programs_can_be_partitioned_somehow():
    found = [choose_layout(parse(RandomProgram(seed).text())) for seed in range(40)]
    assert sum(not layout.one_bucket for layout in found) > 10  # else the law above says nothing
