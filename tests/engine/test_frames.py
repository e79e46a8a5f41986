"""Frames: what one engine takes out of its maps any engine adds to its own, as if the events had come there."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.catalog.partition import bucket_of, buckets_of
from cumulus.catalog.types import BIGDECIMAL, EXACT, HUGEINT, Interval
from cumulus.engine.frames.entries import entries_of, frame_of
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.transaction import Applying
from cumulus.errors import EvaluationError, RemoteProtocolError, UnknownNameError, UsageError
from cumulus.m3 import parse
from support.tiers import examples

ENGINES = {"interpreter": Interpreter, "native": NativeEngine}
PAIRS = [(one, other) for one in ENGINES for other in ENGINES]
PROGRAM = parse("""
RELATION r(g INTEGER, x BIGINT NOT NULL, t VARCHAR, d DECIMAL(9, 2), f DOUBLE);
MAP numbers[k BIGINT, v BIGINT NOT NULL](n BIGINT, s HUGEINT) COUNT n;
MAP floats[k DOUBLE, w DOUBLE NOT NULL](n BIGINT, f DOUBLE) COUNT n;
MAP every[b BOOLEAN, d DATE, t TIMESTAMP, z TIMESTAMPTZ, i TINYINT, n DECIMAL(5, 2), w DECIMAL(30, 3), h HUGEINT,
  p INTERVAL, s VARCHAR](c BIGINT, w HUGEINT, d DECIMAL(38, 4), l BIGDECIMAL) COUNT c;
MAP words[s VARCHAR, o VARCHAR NOT NULL](a BIGINT, b DECIMAL(10, 2));
MAP total[](n BIGINT, f DOUBLE, l BIGDECIMAL) COUNT n;
MAP ordered[g INTEGER, x BIGINT NOT NULL](n BIGINT, s DECIMAL(18, 2), f DOUBLE) COUNT n ORDERED x;
MAP later[g INTEGER](n BIGINT, s DECIMAL(18, 2), f DOUBLE) COUNT n;
MAP least[g INTEGER](n BIGINT);
ON +r(g, x, t, d, f) {
  later[g].n += ordered[g, > x].n;  later[g].s += ordered[g, > x].s;  later[g].f += ordered[g, > x].f;
  least[g].n += MIN[y](ordered[g, y].n);
  ordered[g, x].n += 1;  ordered[g, x].s += d;  ordered[g, x].f += f;
  numbers[g, x].n += 1;  numbers[g, x].s += x;
  total[].n += 1;  total[].f += f;
}
ON -r(g, x, t, d, f) {
  ordered[g, x].n += -1;  ordered[g, x].s += -d;  ordered[g, x].f += -f;
  numbers[g, x].n += -1;  numbers[g, x].s += -x;
  total[].n += -1;  total[].f += -f;
}
""")
BIGINTS = st.one_of(st.integers(-3, 3), st.integers(-(2**63) + 1, 2**63 - 1))
FLOATS = st.floats(-1e100, 1e100)
ANY_FLOATS = st.floats().map(lambda number: number + 0.0)
MOMENTS = st.datetimes().map(lambda moment: moment.replace(fold=0))
TEXTS = st.text(max_size=3)


def keys_of(map_name: str) -> st.SearchStrategy[tuple[Any, ...]]:
    def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | values

    few = st.integers(-1, 1)
    return {
        "numbers": st.tuples(maybe(BIGINTS), BIGINTS | st.just(-(2**63))),
        "floats": st.tuples(maybe(ANY_FLOATS), ANY_FLOATS),
        "every": st.tuples(
            maybe(st.booleans()),
            maybe(st.dates()),
            maybe(MOMENTS),
            maybe(MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
            maybe(st.integers(-128, 127)),
            maybe(st.integers(-99999, 99999).map(lambda n: Decimal(n).scaleb(-2, EXACT))),
            maybe(st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(n).scaleb(-3, EXACT))),
            maybe(st.integers(-(2**127) + 1, 2**127 - 1)),
            maybe(st.builds(Interval, few, few, few)),
            maybe(TEXTS),
        ),
        "words": st.tuples(maybe(TEXTS), TEXTS),
        "total": st.just(()),
        "ordered": st.tuples(maybe(few), st.integers(-40, 40)),
    }[map_name]


def cells() -> st.SearchStrategy[tuple[float, float, float]]:
    return st.tuples(FLOATS, st.floats(-1, 1), st.floats(0, 1)).map(
        lambda c: (c[0], c[1], abs(c[0]) + abs(c[1]) + c[2])
    )


def values_of(map_name: str) -> st.SearchStrategy[tuple[Any, ...]]:
    """Sums that can be stored, of which some do not exist for readers."""
    count, wide = st.integers(-2, 3), st.integers(-(2**125), 2**125)
    long = st.decimals(allow_nan=False, allow_infinity=False, places=400, min_value=-1, max_value=1)
    decimals = st.integers(-(10**17), 10**17)
    made = {
        "numbers": st.tuples(count, wide),
        "floats": st.tuples(count, cells()),
        "every": st.tuples(count, wide, decimals.map(lambda n: Decimal(n).scaleb(-4, EXACT)), long),
        "words": st.tuples(count, decimals.map(lambda n: Decimal(n).scaleb(-2, EXACT))),
        "total": st.tuples(count, cells(), long),
        "ordered": st.tuples(count, decimals.map(lambda n: Decimal(n).scaleb(-2, EXACT)), cells()),
    }[map_name]
    return made.filter(is_stored)


def is_stored(values: tuple[Any, ...]) -> bool:
    return any(abs(v[0] + v[1]) > 1e-12 * v[2] if isinstance(v, tuple) else v for v in values)


NAMES = ("numbers", "floats", "every", "words", "total", "ordered")


def each_key_once(entries: dict[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Any]:
    """Return entries of which none have equal keys: all NaN are one, which a dictionary does not know."""
    return dict({repr(key): (key, values) for key, values in entries.items()}.values())


FILLED = st.fixed_dictionaries(
    {name: st.dictionaries(keys_of(name), values_of(name), max_size=6).map(each_key_once) for name in NAMES}
)
Contents = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]


def engine_with(kind: str, contents: Contents) -> Any:
    engine = ENGINES[kind](PROGRAM)
    for name, entries in contents.items():
        engine.restore(name, entries.items())
    return engine


def stored(engine: Any, name: str) -> dict[str, Any]:
    """Return what is stored, by keys that tell NaN from nothing else."""
    return {repr(key): values for key, values in engine.stored(name)}


def all_stored(engine: Any) -> dict[str, Any]:
    return {each.name: stored(engine, each.name) for each in PROGRAM.maps}


def check_links(engine: Any) -> None:
    if isinstance(engine, NativeEngine):
        for each in PROGRAM.maps:
            assert engine.code.store(each.name).view.problems() == []


def sent(frame: MapFrame) -> MapFrame:
    return MapFrame.of_bytes(frame.layout, frame.to_bytes())


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
@settings(max_examples=examples(100), deadline=None)
@given(contents=FILLED)
def test_what_one_takes_another_adds(writer: str, reader: str, contents: Contents) -> None:
    with Applying():
        one, other = engine_with(writer, contents), engine_with(reader, {})
        wanted = all_stored(one)
        for name in NAMES:
            copied = one.copy(name)
            assert stored(one, name) == wanted[name]
            frame = one.take(name)
            assert repr([*entries_of(copied)]) == repr([*entries_of(frame)])
            other.add(name, sent(frame))
            assert one.take(name).rows == one.copy(name).rows == one.size(name) == 0
        assert all_stored(other) == wanted
        check_links(one)
        check_links(other)
        for name, frame in other.take_all(NAMES).items():
            one.add(name, frame)
        assert all_stored(one) == wanted
        assert other.take_all(NAMES) == {}


@pytest.mark.parametrize("kind", ENGINES)
@settings(max_examples=examples(100), deadline=None)
@given(contents=FILLED, more=FILLED)
def test_what_is_added_can_be_taken_away(kind: str, contents: Contents, more: Contents) -> None:
    """Numbers come back exactly; floats leave rounding, and go when nothing else is left."""
    with Applying():
        engine, before = engine_with(kind, contents), engine_with(kind, contents)
        for name in NAMES:
            frame = frame_of(layout_of(PROGRAM.map(name)), more[name].items())
            engine.add(name, frame)
            model = added(contents[name], more[name])
            assert near(stored(engine, name)) == near({repr(key): values for key, values in model.items()})
            engine.add(name, frame, -1)
            if name in ("numbers", "every", "words"):
                assert stored(engine, name) == stored(before, name)
        check_links(engine)


def added(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    """Add entries as the definition of a map says."""
    names = {repr(key): key for key in one}
    found = dict(one)
    for key, values in other.items():
        mine = names.get(repr(key), key)
        before = found.pop(mine, None)
        after = values if before is None else tuple(map(plus, before, values))
        if is_stored(after):
            found[mine] = after
    return found


def plus(one: Any, other: Any) -> Any:
    return tuple(map(plus, one, other)) if isinstance(one, tuple) else one + other


def near(entries: dict[str, Any]) -> dict[str, Any]:
    """Return entries with the sums of floats as one number, up to rounding."""
    return {
        key: tuple(pytest.approx(v[0] + v[1], rel=1e-9, abs=1e-9 * v[2]) if isinstance(v, tuple) else v for v in values)
        for key, values in entries.items()
    }


ROWS = st.tuples(
    st.sampled_from((1, 1, 1, -1)),
    st.tuples(
        st.sampled_from((0, 1, None)),
        st.integers(-60, 60),
        st.just("t"),
        st.integers(-99, 99).map(lambda n: Decimal(n).scaleb(-2, EXACT)),
        st.integers(-99, 99).map(lambda n: n / 4),
    ),
)
SUMS = ("numbers", "total", "ordered")


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
@settings(max_examples=examples(80), deadline=None)
@given(first=st.lists(ROWS, max_size=150), second=st.lists(ROWS, max_size=30), third=st.lists(ROWS, max_size=30))
def test_adding_a_frame_is_applying_its_events(writer: str, reader: str, first: Any, second: Any, third: Any) -> None:
    """The sums of events elsewhere are those of events here; what reads them afterwards, in order too, sees them."""
    with Applying():
        one, other, model = ENGINES[writer](PROGRAM), ENGINES[reader](PROGRAM), Interpreter(PROGRAM)
        apply(one, first)
        apply(other, second)
        apply(model, [*first, *second])
        for name, frame in one.take_all(SUMS).items():
            other.add(name, sent(frame))
        for name in SUMS:
            assert near(stored(other, name)) == near(stored(model, name))
        for engine in (other, model):
            engine.load("later", ())
            engine.load("least", ())
            apply(engine, third)
        for each in PROGRAM.maps:
            assert near(stored(other, each.name)) == near(stored(model, each.name))
        check_links(one)
        check_links(other)


def apply(engine: Any, events: list[Any]) -> None:
    engine.begin()
    for sign, row in events:
        engine.on_event(sign, "r", row)
    engine.commit()


@pytest.mark.parametrize("kind", ENGINES)
@settings(max_examples=examples(120), deadline=None)
@given(contents=FILLED, most=BIGINTS | st.integers(-(2**65), 2**65), place=st.sampled_from((0, 1)))
def test_a_cut_is_a_filter(kind: str, contents: Contents, most: int, place: int) -> None:
    with Applying():
        engine = engine_with(kind, contents)
        for name in ("numbers", "ordered") if place else ("numbers",):
            kept = {key: v for key, v in contents[name].items() if key[place] is None or key[place] > most}
            assert engine.cut(name, place, most) == len(contents[name]) - len(kept)
            assert stored(engine, name) == {repr(key): values for key, values in kept.items()}
            assert engine.cut(name, place, most) == 0
        check_links(engine)
        for name in NAMES:
            engine.restore(name, contents[name].items())
        assert all_stored(engine) == all_stored(engine_with(kind, contents))
        check_links(engine)


STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "remove", "take", "cut", "event")), st.sampled_from(NAMES), st.integers(-3, 3)),
    max_size=8,
)


@pytest.mark.parametrize("kind", ENGINES)
@settings(max_examples=examples(120), deadline=None)
@given(contents=FILLED, more=FILLED, steps=STEPS)
def test_a_transaction_is_taken_back_and_told(kind: str, contents: Contents, more: Contents, steps: Any) -> None:
    with Applying():
        engine, model = engine_with(kind, contents), engine_with(kind, contents)
        before = all_stored(engine)
        for name in NAMES:
            engine.watch(name)
        engine.begin()
        run(engine, more, steps)
        engine.rollback()
        assert all_stored(engine) == before
        check_links(engine)
        shown = {name: dict(engine.items(name)) for name in NAMES}
        engine.begin()
        run(engine, more, steps)
        changes = engine.commit()
        for name in NAMES:
            now = {repr(key): values for key, values in engine.items(name)}
            told = {repr(key): values for key, values in shown[name].items()}
            for key, (old, new) in changes.get(name, {}).items():
                assert told.get(repr(key)) == old
                told[repr(key)] = new
            assert {key: values for key, values in told.items() if values is not None} == now
        run(model, more, [step for step in steps if step[0] != "event"])
        if all(step[0] != "event" for step in steps):
            assert all_stored(model) == all_stored(engine)
        check_links(engine)
        check_links(model)


def run(engine: Any, more: Contents, steps: Any) -> None:
    for what, name, number in steps:
        if what in ("add", "remove"):
            frame = frame_of(layout_of(PROGRAM.map(name)), more[name].items())
            engine.add(name, frame, 1 if what == "add" else -1)
        elif what == "take":
            engine.take(name)
        elif what == "cut" and name in ("numbers", "ordered"):
            engine.cut(name, 1, number)
        elif what == "event":
            engine.on_event(1, "r", (number, 7, "t", Decimal("0.25"), 0.5))


# --- frames alone ---------------------------------------------------------------------------------------------------


@settings(max_examples=examples(120), deadline=None)
@given(contents=FILLED, data=st.data())
def test_frames_are_divided_and_joined(contents: Contents, data: st.DataObject) -> None:
    for name in NAMES:
        entries = [*contents[name].items()]
        frame = frame_of(layout_of(PROGRAM.map(name)), entries)
        flags = np.array(data.draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries))), dtype=bool)
        kept, rest = sent(frame.filter(flags)), frame.take(np.flatnonzero(~flags))
        wanted = [entry for entry, flag in zip(entries, flags, strict=True) if flag]
        wanted += [entry for entry, flag in zip(entries, flags, strict=True) if not flag]
        joined = concat([kept, rest])
        assert repr([*entries_of(joined)]) == repr([*entries_of(frame_of(frame.layout, wanted))])
        assert [*entries_of(sent(joined))] == [*entries_of(joined)] or name == "floats"  # NaN
        for place in range(len(frame.layout.keys)):
            buckets = [bucket_of(key[place], 5) for key, _ in entries]
            assert frame.buckets(place, 5).tolist() == buckets
            if frame.layout.keys[place].type != HUGEINT or all(abs(key[place] or 0) < 10**38 for key, _ in entries):
                assert buckets_of(frame.key(place), 5).to_pylist() == buckets
            less = [((*key[:place], *key[place + 1 :]), values) for key, values in entries]
            shorter = frame.without_key(place)
            assert repr([*entries_of(shorter)]) == repr([*entries_of(frame_of(shorter.layout, less))])
        for place in range(len(frame.layout.values)):
            sums = [values[place] for _, values in entries]
            sums = [each[0] + each[1] if isinstance(each, tuple) else each for each in sums]
            if all(abs(each) < 10**38 for each in sums) and frame.layout.values[place].type != BIGDECIMAL:
                assert frame.value(place).to_pylist() == sums
    numbers = frame_of(layout_of(PROGRAM.map("numbers")), contents["numbers"].items()).numbers(1)
    assert numbers.tolist() == [key[1] for key in contents["numbers"]]


def test_a_frame_without_a_version_is_added_to_the_map_without_it() -> None:
    program = parse("MAP m[k VARCHAR](n BIGINT, s HUGEINT); MAP since[k VARCHAR, v BIGINT](n BIGINT, s HUGEINT);")
    with Applying():
        for kind in ENGINES.values():
            engine = kind(program)
            engine.restore("since", [(("a", 1), (1, 5)), (("a", 2), (1, 6)), (("b", 2), (1, 7)), (("b", 3), (-1, -7))])
            engine.add("m", engine.take("since").without_key(1))
            assert dict(engine.stored("m")) == {("a",): (2, 11)}


@settings(max_examples=60, deadline=None)
@given(contents=FILLED, data=st.data())
def test_bytes_that_nobody_wrote_are_an_error(contents: Contents, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    frame = frame_of(layout_of(PROGRAM.map(name)), contents[name].items())
    written = bytearray(frame.to_bytes())
    match data.draw(st.sampled_from(("cut", "longer", "flipped", "other map"))):
        case "cut":
            wrong = bytes(written[: data.draw(st.integers(0, len(written) - 1))])
        case "longer":
            wrong = bytes(written) + b"x"
        case "flipped":
            written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
            with Applying():
                read_if_possible(frame, bytes(written))
            return
        case _:
            other = "floats" if name == "numbers" else "numbers"
            with pytest.raises(RemoteProtocolError):
                MapFrame.of_bytes(layout_of(PROGRAM.map(other)), bytes(written))
            return
    with pytest.raises(RemoteProtocolError):
        MapFrame.of_bytes(frame.layout, wrong)


def read_if_possible(frame: MapFrame, data: bytes) -> None:
    """What still looks like a frame is one of as many rows, and engines take it."""
    try:
        read = MapFrame.of_bytes(frame.layout, data)
    except RemoteProtocolError:
        return
    assert read.rows == frame.rows
    name = next(each.name for each in PROGRAM.maps if layout_of(each) is frame.layout)
    engine = NativeEngine(PROGRAM)
    engine.add(name, read)
    check_links(engine)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENGINES)
def test_what_does_not_fit_is_refused(kind: str) -> None:
    engine = ENGINES[kind](PROGRAM)
    with pytest.raises(UsageError, match="does not fit map numbers"):
        engine.add("numbers", engine.take("ordered"))
    with pytest.raises(UsageError, match="cannot be cut by g, which is INTEGER"):
        engine.cut("ordered", 0, 7)
    for call in (lambda: engine.take("none"), lambda: engine.cut("none", 0, 1), lambda: engine.take_all(["none"])):
        with pytest.raises(UnknownNameError, match="there is no map none"):
            call()


def test_a_sum_beyond_its_words_changes_nothing() -> None:
    engine = NativeEngine(PROGRAM)
    rows = {(1, 1): (2**63 - 1, 1), (1, 2): (1, 2**127 - 1), (1, 3): (-(2**63), 1)}
    layout = layout_of(PROGRAM.map("numbers"))
    engine.restore("numbers", rows.items())
    for key, values, sign in (
        ((1, 1), (1, 1), 1),
        ((1, 2), (1, 1), 1),
        ((1, 3), (1, 1), -1),
        ((1, 4), (-(2**63), 0), -1),
    ):
        frame = frame_of(layout, [((0, 0), (1, 1)), (key, values)])
        with pytest.raises(EvaluationError, match="map numbers: a number is beyond"):
            engine.add("numbers", frame, sign)
        assert dict(engine.stored("numbers")) == rows
        engine.begin()
        with pytest.raises(EvaluationError, match="map numbers: a number is beyond"):
            engine.add("numbers", frame, sign)
        engine.rollback()
        assert dict(engine.stored("numbers")) == rows
    check_links(engine)


def test_the_interpreter_keeps_what_no_frame_holds() -> None:
    engine = Interpreter(PROGRAM)
    rows = {(1, 1): (1, 2**127)}
    engine.restore("numbers", rows.items())
    with pytest.raises(EvaluationError, match="does not fit the words of HUGEINT"):
        engine.take("numbers")
    assert dict(engine.stored("numbers")) == rows


@pytest.mark.parametrize("kind", ENGINES)
def test_maps_that_are_computed_are_computed_again(kind: str) -> None:
    program = parse("""
        RELATION r(k BIGINT); MAP a[k BIGINT](n BIGINT); MAP b[](n BIGINT);
        ON +r(k) { a[k] += 1; b[] := SUM[k](a[k]) }
    """)
    with Applying():
        engine = ENGINES[kind](program)
        engine.add("a", frame_of(layout_of(program.map("a")), [((1,), (4,)), ((2,), (5,))]))
        engine.begin()
        engine.commit()
        assert engine.read("b", ()) == (9,)
        engine.cut("a", 0, 1)
        engine.begin()
        engine.commit()
        assert engine.read("b", ()) == (5,)


def test_nothing_is_left_of_an_entry_without_keys() -> None:
    """A sum of floats that is gone leaves no rounding behind for the next one."""
    program = parse(
        "MAP m[](n BIGINT, f DOUBLE) COUNT n; RELATION r(f DOUBLE); ON +r(f) { m[].n += 1; m[].f += f }"
        "ON -r(f) { m[].n += -1; m[].f += -f }"
    )
    with Applying():
        for kind in ENGINES.values():
            engine = kind(program)
            engine.begin()
            for sign, number in ((1, 0.1), (1, 0.2), (-1, 0.3), (-1, 0.0)):
                engine.on_event(sign, "r", (number,))
            engine.commit()
            assert [*engine.stored("m")] == []
            assert engine.take("m").rows == 0
