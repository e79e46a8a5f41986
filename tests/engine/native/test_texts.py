"""Texts in machine code: the interpreter's and DuckDB's comparisons, LIKE and parts, and an arena that is a dict."""

from __future__ import annotations

import ctypes
import random
import shutil
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.catalog.types import VARCHAR, Interval
from cumulus.compiler import compile_sql
from cumulus.engine.native.build import code_of
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.kernel.loaded_code import LEVELS, Load, Loaded
from cumulus.engine.native.kernel.memory import BUDGET, USED
from cumulus.engine.native.program import BASE
from cumulus.engine.native.scalars.patterns import match_function, pieces_of
from cumulus.engine.native.store.text_table import (
    bytes_of,
    bytes_of_first,
    compare_texts,
    count_characters,
    texts_equal,
)
from cumulus.engine.native.values.columns import Column, column_words
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.errors import EvaluationError, MemoryLimitError, MemoryLimitWarning, ValueTypeError
from cumulus.scalars.text import like
from cumulus_lab.bench.c import COMPILER, CompiledC
from engine.native.test_engine import check
from support.tiers import examples, sampled

I64, PTR = ctypes.c_int64, ctypes.c_void_p
TEXT = st.text(alphabet="ab%_é\u0301\0😀\U0010ffff", max_size=9)
ANY_TEXT = st.text(max_size=12)  # no surrogates: Arrow and DuckDB have none
PATTERN = st.text(alphabet="ab%_é\u0301\0😀!", max_size=7)


LOADS: dict[str, Load] = {
    **{f"level {level}": lambda modules, level=level: code_of(modules, level) for level in LEVELS},
    **({"c": CompiledC} if shutil.which(COMPILER) else {}),
}


def quick(modules: Sequence[Module]) -> Loaded:
    return code_of(modules, 0)


@pytest.fixture(scope="module", params=LOADS)
def code(request: pytest.FixtureRequest) -> Loaded:
    return LOADS[request.param]([BASE])


@pytest.fixture
def numbers(code: Loaded) -> Dictionary:
    return Dictionary(code)


# --- patterns -------------------------------------------------------------------------------------------------------


def matches(text: str, pattern: str, escape: str, load: Load) -> bool | None:
    """Return what code says, None if it leaves the pattern to Python."""
    pieces = pieces_of(pattern, escape)
    if pieces is None:
        return None
    data = bytes_of(text)
    code = load([Module([match_function("matches", pieces)])])
    return bool(code.function("matches", I64, ctypes.c_char_p, I64)(data, len(data)))


@settings(max_examples=examples(150), deadline=None)
@given(TEXT, PATTERN, st.sampled_from(["", "!", "%", "_", "é"]))
@example("", "", "")
@example("", "%%", "")
@example("ab", "%_b%", "")
@example("é", "__", "")
@example("aab", "%ab", "")
@example("abab", "ab%ab", "")
@example("aba", "ab%ba", "")
@example("a%", "a!%", "!")
@example("a", "a!", "!")
def test_like_is_the_interpreters_and_duckdbs(text: str, pattern: str, escape: str) -> None:
    found = matches(text, pattern, escape, quick)
    if found is None:
        with pytest.raises(EvaluationError):
            like(text, pattern, escape)
        return
    assert found == like(text, pattern, escape)
    if escape.isascii():  # DuckDB takes no other
        sql = "SELECT ? LIKE ? ESCAPE ?" if escape else "SELECT ? LIKE ?"
        ((there,),) = duckdb.execute(sql, [text, pattern, *([escape] if escape else [])]).fetchall()
        assert found == there


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS.values(), ids=[*LOADS])
def test_long_patterns_in_all_code(load: Load) -> None:
    choose = random.Random(5)
    for _ in range(12):
        words = ["".join(choose.choices("aéb😀", k=choose.randrange(12))) for _ in range(choose.randrange(1, 5))]
        pattern = choose.choice(["%", "%_", "_%", ""]).join(words)
        for _ in range(5):
            text = "".join(choose.choice([word, choose.choice("ab")]) + choose.choice(["", "a", "é"]) for word in words)
            assert matches(text, pattern, "", load) == like(text, pattern), (text, pattern)


def test_a_half_of_a_pair_is_a_character() -> None:
    for text in ("\ud800", "\ud83d\ude00", "a\udfffb"):
        for pattern in ("_", "__", "%\ud800%", "\ud83d%", "a_b"):
            assert matches(text, pattern, "", quick) == like(text, pattern)


# --- bytes ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(ANY_TEXT, ANY_TEXT, st.integers(0, 12))
def test_bytes_have_the_order_and_the_lengths_of_characters(left: str, right: str, count: int) -> None:
    code = code_of([BASE], 0)
    sides = [part for data in (bytes_of(left), bytes_of(right)) for part in (data, len(data))]
    pair = (ctypes.c_char_p, I64)
    order = code.function(compare_texts.name, I64, *pair, *pair)(*sides)
    assert (order > 0) - (order < 0) == (left > right) - (left < right)
    assert duckdb.execute("SELECT ? < ?", [left, right]).fetchall() == [(order < 0,)]
    assert code.function(texts_equal.name, I64, *pair, *pair)(*sides) == (left == right)
    assert code.function(count_characters.name, I64, *pair)(*sides[:2]) == len(left)
    behind = code.function(bytes_of_first.name, I64, *pair, I64)(*sides[:2], count)
    assert bytes_of(left)[:behind] == bytes_of(left[:count])


# --- the arena ------------------------------------------------------------------------------------------------------


def words_of(column: Any, numbers: Dictionary) -> Column:
    (found,) = column_words(column, Lane(VARCHAR, True), numbers)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_dictionary_is_a_dict(numbers: Dictionary, seed: int) -> None:
    choose = random.Random(seed)
    model = {"": 0}
    for _ in range(40):
        texts = ["".join(choose.choices("ab é\0😀\ud800", k=choose.randrange(20))) for _ in range(100)]
        texts += [choose.choice([*model]) for _ in range(100)]
        if choose.random() < 0.5:
            found = [numbers[text] for text in texts]
        else:
            texts = [text.replace("\ud800", "") if choose.random() < 0.9 else "" for text in texts]
            texts = [text for text in texts if "\ud800" not in text]
            found = words_of(pa.array(texts, pa.string()), numbers).tolist()
        for text, number in zip(texts, found, strict=True):
            assert model.setdefault(text, len(model)) == number
    assert [*numbers.values_of] == [*model]
    assert len(numbers.values_of) == len(model)
    assert [numbers.values_of[number] for number in model.values()] == [*model]


def test_spans_have_numbers_among_the_texts(numbers: Dictionary) -> None:
    spans = [Interval(1, -2, 3), Interval(0, 0, 0), Interval(0, 0, 10**30)]
    assert [numbers[each] for each in (spans[0], "1 -2 3", *spans)] == [1, 2, 1, 3, 4]
    assert [*numbers.values_of][1:5] == [spans[0], "1 -2 3", *spans[1:]]
    for nothing in (-1, 5, -(1 << 63)):
        with pytest.raises(IndexError):
            numbers.values_of[nothing]
    for other in (1, None, b"a", (1, 2, 4)):
        with pytest.raises((TypeError, AttributeError)):
            numbers[other]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_arrow_texts_of_every_form(numbers: Dictionary, type_: pa.DataType) -> None:
    values = ["x", None, "", "é" * 40, "a text that is not short", None, "x"]
    array = pa.array(values, type_)
    chunks = pa.chunked_array([array.slice(0, 3), array.slice(7), array.slice(3)])
    for column in (array, array.slice(2, 4), array.slice(7), chunks):
        found = words_of(column, numbers)
        expected = column.to_pylist()
        assert [None if number < 0 else numbers.values_of[number] for number in found.tolist()] == expected
        assert numbers.array(found).to_pylist() == expected
    nothing = pa.chunked_array([], type_)
    assert numbers.array(words_of(nothing, numbers)).to_pylist() == []
    numbers.array(np.array([0, 1], dtype=np.int64)).validate(full=True)


def test_without_memory_nothing_changes(code: Loaded) -> None:
    numbers = Dictionary(code)
    memory = numbers.texts - 64
    I64.from_address(memory + BUDGET).value = 100_000
    model = {"": 0}
    choose = random.Random(3)
    refused = 0
    for number in range(3000):
        text = f"{number}" * choose.choice([1, 1, 1, 500])
        try:
            model[text] = numbers[text]
        except MemoryError:
            refused += 1
            assert I64.from_address(memory + USED).value <= 150_000
    assert refused
    assert len(model) > 100
    with pytest.raises(MemoryError):
        words_of(pa.array(["y" * 90_000]), numbers)
    numbers._known.clear()
    assert [numbers[text] for text in model] == [*model.values()] == [*range(len(model))]
    assert [*numbers.values_of] == [*model]
    code.function("cu_texts_free", None, PTR)(numbers.texts)
    assert I64.from_address(memory + USED).value == 0
    assert code.function("cu_texts_new", I64, PTR, PTR)(memory, fresh(numbers)) == 1  # its owner gives it back


def fresh(numbers: Dictionary) -> int:
    """Return the record, empty again."""
    from cumulus.engine.native.store.text_table import RECORD_SIZE

    ctypes.memset(numbers.texts, 0, RECORD_SIZE)
    return numbers.texts


def test_texts_larger_than_a_block(numbers: Dictionary) -> None:
    texts = ["a" * (1 << 20), "b" * 3_000_000, "c", "d" * (1 << 20), "e"]
    assert [numbers[text] for text in texts * 2] == [1, 2, 3, 4, 5] * 2
    assert [*numbers.values_of] == ["", *texts]


# --- programs -------------------------------------------------------------------------------------------------------

LOOKED_AT = """
CREATE TABLE r (id INT NOT NULL, s VARCHAR, t VARCHAR NOT NULL, k VARCHAR);
CREATE VIEW a AS SELECT id, COUNT(*) AS n FROM r WHERE s NOT LIKE '%a_b%' OR t LIKE 'é%' GROUP BY id;
CREATE VIEW b AS SELECT k, SUM(LENGTH(s)) AS l, SUM(STRLEN(t)) AS m, MAX(k) AS x FROM r
  WHERE s < t OR s >= k OR t = 'ab' GROUP BY k;
CREATE VIEW c AS SELECT SUBSTRING(t, 2, 1) AS p, COUNT(s) AS n FROM r
  WHERE LEFT(t, 1) IN ('a', 'é', '😀') OR SUBSTRING(s, 3) <> 'b' GROUP BY SUBSTRING(t, 2, 1);
CREATE VIEW d AS SELECT COUNT(*) AS n, SUM(CASE WHEN contains(s, 'é') THEN 1 WHEN starts_with(t, 'ab') THEN 2 END) AS m
  FROM r WHERE ends_with(s, '😀') OR s IN ('', 'ab', NULL) OR s = t OR COALESCE(s, t) > LEFT(t, 2);
CREATE VIEW e AS SELECT COUNT(*) AS n FROM r
  WHERE UPPER(SUBSTRING(s, 1, 2)) || t LIKE '%B%' OR TRY(s LIKE t ESCAPE '!') IS NULL OR s LIKE 'a' || t;
"""
WORDS = ("", "a", "ab", "aéb", "é", "éab", "😀", "b😀", "a\u0301b", "abab", "a%b", "aaaaéb", "\ud800", "é😀b")


def random_rows(seed: int, count: int, words: Sequence[str]) -> list[tuple[Any, ...]]:
    choose = random.Random(seed)

    def text() -> str:
        return "".join(choose.choices(words, k=choose.choice([1, 1, 2])))

    return [(at % 5, choose.choice([text(), None]), text(), choose.choice([text(), None])) for at in range(count)]


@pytest.mark.parametrize("load", LOADS.values(), ids=[*LOADS])
@pytest.mark.parametrize("mode", sampled(["event", "batch"], of=2))
def test_programs_look_at_texts_as_the_interpreter(mode: str, load: Load) -> None:
    program = compile_sql(LOOKED_AT)
    rows = random_rows(1, 60, WORDS)
    taken = random.Random(2).sample(rows, 30)
    transactions = (tuple((1, "r", row) for row in rows), tuple((-1, "r", row) for row in taken))
    check(program, transactions, mode, load)


@pytest.mark.parametrize("way", ["tuples", "builtin", "arrow", "events"])
def test_every_way_in_leads_to_duckdbs_views(way: str) -> None:
    views = LOOKED_AT.rsplit("CREATE VIEW e", 1)[0]
    wh, model = cumulus.Warehouse(views, engine="native"), duckdb.connect()
    model.execute(views)
    rows = random_rows(7, 200, [word for word in WORDS if word.isprintable() or word == ""])
    columns = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("id", "s", "t", "k"))})
    columns = columns.set_column(0, "id", columns["id"].cast(pa.int32()))
    if way == "tuples":
        wh.insert("r", rows)
    elif way == "arrow":
        wh.insert("r", columns)
    elif way == "events":
        wh.apply([(1, "r", row) for row in rows])
    else:
        on = wh.trigger("r")
        for row in rows:
            on(+1, *row)
    model.execute("INSERT INTO r SELECT * FROM columns")
    for view in wh.views:
        expected = model.execute(f"SELECT * FROM {view}").fetchall()
        assert sorted(map(repr, wh.view(view).rows())) == sorted(map(repr, expected)), view


def test_texts_that_are_only_looked_at_are_not_kept() -> None:
    program = compile_sql("""
        CREATE TABLE r (k VARCHAR, s VARCHAR);
        CREATE VIEW v AS SELECT k, COUNT(*) AS n FROM r WHERE s NOT LIKE '%special%requests%' AND s <> 'x' GROUP BY k;
    """)
    native = NativeEngine(program)
    used = {column.lane.type: column.is_text for column in native.code.image.plan.events["r"]}
    assert [column.is_text for column in native.code.image.plan.events["r"]] == [False, True], used
    before = len(native.code.dictionary.values_of)
    for number in range(300):
        native.begin()
        native.on_event(1, "r", (f"{number % 3}", f"comment {number}"))
        native.commit()
    assert len(native.code.dictionary.values_of) == before + 3
    assert native.memory() >= native.code.dictionary.bytes > 0


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_bytes_that_are_no_text_are_refused(engine: str) -> None:
    wh = cumulus.Warehouse("CREATE TABLE r (s VARCHAR); CREATE VIEW v AS SELECT s FROM r;", engine=engine)
    ends = pa.py_buffer(np.array([0, 2, 3], dtype=np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xffb")])
    with pytest.raises(ValueTypeError, match=r"r\.s, row 1: .* is not UTF-8\nTexts are UTF-8"):
        wh.insert("r", pa.table({"s": broken}))
    assert wh.view("v").rows() == []


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_half_pairs_are_refused_by_every_engine(engine: str) -> None:
    wh = cumulus.Warehouse(
        "CREATE TABLE r (s VARCHAR); CREATE VIEW v AS SELECT s, COUNT(*) AS n FROM r WHERE s > 'a' GROUP BY s;",
        engine=engine,
    )
    on = wh.trigger("r")
    for half in ("a\ud800", "\ud83d\ude00", "\udc00"):
        for do in (lambda: wh.insert("r", [("😀",), (half,)]), lambda: on(+1, half), lambda: wh.insert("r", [(half,)])):  # noqa: B023
            with pytest.raises(cumulus.errors.ValueTypeError, match="half a character"):
                do()
    wh.insert("r", [("😀",)])
    assert wh.view("v").rows() == [("😀", 1)]
    assert wh.view("v").arrow().to_pylist() == [{"s": "😀", "n": 1}]


def test_looking_up_and_functions_of_ones_own_keep_no_texts() -> None:
    told: list[str | None] = []

    @cumulus.function(null="pass")
    def noted(text: str | None) -> int:
        told.append(text)
        return 1

    wh = cumulus.Warehouse(
        """CREATE TABLE r (k VARCHAR, s VARCHAR);
        CREATE VIEW v AS SELECT k, SUM(noted(s) + noted(LEFT(s, 1))) AS n FROM r GROUP BY k;""",
        functions=[noted],
        engine="native",
    )
    native = wh._state.session.engine
    before = len(native.code.dictionary.values_of)
    texts = ["", None, "é😀", "a text of its own"]
    wh.insert("r", [("k", text) for text in texts])
    assert {*told} == {*texts, *(text and text[:1] for text in texts)}
    assert wh.view("v").get("k") == ("k", 8)
    assert wh.view("v").get("nobody has heard of it") is None
    assert len(native.code.dictionary.values_of) == before + 1


@pytest.mark.parametrize("way", ["tuples", "arrow", "events"])
@pytest.mark.parametrize("key", ["s", "SUBSTRING(s, 1, 2700)"])
def test_a_transaction_without_memory_for_texts_is_none(key: str, way: str) -> None:
    wh = cumulus.Warehouse(
        f"CREATE TABLE r (s VARCHAR); CREATE VIEW v AS SELECT {key} AS p, COUNT(*) AS n FROM r GROUP BY {key};",
        engine="native",
        memory_limit="1MB",
    )
    wh.insert("r", [("x",)])
    rows = [(f"{number:030}" * 90,) for number in range(1000)]

    def insert(some: list[tuple[str]]) -> None:
        if way == "tuples":
            wh.insert("r", some)
        elif way == "arrow":
            wh.insert("r", pa.table({"s": [text for (text,) in some]}))
        else:
            wh.apply([(1, "r", row) for row in some], per="call")

    with pytest.warns(MemoryLimitWarning), pytest.raises(MemoryLimitError, match="texts"):
        insert(rows)
    assert wh.view("v").rows() == [("x", 1)]
    insert(rows[:100])
    assert sorted(wh.view("v").rows()) == sorted([("x", 1), *((text, 1) for (text,) in rows[:100])])
    wh.delete("r", rows[:100])
    assert wh.view("v").rows() == [("x", 1)]
    assert 900_000 < wh.stats().bytes < 1_100_000
