"""The papers' own programs, as a user can run them: with types, views, and contents that the papers leave open.

Maps have no definitions, so what they hold depends on the order of events. Where a paper gives a statement alone, the
streams that change what it reads are ours, and so are deletions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import cumulus
from cumulus import m3

Event = tuple[int, str, tuple[Any, ...]]
"""Sign, relation, row."""

PROGRAMS = {
    "semester paper, example 2.1": """
        RELATION R(A INT, B INT); MAP m1[](v BIGINT);
        MAP m2[A INT](v BIGINT) START (1: 3); MAP m3[B INT](v BIGINT) START (1: 7), (2: 10);
        VIEW m1(v BIGINT) FROM m1 SELECT v; VIEW m2(A INT, v BIGINT) FROM m2 SELECT A, v;
        ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
    "semester paper, example 3.1": """
        RELATION R(A INT); RELATION S(B INT); MAP m1[A INT](v BIGINT) START (1: 7), (3: -1);
        MAP m2[B INT](v BIGINT) START (2: 3), (4: 6); MAP m3[C INT](v BIGINT);
        VIEW m2(B INT, v BIGINT) FROM m2 SELECT B, v; VIEW m3(C INT, v BIGINT) FROM m3 SELECT C, v;
        ON +R(A) { m3[C] += m1[A] * m2[C]; } ON +S(B) { m2[B] += 1; } ON -S(B) { m2[B] += -1; }""",
    "semester paper, example 3.3": """
        RELATION S(A INT); RELATION T(A INT, B INT); RELATION U(A INT, X INT); MAP m1[A INT](v BIGINT);
        MAP m2[A INT](v BIGINT) START (1: 2); MAP m3[A INT](v BIGINT) START (1: 3);
        MAP m4[B INT](v BIGINT) START (2: 5); VIEW m1(A INT, v BIGINT) FROM m1 SELECT A, v;
        ON +S(A) { m1[A] += m2[A] * m3[A]; } ON +T(A, B) { m2[A] += m4[B]; } ON +U(A, X) { m3[A] += X; }""",
    "consistency paper, §2": """
        RELATION R(A INT); RELATION S(A INT, B INT); MAP m1[B INT](v BIGINT);
        MAP m2[A INT, B INT](v BIGINT) START (1, 1: 2), (1, 2: 3); VIEW m1(B INT, v BIGINT) FROM m1 SELECT B, v;
        ON +R(A) { m1[B] += m2[A, B]; } ON +S(A, B) { m2[A, B] += 1; } ON -S(A, B) { m2[A, B] += -1; }""",
    "consistency paper, §3.1, figure 3a": """
        RELATION R(A INT); RELATION S(B INT, X INT); MAP m1[A INT, B INT](v BIGINT);
        MAP m2[B INT](v BIGINT) START (1: 4); VIEW m1(A INT, B INT, v BIGINT) FROM m1 SELECT A, B, v;
        ON +R(A) { m1[A, B] += m2[B]; } ON +S(B, X) { m2[B] += X; }""",
    "consistency paper, §3.1, figure 3b": """
        RELATION R(A INT); RELATION S(B INT, X INT); RELATION T(C INT); MAP m1[A INT, B INT, C INT](v BIGINT);
        MAP m2[B INT](v BIGINT) START (1: 4); MAP m3[C INT](v BIGINT);
        VIEW m1(A INT, B INT, C INT, v BIGINT) FROM m1 SELECT A, B, C, v;
        ON +R(A) { m1[A, B, C] += m2[B] * m3[C]; } ON +S(B, X) { m2[B] += X; } ON +T(C) { m3[C] += 1; }""",
    "consistency paper, §4.1": """
        RELATION R(A INT, B INT); MAP m1[](v BIGINT); MAP m2[A INT](v BIGINT) START (2: 5);
        MAP m3[B INT](v BIGINT) START (1: 100); VIEW m1(v BIGINT) FROM m1 SELECT v;
        ON +R(A, B) { m1[] += m2[A]; m2[A] += m3[B]; }""",
    "consistency paper, example 2.1": """
        RELATION LINEITEMS(OID INT, PRICE INT); RELATION ORDERS(CID INT, OID INT, DISCOUNT INT);
        RELATION CUSTOMERS(CID INT, NATION INT); MAP q[NATION INT](v HUGEINT); MAP m1[OID INT, NATION INT](v HUGEINT);
        MAP m2[CID INT](v HUGEINT); MAP m3[CID INT, OID INT](v HUGEINT); MAP m4[OID INT](v HUGEINT);
        MAP m5[CID INT, NATION INT](v HUGEINT); VIEW q(NATION INT, v HUGEINT) FROM q SELECT NATION, v;
        ON +LINEITEMS(OID, PRICE) { q[NATION] += m1[OID, NATION] * PRICE; m2[CID] += m3[CID, OID] * PRICE;
            m4[OID] += PRICE; }
        ON +ORDERS(CID, OID, DISCOUNT) { q[NATION] += DISCOUNT * m4[OID] * m5[CID, NATION];
            m1[OID, NATION] += DISCOUNT * m5[CID, NATION]; m2[CID] += DISCOUNT * m4[OID]; m3[CID, OID] += DISCOUNT; }
        ON +CUSTOMERS(CID, NATION) { q[NATION] += m2[CID]; m1[OID, NATION] += m3[CID, OID]; m5[CID, NATION] += 1; }""",
}
"""Place → program; none can be told from a set of rows but the last one."""

CIRCLES = {
    "semester paper, example 3.2": """
        RELATION S(A INT); RELATION T(B INT); MAP m1[A INT](v HUGEINT) START (1: 1), (2: 2);
        MAP m2[B INT](v HUGEINT) START (1: 3), (3: 1);
        VIEW m1(A INT, v HUGEINT) FROM m1 SELECT A, v; VIEW m2(B INT, v HUGEINT) FROM m2 SELECT B, v;
        ON +S(A) { m1[A] += m2[A]; } ON +T(B) { m2[B] += m1[B]; }""",
    "a circle whose maps lie apart": """
        RELATION S(A INT, B INT); RELATION T(A INT, B INT); MAP m1[A INT](v HUGEINT) START (1: 1), (2: 2);
        MAP m2[B INT](v HUGEINT) START (1: 3), (3: 1);
        VIEW m1(A INT, v HUGEINT) FROM m1 SELECT A, v; VIEW m2(B INT, v HUGEINT) FROM m2 SELECT B, v;
        ON +S(A, B) { m1[A] += m2[B]; } ON -S(A, B) { m1[A] += -1 * m2[B]; } ON +T(A, B) { m2[B] += m1[A]; }""",
    "a circle in one trigger, with a loop": """
        RELATION R(A INT, B INT); RELATION S(A INT); MAP m1[A INT](v HUGEINT) START (1: 1);
        MAP m2[B INT](v HUGEINT) START (2: 1); MAP q[](v HUGEINT); VIEW q(v HUGEINT) FROM q SELECT v;
        VIEW m1(A INT, v HUGEINT) FROM m1 SELECT A, v;
        ON +R(A, B) { m1[A] += m2[B]; m2[B] += m1[A]; q[] += m1[A] * m2[B]; } ON +S(A) { m1[A] += m2[B]; }""",
    "a map made from itself": """
        RELATION R(A INT, B INT); RELATION S(A INT); MAP m[A INT](v HUGEINT) START (1: 1), (3: 2);
        VIEW m(A INT, v HUGEINT) FROM m SELECT A, v; ON +R(A, B) { m[A] += m[B]; } ON +S(A) { m[A] += 1; }""",
    "three maps, and one beside": """
        RELATION R(A INT, B INT); RELATION S(B INT, C INT); RELATION T(C INT, A INT);
        MAP x[A INT](v HUGEINT) START (1: 1);
        MAP y[B INT](v HUGEINT); MAP z[C INT](v HUGEINT) START (4: 2); MAP n[](v BIGINT);
        VIEW x(A INT, v HUGEINT) FROM x SELECT A, v; VIEW n(v BIGINT) FROM n SELECT v;
        ON +R(A, B) { y[B] += x[A]; n[] += 1; } ON +S(B, C) { z[C] += y[B]; } ON +T(C, A) { x[A] += z[C]; }""",
}
"""Name → program whose maps feed each other in a circle."""


def random_events(text: str, count: int, draw: random.Random) -> list[Event]:
    """Return events of a program, for which it has triggers."""
    program = m3.parse(text)
    signs = {
        relation.name: [
            1 if trigger.on is m3.On.INSERT else -1
            for trigger in program.triggers
            if trigger.relation == relation.name and trigger.on is not m3.On.BATCH
        ]
        for relation in program.relations
    }
    return [
        (draw.choice(signs[relation.name]), relation.name, tuple(draw.randint(1, 4) for _ in relation.columns))
        for relation in draw.choices(program.relations, k=count)
    ]


def write_epochs(folder: Path, events: Sequence[Event], text: str, epochs: int) -> list[list[Event]]:
    """Write events as CSV, a file for each table and epoch; return those of each epoch."""
    tables = {relation.name: relation.column_names for relation in m3.parse(text).relations}
    parts = [list(events[at::epochs]) for at in range(epochs)]
    for number, part in enumerate(parts, 1):
        for name, columns in tables.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            lines = [",".join(map(str, ("+" if sign > 0 else "-", *row))) for sign, to, row in part if to == name]
            (folder / name / f"{number}.csv").write_text("\n".join([",".join(("op", *columns)), *lines, ""]))
    return parts


def one_by_one(text: str, events: Iterable[Event]) -> cumulus.Warehouse:
    """Return a warehouse in which events have fired, one after the other."""
    warehouse = cumulus.Warehouse(m3.parse(text))
    for sign, relation, row in events:
        (warehouse.insert if sign > 0 else warehouse.delete)(relation, [row])
    return warehouse
