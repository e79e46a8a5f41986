"""Views and maps that are read as a whole: columns of words become values, and ends are found in order."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from math import inf
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus import m3
from cumulus.catalog.events import Event
from cumulus.compiler import compile_sql
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.values.rows import _AT_ONCE
from cumulus.engine.session import Session
from cumulus.views import Finisher, MapViewReader
from support.tiers import examples

VALUES = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "BIGINT": [2**63 - 1, 1 - 2**63],
    "HUGEINT": [-1, 0, 2**63, -(2**63) - 1, 2**127 - 1, 1 - 2**127],
    "DECIMAL(9,2)": [Decimal("-0.01"), Decimal("9999999.99")],
    "DECIMAL(38,3)": [Decimal("-0.001"), Decimal(2**64), Decimal(-(2**80))],
    "DOUBLE": [-0.5, float("inf"), float("nan")],
    "DATE": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "TIMESTAMP": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 2, 29, 1)],
    "VARCHAR": ["", "é", "a\x00b"],
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("null", ["", "NOT NULL"])
def test_whole_maps_have_the_keys_and_sums_of_every_type(kind: str, null: str) -> None:
    values = VALUES[kind] + ([] if null else [None])
    number = kind if kind not in ("BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR") else "BIGINT"
    script = f"""
    CREATE TABLE r (k {kind} {null}, v {number});
    CREATE VIEW s AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM r GROUP BY k;
    """
    # Beyond 128 bits native sums end, and infinities are no sums of DOUBLE.
    adds = {value: kind == number and value is not None and abs(value) < 2**100 for value in values}
    rows = [(value, value if adds[value] else None) for value in values] * 3
    native, plain = (cumulus.Warehouse(script, engine=engine) for engine in ("native", "interpreter"))
    for wh in (native, plain):
        wh.insert("r", rows)
        wh.delete("r", rows[:1])
    assert Counter(map(repr, native.view("s").rows())) == Counter(map(repr, plain.view("s").rows()))
    assert len(native.view("s").rows()) == len(values)


def test_more_rows_than_become_values_together() -> None:
    count = 2 * _AT_ONCE + 1
    wh = cumulus.Warehouse(
        "CREATE TABLE r (k BIGINT NOT NULL, v DOUBLE); CREATE VIEW s AS SELECT k, SUM(v) AS v FROM r GROUP BY k;"
    )
    wh.insert("r", pa.table({"k": range(count), "v": [k / 2 for k in range(count)]}))
    wh.delete("r", [(7, 3.5)])
    assert sorted(wh.view("s").rows()) == [(k, k / 2) for k in range(count) if k != 7]


def test_a_sum_beyond_double_is_read_as_infinity() -> None:
    program = m3.read(
        "RELATION r(a DOUBLE NOT NULL); MAP s[](n BIGINT, x DOUBLE) COUNT n; ON +r(a) { s[].n += 1; s[].x += a; }"
    )
    engine = NativeEngine(program)
    session = Session(program, {}, engine)
    session.commit([Event(1, "r", (1e308,)), Event(1, "r", (1e308,))])
    assert list(engine.items("s")) == [((), (2, inf))]


class AskedColumns:
    """Columns of a map that note when all entries are gone through."""

    def __init__(self, columns: Any, note: Callable[[], None]) -> None:
        self._columns = columns
        self._note = note

    def there(self, at: slice, *, positive: bool) -> Any:
        if at == slice(0, self._columns.size):
            self._note()
        return self._columns.there(at, positive=positive)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._columns, name)


class Asked:
    """A source of maps that notes which were gone through."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine
        self.gone_through: list[str] = []

    def items(self, map: str) -> Iterator[Any]:
        self.gone_through.append(map)
        return self._engine.items(map)

    def columns(self, map: str) -> Any:
        return AskedColumns(self._engine.columns(map), lambda: self.gone_through.append(map))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


ENDS = """
CREATE TABLE r (g INTEGER, x BIGINT);
CREATE VIEW ends AS SELECT g, MIN(x) AS least, MAX(x) AS most FROM r GROUP BY g;
"""


@pytest.mark.parametrize(("groups", "is_scanned"), [(2, False), (90, True)])
def test_ends_of_large_groups_are_looked_up(groups: int, is_scanned: bool) -> None:
    program = compile_sql(ENDS)
    engine = NativeEngine(program)
    session = Session(program, {}, engine)
    session.commit([Event(1, "r", (x % groups, x)) for x in range(200)])
    source = Asked(engine)
    found = MapViewReader(Finisher(program, program.view("ends"), {}), source).rows()
    assert sorted(found) == [(g, g, max(x for x in range(200) if x % groups == g)) for g in range(groups)]
    assert ("m1" in source.gone_through) == is_scanned


@settings(deadline=None, max_examples=examples(40))
@given(
    st.sampled_from(["BIGINT", "DOUBLE", "DECIMAL(9,2)", "DATE", "VARCHAR", "HUGEINT"]),
    st.lists(st.tuples(st.sampled_from([None, 1]), st.integers(-1, 30)), min_size=20, max_size=80),
    st.data(),
)
def test_ends_of_whole_views_are_those_of_the_interpreter(
    kind: str, pairs: list[tuple[int | None, int]], data: st.DataObject
) -> None:
    made = {
        "DATE": lambda n: dt.date(2024, 1, 2) + dt.timedelta(n),
        "VARCHAR": str,
        "DOUBLE": lambda n: float("nan") if n == 30 else n / 2,
        "DECIMAL(9,2)": lambda n: Decimal(n) / 4,
    }.get(kind, int)
    rows = [(g, None if n < 0 else made(n)) for g, n in pairs]
    gone = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True, max_size=len(rows)))
    views = []
    for engine in ("native", "interpreter"):
        wh = cumulus.Warehouse(ENDS.replace("BIGINT", kind), engine=engine)
        wh.insert("r", rows)
        wh.delete("r", [rows[place] for place in gone])
        views.append(Counter(map(repr, wh.view("ends").rows())))
    assert views[0] == views[1]
