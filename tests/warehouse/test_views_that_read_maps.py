"""Views that read entries and ends of maps beside their own: exact after every transaction, for whoever reads them."""

from __future__ import annotations

from collections import Counter

import pytest

import cumulus
from cumulus import errors, m3
from support.ends_and_totals import TEXT, expected, random_events
from support.tiers import sampled


def blocks(seed: int, count: int, size: int):
    events = list(random_events(seed, count))
    for start in range(0, count, size):
        yield events[start : start + size]


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("seed", sampled(range(3), of=3))
def test_rows_look_ups_and_subscribers_say_what_the_tables_say(seed: int, size: int) -> None:
    wh = cumulus.Warehouse(m3.read(TEXT))
    tables = {"sales": Counter(), "shops": Counter()}
    heard: dict[str, Counter] = {name: Counter(wh.view(name).rows()) for name in wh.views}
    told = Counter()

    def listen(name: str):
        def on(changes: list[cumulus.Change]) -> None:
            told[name] += 1
            for old, new in changes:
                heard[name].update([new] if new is not None else [])
                heard[name].subtract([old] if old is not None else [])
                assert old != new

        return on

    unlimited = [name for name in wh.views if name != "top"]
    for name in unlimited:
        wh.subscribe(name, listen(name))
    for block in blocks(seed, 140, size):
        with wh.transaction():
            for sign, relation, row in block:
                (wh.insert if sign > 0 else wh.delete)(relation, [row])
                tables[relation][row] += sign
        wanted = expected({name: +rows for name, rows in tables.items()})
        for name in wh.views:
            assert Counter(wh.view(name).rows()) == wanted[name], name
        for name in unlimited:
            assert +heard[name] == wanted[name], name
            assert min(heard[name].values(), default=0) >= 0
        for name in ("range", "large", "bag", "followed"):
            found = [wh.view(name).get(shop) for shop in (1, 2, 3, 4, None, 9)]
            assert {row for row in found if row is not None} == set(wanted[name]), name
        assert [wh.view("extremes").get()] == list(wanted["extremes"])
    assert set(told) == set(unlimited)
    tops = wh.view("top").rows()
    assert [row[1] for row in tops] == sorted((row[1] for row in tops), key=lambda high: -(high or -999))


def test_the_program_reads_back_as_it_is_printed() -> None:
    program = m3.read(TEXT)
    assert m3.parse(str(program)) == program


def test_who_subscribes_hears_only_of_rows_that_changed() -> None:
    wh = cumulus.Warehouse(m3.read(TEXT))
    heard: list[list[cumulus.Change]] = []
    wh.insert("sales", [(1, None, 5), (1, None, 7), (2, None, 5)])
    wh.subscribe("range", heard.append)
    wh.insert("sales", [(1, None, 6)])  # neither end moves
    assert heard == []
    wh.insert("sales", [(1, None, 9)])
    [[change]] = heard
    assert (change.old[2], change.new[2]) == (7, 9)
    wh.delete("sales", [(1, None, 9)])
    assert heard[1] == [cumulus.Change(change.new, change.old)]


def test_a_copy_that_was_saved_reads_the_same(tmp_path) -> None:
    wh = cumulus.Warehouse(m3.read(TEXT))
    for sign, relation, row in random_events(11, 60):
        (wh.insert if sign > 0 else wh.delete)(relation, [row])
    wh.save(tmp_path / "copy")
    copy = cumulus.Warehouse.load(tmp_path / "copy")
    for name in wh.views:
        assert Counter(copy.view(name).rows()) == Counter(wh.view(name).rows())
    assert copy.view("range").get(1) == wh.view("range").get(1)


def test_an_error_of_a_view_that_reads_maps_names_the_view() -> None:
    text = "RELATION r(a INT); MAP m[a INT](n BIGINT); VIEW v(q DOUBLE) FROM m SELECT 1 / (m[a + 1] - 1);"
    wh = cumulus.Warehouse(m3.read(text + "ON +r(a) { m[a] += 1 } ON -r(a) { m[a] += -1 }"))
    wh.insert("r", [(1,)])
    assert wh.view("v").rows() == [(-1.0,)]
    wh.insert("r", [(2,)])
    with pytest.raises(errors.EvaluationError, match="view v at"):
        wh.view("v").rows()
