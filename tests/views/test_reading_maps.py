"""What views read of maps: entries and ends, how they are finished, and which rows a changed entry touches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import pytest

from cumulus import m3
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import NAN
from cumulus.views import Finisher, finish
from cumulus.views.entries import EntriesBefore, WholeMaps

MAPS = """
MAP m[a INT](n BIGINT, s DECIMAL(38,2)) COUNT n;
MAP w[a INT, x DOUBLE](n BIGINT) ;
MAP p[a INT, b INT](n BIGINT, s BIGINT) COUNT n;
MAP f[b VARCHAR](n BIGINT, x DOUBLE) COUNT n;
MAP q[](n BIGINT);
"""
ENTRIES = {
    "m": [((1,), (2, Decimal("1.5"))), ((2,), (1, Decimal(0))), ((None,), (1, Decimal(3)))],
    "w": [((1, 2.5), (1,)), ((1, NAN), (3,)), ((None, -1.0), (1,)), ((2, None), (1,))],
    "p": [((1, 5), (1, 0)), ((1, 6), (1, 4)), ((2, 5), (1, 1)), ((3, 1), (1, 1))],
    "f": [(("u",), (1, 0.5))],
    "q": [((), (4,))],
}


def rows(select: str, columns: str = "a INT, y", source: str = "m") -> list[tuple]:
    program = m3.read(f"{MAPS} VIEW v({columns}) FROM {source} SELECT {select};")
    return [
        tuple(row.values()) for row in finish(program, program.views[0], lambda name: ENTRIES.get(name, [])).to_pylist()
    ]


READS = [
    ("a, MAX w[a, *]", "y DOUBLE", [(1, NAN), (2, None), (None, -1.0)]),
    ("a, MIN[x](w[a, x])", "y DOUBLE", [(1, 2.5), (2, None), (None, -1.0)]),
    ("a, MIN[b](p[a, b].n)", "y INT", [(1, 5), (2, 5), (None, None)]),
    ("a, MIN[b](p[a, b].s)", "y INT", [(1, 6), (2, 5), (None, None)]),
    ("a, MAX p[*, 5] - MIN[a](p[a, 5].s)", "y INT", [(1, 0), (2, 0), (None, 0)]),
    ("a, p[a, 6].s + q[] * m[a + 1].n", "y BIGINT", [(1, 8), (2, 0), (None, 4)]),
    ("a, f['u'].x + f['v'].x", "y DOUBLE", [(1, 0.5), (2, 0.5), (None, 0.5)]),
    ("a, m[2].s + m[9].s", "y DECIMAL(38,2)", [(a, Decimal("0.00")) for a in (1, 2, None)]),
    ("a, m[CAST(NULL AS INT)].s", "y DECIMAL(38,2)", [(a, Decimal("3.00")) for a in (1, 2, None)]),
    ("a, p[a, p[a, 6].s + 1].n", "y BIGINT", [(1, 1), (2, 0), (None, 0)]),
    ("a, p[n, MAX[b](p[a, b].n)].s REPEAT n", "y BIGINT", [(1, 0), (1, 0), (2, 0), (None, 0)]),
    ("a, w[a, CAST('nan' AS DOUBLE)] + w[a, 2.5]", "y BIGINT", [(1, 4), (2, 0), (None, 0)]),
    ("a, n WHERE n > q[] - 3", "y BIGINT", [(1, 2)]),
    ("a, n ORDER BY MAX w[a, *] DESC, n", "y BIGINT", [(1, 2), (None, 1), (2, 1)]),
]


@pytest.mark.parametrize(("select", "column", "wanted"), READS, ids=[select for select, *_ in READS])
def test_an_expression_reads_numbers_and_ends(select: str, column: str, wanted: list[tuple]) -> None:
    assert repr(rows(select, f"a INT, {column}")) == repr(wanted)  # NaN is not equal to itself


def test_a_view_without_keys_reads_ends_of_maps_that_may_be_empty() -> None:
    assert rows("MIN m[*], MAX w[7, *]", "y INT, z DOUBLE", "q") == [(1, None)]
    program = m3.read(f"{MAPS} VIEW v(y INT) FROM q SELECT MIN m[*];")
    assert finish(program, program.views[0], lambda name: []).to_pylist() == [{"y": None}]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("MAX[x](w[a, x] * 2)", "a view cannot read MAX"),
        ("MAX[x](p[x, x].n)", "x is not exactly one of the keys"),
        ("p[a, > 3].n", "a view cannot read the range"),
        ("SUM[](q[])", "is not a scalar"),
    ],
)
def test_what_a_view_cannot_read_is_refused(select: str, problem: str) -> None:
    program = m3.parse(f"{MAPS} VIEW v(y INT) FROM m SELECT {select};")
    with pytest.raises(ValidationError, match=problem):
        Finisher(program, program.views[0])


TOUCHED = [
    ("m", "a, w[a, 1e0]", "w", (7, 2.0), ()),
    ("m", "a, w[a, 1e0]", "w", (7, 1.0), ((7,),)),
    ("m", "a, w[a, 1e0] + w[a, 2e0]", "w", (7, 2.0), ((7,),)),
    ("m", "a, w[a, n]", "w", (7, 2.0), ((7,),)),
    ("m", "a, MAX w[a, *]", "w", (None, 2.0), ((None,),)),
    ("m", "a, MAX w[a + 1, *]", "w", (7, 2.0), None),
    ("m", "a, MAX p[*, a]", "p", (7, 8), ((8,),)),
    ("m", "a, p[a, a].n", "p", (7, 8), ()),
    ("m", "a, p[a, a].n", "p", (8, 8), ((8,),)),
    ("m", "a, MAX p[*, a] + MAX p[a, *]", "p", (7, 8), ((8,), (7,))),
    ("m", "a, q[]", "q", (), None),
    ("m", "a, q[]", "m", (7,), ((7,),)),
    ("m", "a, m[3].n", "m", (7,), None),
    ("m", "a, p[m[a].n, a].n", "m", (7,), ((7,),)),
    ("m", "a, 1", "q", (), ()),
    ("p", "a, p.s WHERE m[a].n > 1", "m", (7,), None),
    ("p", "a, p[b, a].s", "p", (7, 8), ((7, 8), (8, 7))),
    ("q", "n, MAX m[*]", "m", (7,), ((),)),
]


@pytest.mark.parametrize(("source", "select", "name", "key", "wanted"), TOUCHED)
def test_a_changed_entry_touches_the_rows_whose_keys_it_names(source, select, name, key, wanted) -> None:
    program = m3.read(f"{MAPS} VIEW v(a INT, y) FROM {source} SELECT {select};")
    touched = Finisher(program, program.views[0]).affected
    assert touched.keys(name, key) == wanted
    assert (name in touched.maps) is (wanted != () or name in (source, "w", "p"))


class Now(WholeMaps):
    """Maps of which slices are kept in order, or not."""

    def __init__(self, entries: dict, is_ordered: bool) -> None:
        super().__init__(lambda name: entries.items())
        self._is_ordered = is_ordered

    def along(self, map: str, end: str, axis: int, others: tuple, column: int | None) -> Iterator | None:
        if not self._is_ordered:
            return None
        found = [
            key[axis]
            for key, values in self.entries(map).items()
            if key[:axis] + key[axis + 1 :] == others and key[axis] is not None and (column is None or values[column])
        ]
        return iter(sorted(found, reverse=end == "MAX"))

    def find(self, map: str, positions: tuple, values: tuple) -> list:
        assert not self._is_ordered, "what is in order need not be gone through"
        return [each for each in self.entries(map).items() if tuple(each[0][at] for at in positions) == values]


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_state_before_a_transaction_is_found_from_the_state_after_it(seed: int, is_ordered: bool) -> None:
    chance = random.Random(seed)

    def some() -> dict:
        return {
            (chance.choice([1, 2]), chance.choice([None, 1, 2, 3])): (1, chance.choice([0, 0, 5]))
            for _ in range(chance.randrange(6))
        }

    old, new = some(), some()
    for key in chance.sample(sorted(old, key=repr), len(old) // 2):
        new[key] = old[key]
    changes = {key: (old.get(key), new.get(key)) for key in old | new if old.get(key) != new.get(key)}

    now = Now(new, is_ordered)
    before = EntriesBefore(now, now, {"p": changes})
    wanted = WholeMaps(lambda name: old.items())
    for key in old | new:
        assert before.read("p", key) == wanted.read("p", key)
    for end in ("MIN", "MAX"):
        for axis in (0, 1):
            for other in (None, 1, 2, 3):
                for column in (None, 1):
                    question = ("p", end, axis, (other,), column)
                    assert before.end(*question) == wanted.end(*question), question
