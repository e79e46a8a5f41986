"""Every engine does what the pages say: against an evaluator of M3 that only knows dicts and loops.

The oracle below runs a statement by trying every binding of every variable over the values that stand anywhere in the
maps and the row. It knows nothing of order, indexes, sharing or buffers, so it cannot share their mistakes.
"""

from __future__ import annotations

import decimal
import itertools
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.algebra.scope import outputs, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Sum,
    Var,
    add,
    multiply,
    negate,
    number,
    product_of,
    rebuild,
    sum_of,
)
from cumulus.calculus.evaluate import compare
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT, EXACT, HUGEINT, INTEGER
from cumulus.engine.protocol import Engine
from cumulus.m3 import parse
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger
from cumulus.scalars.registry import call
from support.engines import engine_of
from support.tiers import examples

pytestmark = pytest.mark.usefixtures("each_engine")

# --- the oracle -----------------------------------------------------------------------------------------------------


class Naive:
    """Maps as {name: {key: number}}, one exact value column each."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.maps = {
            definition.name: {key: values[0] for key, values in definition.initial} for definition in program.maps
        }

    def fire(self, trigger: Trigger, row: tuple, batch: dict) -> None:
        bound = dict(zip(trigger.variables, row, strict=True)) if trigger.variables else {}
        domain = {value for entries in self.maps.values() for key in entries for value in key} | set(row)
        domain |= {value for each in batch for value in each} | set(range(-1, 4)) | {None}
        self.known = domain, batch
        # What maps will be is guessed, and computed again from the guess until it is right.
        self.new = {}
        while self.new != (after := self._after(trigger, bound, domain, batch)):
            self.new = after
        self.maps = after

    def _after(self, trigger: Trigger, bound: dict, domain: set, batch: dict) -> dict:
        after = {name: dict(entries) for name, entries in self.maps.items()}
        for statement in trigger.statements:
            if statement.op == "+=":
                free = [key for key in statement.keys if key not in bound]
                for values in itertools.product(sorted(domain, key=repr), repeat=len(free)):
                    here = bound | dict(zip(free, values, strict=True))
                    key = tuple(here[name] for name in statement.keys)
                    delta = self.value(statement.term, here, domain, batch)
                    after[statement.map][key] = add(after[statement.map].get(key, 0), delta)
        return {name: {key: entry for key, entry in entries.items() if entry} for name, entries in after.items()}

    def entries(self, name: str, state: str) -> dict:
        """A map as a read with some state sees it."""
        old, new = self.maps[name], self.new.get(name, {})
        if state == "CHANGED":
            return {key: 1 for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        return new if state == "NEW" else old

    def value(self, term, bound, domain, batch):
        """The number of `term` where `bound` binds some variables: the sum over all values of the others."""
        free = sorted(set(outputs(term)) - bound.keys())
        total = 0
        for values in itertools.product(sorted(domain, key=repr), repeat=len(free)):
            total = add(total, self.at(term, bound | dict(zip(free, values, strict=True)), domain, batch))
        return total

    def at(self, term, bound, domain, batch):
        """The number of `term` at one binding of all its outputs."""
        match term:
            case Const() | Var() | Apply() | Cast() | MapExtremum() | Extremum():
                return self.scalar(term, bound) or 0
            case Compare(op, left, right):
                return int(compare(op, self.scalar(left, bound), self.scalar(right, bound)))
            case MapRead(name, _, keys, state):
                total = 0
                for key, entry in self.entries(name, state).items():
                    if all(self.fits(part, pattern, bound) for part, pattern in zip(key, keys, strict=True)):
                        total = add(total, entry)
                return total
            case Atom(_, variables):
                return batch.get(tuple(bound[name] for name in variables), 0)
            case Lift(variable, Const() | Var() | Apply() | Extremum() as inner):
                return int(bound[variable] == self.scalar(inner, bound))
            case Lift(variable, inner):
                return int(bound[variable] == self.value(inner, bound, domain, batch))
            case Exists(inner):
                return int(self.value(inner, bound, domain, batch) != 0)
            case AggSum(_, inner):
                return self.value(inner, bound, domain, batch)
            case Sum(parts):
                total = 0
                for part in parts:
                    total = add(total, self.value(part, bound, domain, batch))
                return total
            case Product(parts):
                total = 1
                for part in parts:
                    total = multiply(total, self.at(part, bound, domain, batch))
                return total
        raise AssertionError(term)

    def fits(self, part, pattern, bound) -> bool:
        if isinstance(pattern, Range):
            low, high = pattern.low, pattern.high
            above = low is None or compare(">=" if low[1] else ">", part, self.scalar(low[0], bound))
            return above and (high is None or compare("<=" if high[1] else "<", part, self.scalar(high[0], bound)))
        return part == self.scalar(pattern, bound)

    def scalar(self, term, bound):
        match term:
            case Const(value, _):
                return value
            case Var(name):
                return bound[name]
            case Apply(function, args):
                return call(function, [self.scalar(arg, bound) for arg in args])
            case MapExtremum(end, name, keys):
                axis = keys.index(None)
                found = [
                    key[axis]
                    for key in self.maps[name]
                    if key[axis] is not None
                    and all(p is None or part == self.scalar(p, bound) for part, p in zip(key, keys, strict=True))
                ]
                return (min if end == "MIN" else max)(found, default=None)
            case Extremum(end, variable, inner):
                values = [value for value in self.known[0] if value is not None]
                found = [value for value in values if self.value(inner, bound | {variable: value}, *self.known)]
                return (min if end == "MIN" else max)(found, default=None)
        raise AssertionError(term)


# --- random programs ------------------------------------------------------------------------------------------------

MAPS = {"p": 0, "q": 1, "s": 2, "t": 2, "u": 1}


@st.composite
def terms(draw, env: tuple[str, ...], targets: tuple[str, ...], batch: bool, names=None):
    """A product of factors that binds `targets`, with `env` bound from outside."""
    parts = []
    known = list(env)
    fresh = (f"v{i}" for i in itertools.count()) if names is None else names

    def scalar(names=None):
        return draw(st.sampled_from([*map(Var, known if names is None else names), number(1), number(2)]))

    def keys(count: int, must: list[str]):
        patterns = []
        before = list(known)  # what an atom binds is no input of its own patterns
        for _ in range(count):
            choice = draw(st.integers(0, 5))
            if must:
                patterns.append(Var(must.pop()))
            elif choice == 0:
                end = (scalar(before), draw(st.booleans()))
                patterns.append(Range(end, None) if draw(st.booleans()) else Range(None, end))
            elif choice == 1:
                patterns.append(Var(name := next(fresh)))
                known.append(name)
            else:
                patterns.append(scalar(before))
        return tuple(patterns)

    missing = [name for name in targets if name not in env]
    while missing or len(parts) < 1 or (len(parts) < 3 and draw(st.booleans())):
        wanted, missing = missing[:2], missing[2:]
        kind = 0 if wanted else draw(st.integers(0, 8))
        if kind <= 1:
            if batch and draw(st.booleans()):
                second = wanted[1] if len(wanted) > 1 else draw(st.sampled_from([*known, next(fresh)]))
                first = wanted[0] if wanted else next(fresh)
                parts.append(Atom("r", (first, second)))
                known += [name for name in (first, second) if name not in known]
            else:
                name = draw(st.sampled_from(["s", "t"] if len(wanted) > 1 else ["q", "s", "t", "u"]))
                parts.append(MapRead(name, "", keys(MAPS[name], list(reversed(wanted)))))
                known += [name for name in wanted if name not in known]
        elif kind == 2:
            parts.append(Compare(draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])), scalar(), scalar()))
        elif kind == 3:
            parts.append(draw(st.sampled_from([*map(Var, env), number(-1), number(3)])) if env else number(2))
        elif kind == 4:
            inner = draw(terms(tuple(known), (), batch, fresh))
            shape = draw(st.integers(0, 2))
            parts.append([AggSum((), inner), Exists(AggSum((), inner)), Compare("<", number(0), number(1))][shape])
        elif kind == 5:
            parts.append(Lift(name := next(fresh), AggSum((), draw(terms(tuple(known), (), batch, fresh)))))
            parts += [Compare("<=", number(0), Var(name)), Compare("<", Var(name), number(2))]  # what the oracle tries
        elif kind in (6, 7):
            variable = draw(st.sampled_from([next(fresh), "k"]))
            inner = draw(terms(tuple(name for name in known if name != variable), (variable,), batch, fresh))
            end = Extremum(draw(st.sampled_from(["MIN", "MAX"])), variable, inner)
            if draw(st.booleans()):
                parts.append(Compare("<=", end, scalar()))
            else:
                parts.append(Lift(name := next(fresh), end))
                known.append(name)
        else:
            name = draw(st.sampled_from(["s", "t"]))
            end = MapExtremum(draw(st.sampled_from(["MIN", "MAX"])), name, draw(st.sampled_from([(scalar(), None)])))
            parts.append(Compare("<=", end, scalar()))
    return product_of(parts)


def ahead(draw, term, target: str):
    """A term that reads some maps as they will be; a map waits only for those before it in the alphabet."""
    if isinstance(term, MapRead) and term.map < target:
        states = ["OLD", "NEW"] if any(isinstance(key, Range) for key in term.keys) else ["OLD", "NEW", "CHANGED"]
        return MapRead(term.map, term.column, term.keys, draw(st.sampled_from(states)))
    return rebuild(term, lambda child: ahead(draw, child, target))


def _small(term) -> bool:
    """The oracle tries every value for every variable."""
    return len(variables_of(term)) <= 4


@st.composite
def programs(draw):
    """One relation r(a, b), five maps, an insert, a delete and a batch trigger of random statements."""
    triggers = []
    for on in On:
        env = () if on is On.BATCH else ("a", "b")
        statements = []
        for _ in range(draw(st.integers(1, 4))):
            name = draw(st.sampled_from(sorted(MAPS)))
            keys = tuple(draw(st.permutations(["a", "b", "k", "l"]))[: MAPS[name]])
            term = draw(terms(env, keys, on is On.BATCH).filter(_small))
            shape = draw(st.integers(0, 3))
            if shape == 0:
                other = draw(terms(env, keys, on is On.BATCH).filter(_small))
                term = sum_of([AggSum(keys, term), negate(AggSum(keys, other))])
            elif shape == 1:
                term = AggSum(keys, term)
            statements.append(Statement(name, "", keys, "+=", ahead(draw, term, name)))
        statements.append(Statement("s", "", ("a", "b") if env else ("k", "l"), "+=", _seed(env)))
        triggers.append(Trigger(on, "r", env, tuple(statements)))
    column = Column
    maps = tuple(
        MapDef(
            name,
            tuple(column(f"k{i}", INTEGER) for i in range(count)),
            (column("v", HUGEINT),),
            initial=draw(st.one_of(st.just(()), initial_entries(count))),
        )
        for name, count in MAPS.items()
    )
    relation = Relation("r", (column("a", INTEGER), column("b", INTEGER, not_null=True)))
    return Program(relations=(relation,), maps=maps, triggers=tuple(triggers))


def initial_entries(width):
    keys = st.tuples(*[st.sampled_from([None, 0, 1, 2])] * width)
    values = st.sampled_from([-1, 1, 3]).map(lambda value: (value,))
    return st.dictionaries(keys, values, max_size=2).map(lambda entries: tuple(entries.items()))


def _seed(env):
    return number(1) if env else Atom("r", ("k", "l"))


def _events(seed: int, count: int):
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.choice([On.INSERT, On.INSERT, On.DELETE, On.BATCH])
        rows = [(chance.choice([None, 0, 1, 2]), chance.choice([0, 1])) for _ in range(3 if kind is On.BATCH else 1)]
        yield kind, rows, chance


@settings(max_examples=examples(40), deadline=None)
@given(programs(), st.integers(0, 1000))
def test_every_event_leaves_the_maps_that_the_definition_of_m3_says(program: Program, seed: int) -> None:
    engine, naive = engine_of(program), Naive(program)
    with decimal.localcontext(EXACT):
        for kind, rows, chance in _events(seed, 4):
            batch = {row: chance.choice([-1, 1, 2]) for row in rows} if kind is On.BATCH else {}
            before = {name: dict(engine.items(name)) for name in MAPS}
            engine.begin()
            if kind is On.BATCH:
                engine.on_batch("r", batch)
            else:
                engine.on_event(1 if kind is On.INSERT else -1, "r", rows[0])
            if chance.random() < 0.2:
                engine.rollback()
                assert {name: dict(engine.items(name)) for name in MAPS} == before
                continue
            engine.commit()
            naive.fire(program.trigger(kind, "r"), rows[0] if kind is not On.BATCH else (), batch)
            for name in MAPS:
                found = {key: values[0] for key, values in engine.items(name)}
                assert found == naive.maps[name], f"{name} after {kind} {rows}"
            if sum(map(len, naive.maps.values())) > 20 or any(
                abs(entry) > 10**12 for entries in naive.maps.values() for entry in entries.values()
            ):
                return  # feedback makes the numbers explode; enough seen


# --- the papers' small programs -------------------------------------------------------------------------------------


def _maps(**widths: int) -> tuple[MapDef, ...]:
    return tuple(
        MapDef(name, tuple(Column(f"k{i}", INTEGER, True) for i in range(width)), (Column("v", BIGINT),))
        for name, width in widths.items()
    )


def _read(name: str, *keys: str) -> MapRead:
    return MapRead(name, "", tuple(map(Var, keys)))


def _run(engine: Engine, *events: tuple[int, str, tuple]) -> None:
    for event in events:
        engine.begin()
        engine.on_event(*event)
        engine.commit()


@pytest.mark.parametrize("swapped", [False, True])
def test_statements_read_the_state_before_the_event_whatever_their_order(swapped: bool) -> None:
    # Cumulus semester paper, example 2.1: ON +R(A,B) { m1 += m2[A]; m2[A] += m3[B] }
    statements = (
        Statement("m1", "", (), "+=", _read("m2", "a")),
        Statement("m2", "", ("a",), "+=", _read("m3", "b")),
    )
    trigger = Trigger(On.INSERT, "r", ("a", "b"), statements[::-1] if swapped else statements)
    engine = engine_of(Program(maps=_maps(m1=0, m2=1, m3=1), triggers=(trigger,)))
    engine.load("m2", [((10,), (5,))])
    engine.load("m3", [((20,), (7,))])
    _run(engine, (1, "r", (10, 20)))
    assert engine.read("m1", ()) == (5,)
    assert engine.read("m2", (10,)) == (12,)
    _run(engine, (1, "r", (10, 20)))
    assert engine.read("m1", ()) == (17,)


def test_a_variable_that_the_event_does_not_bind_loops_over_the_map() -> None:
    # Cumulus semester paper, example 3.1: ON +R(A) { m3[C] += m1[A] * m2[C] }   ON +S(B) { m2[B] += 1 }
    triggers = (
        Trigger(
            On.INSERT,
            "r",
            ("a",),
            (Statement("m3", "", ("c",), "+=", product_of([_read("m1", "a"), _read("m2", "c")])),),
        ),
        Trigger(On.INSERT, "s", ("b",), (Statement("m2", "", ("b",), "+=", number(1)),)),
    )
    engine = engine_of(Program(maps=_maps(m1=1, m2=1, m3=1), triggers=triggers))
    engine.load("m1", [((1,), (4,))])
    _run(engine, (1, "r", (1,)), (1, "s", (2,)), (1, "s", (2,)), (1, "s", (3,)))
    assert dict(engine.items("m3")) == {}
    _run(engine, (1, "r", (1,)), (1, "r", (9,)))
    assert dict(engine.items("m3")) == {(2,): (8,), (3,): (4,)}


def test_a_statement_that_loops_over_its_own_target_does_not_see_its_writes() -> None:
    # Every entry moves one place on: m[k + 1] += m[k] through a lift.
    moved = product_of([_read("m", "j"), Lift("k", Apply("add", (Var("j"), number(1))))])
    engine = engine_of(
        Program(maps=_maps(m=1), triggers=(Trigger(On.INSERT, "r", (), (Statement("m", "", ("k",), "+=", moved),)),))
    )
    engine.load("m", [((0,), (1,))])
    _run(engine, (1, "r", ()), (1, "r", ()), (1, "r", ()))
    assert {key[0]: values[0] for key, values in engine.items("m")} == {0: 1, 1: 3, 2: 3, 3: 1}


def test_a_map_is_read_as_it_will_be_by_the_maps_that_wait_for_it() -> None:
    # n counts rows, of[k] the groups of k rows, groups[] all groups. Written backwards on purpose.
    program = parse("""
        MAP n[a INT](v BIGINT); MAP of[n BIGINT](v BIGINT); MAP groups[](v BIGINT);
        ON +r(a) {
          groups[] += SUM[](CHANGED of[k] * NEW of[k]) - SUM[](CHANGED of[k] * of[k]);
          of[k] += CHANGED n[b] * (k := NEW n[b]) - CHANGED n[b] * (k := n[b]) * EXISTS(n[b]);
          n[a] += 1;
        }
    """)
    engine = engine_of(program)
    _run(engine, *((1, "r", (a,)) for a in (1, 2, 1, 3, 1)))
    assert dict(engine.items("n")) == {(1,): (3,), (2,): (1,), (3,): (1,)}
    assert dict(engine.items("of")) == {(3,): (1,), (1,): (2,)}
    assert engine.read("groups", ()) == (3,)


def test_a_nested_sum_over_the_batch_is_0_where_the_batch_has_no_such_row() -> None:
    program = parse("""
        RELATION r(a INT, b INT); MAP q[a INT](v BIGINT);
        ON BATCH r { q[a] += SUM[a](r(a, b) * SUM[]((n := SUM[](r(c, a))) * {n < 1})) }
    """)
    engine = engine_of(program)
    engine.begin()
    engine.on_batch("r", {(2, 0): 2, (1, 1): 1})
    engine.commit()
    assert dict(engine.items("q")) == {(2,): (2,)}


def test_what_is_ahead_goes_with_a_rollback() -> None:
    program = parse("""
        FUNCTION f(BIGINT) BIGINT; MAP n[a INT](v BIGINT); MAP q[](v BIGINT);
        ON +r(a) { n[a] += 1; q[] += NEW n[a] + f(a) }
    """)

    def f(a: int) -> int:
        raise KeyboardInterrupt

    engine = engine_of(program, {"f": f})
    engine.begin()
    with pytest.raises(KeyboardInterrupt):
        engine.on_event(1, "r", (1,))
    engine.rollback()
    assert dict(engine.items("n")) == {}


def test_decimals_never_round() -> None:
    price = Decimal("12345678901234567890123456789.123456789")
    trigger = Trigger(On.INSERT, "r", ("x",), (Statement("m", "", (), "+=", product_of([Var("x"), Var("x")])),))
    engine = engine_of(Program(maps=_maps(m=0), triggers=(trigger,)))
    with decimal.localcontext(EXACT):
        _run(engine, (1, "r", (price,)))
        assert engine.read("m", ()) == (price * price,)


def test_a_summed_variable_is_not_caught_by_the_same_name_further_right() -> None:
    # q[x] += SUM[](s[x]) * p[x]: the inner x is its own, although p[x] could be looked at first.
    inner = AggSum((), product_of([_read("s", "x"), Compare("<", number(0), Var("x"))]))
    term = product_of([inner, _read("p", "x")])
    trigger = Trigger(On.INSERT, "r", (), (Statement("q", "", ("x",), "+=", term),))
    engine = engine_of(Program(maps=_maps(p=1, q=1, s=1), triggers=(trigger,)))
    engine.load("p", [((7,), (1,))])
    engine.load("s", [((1,), (2,)), ((2,), (3,)), ((-1,), (100,))])
    _run(engine, (1, "r", ()))
    assert dict(engine.items("q")) == {(7,): (5,)}
