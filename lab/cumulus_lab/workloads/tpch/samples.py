"""TPC-H small enough to look at: some hundred rows in which every query finds something.

The generator of the benchmark draws evenly, so a few hundred of its rows answer almost no query. Here a share of the
values (`focus`) is drawn from those that the queries ask for. Rules between columns are the specification's: prices,
dates, flags, statuses, telephone numbers, customers without orders.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from cumulus.catalog import Row
from cumulus.workloads.tpch.schema import BENCHMARK, TABLES
from cumulus_lab.workloads import words
from cumulus_lab.workloads.words import draw_focused

FIRST_DAY = dt.date(1992, 1, 1)
LAST_DAY = dt.date(1998, 8, 2)
"""Of orders, in the specification."""

_TODAY = dt.date(1995, 6, 17)

# What the queries ask for.
_SUPPLIER_NATIONS = ("FRANCE", "SAUDI ARABIA", "GERMANY", "CANADA", "INDIA", "SAUDI ARABIA", "BRAZIL")
_CUSTOMER_NATIONS = ("INDIA", "FRANCE", "GERMANY", "BRAZIL", "INDIA")
_PART_TYPES = (
    ("ECONOMY ANODIZED STEEL", 3),
    ("PROMO BRUSHED TIN", 9),
    ("SMALL PLATED BRASS", 15),
    ("MEDIUM POLISHED COPPER", 14),
)
_PART_KINDS = (("Brand#23", "MED BOX"), ("Brand#12", "SM CASE"), ("Brand#34", "LG PKG"), ("Brand#45", "JUMBO JAR"))
_MONTHS = (  # first days of orders, and how many days after them
    (dt.date(1993, 7, 1), 180),
    (dt.date(1994, 1, 1), 330),
    (dt.date(1994, 1, 1), 330),
    (dt.date(1995, 2, 20), 22),
    (dt.date(1995, 7, 10), 60),
    (dt.date(1995, 12, 1), 100),
)
_LARGE_SHARE = 0.2
"""Of the orders drawn for the queries: more than 300 pieces, which only seven lines can hold."""


def sample(*, orders: int = 160, focus: float = 0.7, seed: int = 0) -> dict[str, pa.Table]:
    """Return all eight tables, in `TABLES`' order; the same parameters give the same rows.

    Parameters
    ----------
    orders
        How many, at least 8; each has one to seven lineitems. The other tables go with it: a quarter as many customers
        and parts, four suppliers to a part, a twelfth as many suppliers.
    focus
        Probability, 0 to 1, with which a column that queries ask for takes a value that they ask for.

    Examples
    --------
    >>> tables = sample(orders=8)
    >>> {name: rows.num_rows for name, rows in tables.items()}["orders"]
    8
    """
    made = _Maker(random.Random(seed), focus).tables(orders)
    return {
        name: pa.table([list(column) for column in zip(*made[name], strict=True)], schema=BENCHMARK.schema(name))
        for name in TABLES
    }


@dataclass
class _Maker:
    choose: random.Random
    focus: float
    prices: dict[int, Decimal] = field(default_factory=dict)
    sellers: dict[int, list[int]] = field(default_factory=dict)

    def tables(self, orders: int) -> dict[str, list[Row]]:
        parts, suppliers, customers = (max(orders // share, 4) for share in (4, 12, 4))
        found: dict[str, list[Row]] = {
            "region": [(key, name, self.prose()) for key, name in enumerate(words.REGIONS)],
            "nation": [(key, name, region, self.prose()) for key, (name, region) in enumerate(words.NATIONS)],
            "part": [self.part(key) for key in range(1, parts + 1)],
            "supplier": [self.supplier(key) for key in range(1, suppliers + 1)],
            "partsupp": [row for key in range(1, parts + 1) for row in self.partsupp(key, suppliers)],
            "customer": [self.customer(key) for key in range(1, customers + 1)],
            "orders": [],
            "lineitem": [],
        }
        for key in range(1, orders + 1):
            order, lines = self.order(key, customers)
            found["orders"].append(order)
            found["lineitem"].extend(lines)
        return found

    def prose(self) -> str:
        return words.prose(self.choose)

    def money(self, low: float, high: float) -> Decimal:
        return Decimal(self.choose.randrange(round(low * 100), round(high * 100))) / 100

    def nation(self, key: int, wanted: tuple[str, ...]) -> int:
        # In turn, and the first time for certain: a dozen suppliers are to reach each of them.
        focus = 1.0 if self.focus and key <= len(wanted) else self.focus
        name = draw_focused(self.choose, focus, (wanted[key % len(wanted)],), words.NATION_NAMES)
        return words.NATION_NAMES.index(name)

    def part(self, key: int) -> Row:
        choose, focus = self.choose, self.focus
        colours = choose.sample(words.COLOURS, 5)
        if choose.random() < focus:
            colours[0] = choose.choice(("forest", "forest", "green"))
        maker = choose.randrange(1, 6)
        brand, container = f"Brand#{maker}{choose.randrange(1, 6)}", choose.choice(words.CONTAINERS)
        if choose.random() < focus:
            brand, container = choose.choice(_PART_KINDS)
        # The specification's formula, so that prices have no other rule here than there.
        self.prices[key] = Decimal(90_000 + key // 10 % 20_001 + 100 * (key % 1_000)) / 100
        kind, size = choose.choice(words.TYPES), choose.randint(1, 50)
        if choose.random() < focus:
            kind, size = choose.choice(_PART_TYPES)
        factory = f"Manufacturer#{brand[6]}"
        return (key, " ".join(colours), factory, brand, kind, size, container, self.prices[key], self.prose())

    def supplier(self, key: int) -> Row:
        nation = self.nation(key, _SUPPLIER_NATIONS)
        comment = self.prose()
        said = self.choose.random()
        if said < self.focus / 2:
            # Both occur in the benchmark; one of them is asked for.
            comment += " Customer says: " + ("Complaints" if said < self.focus / 4 else "Recommends")
        home, number = words.address(self.choose), words.phone(self.choose, nation)
        return (key, f"Supplier#{key:09}", home, nation, number, self.money(-999.99, 9_999.99), comment)

    def partsupp(self, part: int, suppliers: int) -> list[Row]:
        self.sellers[part] = self.choose.sample(range(1, suppliers + 1), 4)
        return [
            (
                part,
                supplier,
                draw_focused(self.choose, self.focus, range(1, 40), range(1, 10_000)),
                self.money(1, 1_000),
                self.prose(),
            )
            for supplier in self.sellers[part]
        ]

    def customer(self, key: int) -> Row:
        nation = self.nation(key, _CUSTOMER_NATIONS)
        home, number = words.address(self.choose), words.phone(self.choose, nation)
        segment = draw_focused(self.choose, self.focus, ("BUILDING",), words.SEGMENTS)
        balance = self.money(-999.99, 9_999.99)
        return (key, f"Customer#{key:09}", home, nation, number, balance, segment, self.prose())

    def order(self, key: int, customers: int) -> tuple[Row, list[Row]]:
        choose = self.choose
        wanted = choose.random() < self.focus
        large = wanted and choose.random() < _LARGE_SHARE
        if wanted:
            first, days = choose.choice(_MONTHS)
        else:
            first, days = FIRST_DAY, (LAST_DAY - FIRST_DAY).days
        date = first + dt.timedelta(days=choose.randrange(days))
        lines = [self.line(key, number, date, large) for number in range(1, (7 if large else choose.randint(1, 6)) + 1)]
        total = sum((line[5] * (1 + line[7]) * (1 - line[6]) for line in lines), Decimal(0)).quantize(Decimal("0.01"))
        states = {line[9] for line in lines}
        # A third of the customers never order, as in the specification.
        customer = choose.choice([number for number in range(1, customers + 1) if number % 3])
        comment = self.prose()
        if choose.random() < self.focus / 2:
            comment += " special wishes, then requests"
        priority, clerk = choose.choice(words.PRIORITIES), f"Clerk#{choose.randrange(1, 100):09}"
        return (
            (key, customer, states.pop() if len(states) == 1 else "P", total, date, priority, clerk, 0, comment),
            lines,
        )

    def line(self, order: int, number: int, date: dt.date, large: bool) -> Row:
        choose, focus = self.choose, self.focus
        part = choose.randrange(1, len(self.prices) + 1)
        quantity = choose.randint(43, 50) if large else draw_focused(choose, focus / 2, range(1, 5), range(1, 51))
        shipped = date + dt.timedelta(days=choose.randint(1, 121))
        promised = date + dt.timedelta(days=choose.randint(30, 90))
        received = shipped + dt.timedelta(days=choose.randint(1, 30))
        return (
            order,
            part,
            choose.choice(self.sellers[part]),
            number,
            Decimal(quantity),
            quantity * self.prices[part],
            Decimal(choose.randint(0, 10)) / 100,
            Decimal(choose.randint(0, 8)) / 100,
            choose.choice("RA") if received <= _TODAY else "N",
            "F" if shipped <= _TODAY else "O",
            shipped,
            promised,
            received,
            draw_focused(choose, focus, ("DELIVER IN PERSON",), words.INSTRUCTIONS),
            draw_focused(choose, focus, ("AIR", "MAIL", "SHIP"), words.MODES),
            self.prose(),
        )
