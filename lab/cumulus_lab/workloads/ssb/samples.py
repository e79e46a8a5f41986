"""A small star: dimensions and line orders, drawn so that every query finds something."""

from __future__ import annotations

import calendar
import datetime as dt
import random

import pyarrow as pa

from cumulus.catalog import Row
from cumulus_lab.workloads import words
from cumulus_lab.workloads.ssb.schema import BENCHMARK, TABLES
from cumulus_lab.workloads.words import draw_focused

FIRST_DAY = dt.date(1992, 1, 1)
LAST_DAY = dt.date(1998, 12, 31)
_SEASONS = ("Winter", "Winter", *["Spring"] * 3, *["Summer"] * 3, *["Fall"] * 3, "Christmas")  # by month

# What the queries ask for: nation and city, brand, and the days around which orders gather.
_CITIES = (
    ("UNITED STATES", "UNITED ST3"),
    ("UNITED STATES", "UNITED ST8"),
    ("UNITED KINGDOM", "UNITED KI1"),
    ("UNITED KINGDOM", "UNITED KI5"),
    ("CHINA", "CHINA    7"),
    ("BRAZIL", "BRAZIL   2"),
)
_BRANDS = ("MFGR#1203", "MFGR#2221", "MFGR#2225", "MFGR#1417")
_DAYS = (dt.date(1994, 1, 28), dt.date(1994, 2, 8), dt.date(1993, 5, 1), dt.date(1997, 12, 9), dt.date(1998, 3, 3))
_NEAR = 5


def sample(*, lines: int = 400, focus: float = 0.7, seed: int = 0) -> dict[str, pa.Table]:
    """Return all five tables, in `TABLES`' order; the same parameters give the same rows.

    Parameters
    ----------
    lines
        Line orders, at least 8, in orders of one to seven. A tenth as many customers and parts, a sixteenth as many
        suppliers; of the calendar's 2,557 days those that occur.
    focus
        Probability, 0 to 1, with which a column that queries ask for takes a value that they ask for; with 0 all is
        drawn evenly, as the benchmark does.

    Examples
    --------
    >>> sample(lines=8)["lineorder"].num_rows
    8
    """
    choose = random.Random(seed)
    sizes = (max(lines // 10, 5), max(lines // 10, 5), max(lines // 16, 5))
    made = {**dimensions(choose, focus, *sizes), "lineorder": []}
    order = 0
    while len(made["lineorder"]) < lines:
        order += 1
        made["lineorder"].extend(_order(choose, focus, order, sizes)[: lines - len(made["lineorder"])])
    days = sorted({row[place] for row in made["lineorder"] for place in (5, 15)})
    made["dates"] = [day_row(dt.datetime.strptime(str(day), "%Y%m%d").date()) for day in days]
    return {name: as_table(name, made[name]) for name in TABLES}


def dimensions(choose: random.Random, focus: float, customers: int, parts: int, suppliers: int) -> dict[str, list[Row]]:
    """Return so many rows of customer, supplier and part, their keys from 1; `focus` as for `sample`."""
    return {
        "customer": [_customer(choose, focus, key) for key in range(1, customers + 1)],
        "supplier": [_supplier(choose, focus, key) for key in range(1, suppliers + 1)],
        "part": [_part(choose, focus, key) for key in range(1, parts + 1)],
    }


def as_table(name: str, rows: list[Row]) -> pa.Table:
    """Return rows, at least one, of a table."""
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=BENCHMARK.schema(name))


def _place(choose: random.Random, focus: float, key: int) -> tuple[int, str, str, str]:
    """Return the nation's key, the city, the nation and the region."""
    if choose.random() < focus:
        nation, city = _CITIES[key % len(_CITIES)]
    else:
        nation = choose.choice(words.NATION_NAMES)
        city = f"{nation[:9]:9}{choose.randrange(10)}"
    number = words.NATION_NAMES.index(nation)
    return number, city, nation, words.REGIONS[words.NATIONS[number][1]]


def _customer(choose: random.Random, focus: float, key: int) -> Row:
    number, *place = _place(choose, focus, key)
    home, phone = words.address(choose), words.phone(choose, number)
    return (key, f"Customer#{key:09}", home, *place, phone, choose.choice(words.SEGMENTS))


def _supplier(choose: random.Random, focus: float, key: int) -> Row:
    number, *place = _place(choose, focus, key)
    return (key, f"Supplier#{key:09}", words.address(choose), *place, words.phone(choose, number))


def _part(choose: random.Random, focus: float, key: int) -> Row:
    # A brand is its category and a number from 1 to 40; a category its manufacturer and a number from 1 to 5.
    brand = f"MFGR#{choose.randint(1, 5)}{choose.randint(1, 5)}{choose.randint(1, 40)}"
    brand = draw_focused(choose, focus, _BRANDS, (brand,))
    colour, other = choose.sample(words.COLOURS, 2)
    kind, size, container = choose.choice(words.TYPES), choose.randint(1, 50), choose.choice(words.CONTAINERS)
    return (key, f"{colour} {other}", brand[:6], brand[:7], brand, colour, kind, size, container)


def _order(choose: random.Random, focus: float, key: int, sizes: tuple[int, int, int]) -> list[Row]:
    customers, parts, suppliers = sizes
    customer = choose.randint(1, customers)
    if choose.random() < focus:
        day = choose.choice(_DAYS) + dt.timedelta(days=choose.randint(-_NEAR, _NEAR))
    else:
        day = FIRST_DAY + dt.timedelta(days=choose.randrange((LAST_DAY - FIRST_DAY).days - 90))
    priority = choose.choice(words.PRIORITIES)
    lines = []
    for _ in range(choose.randint(1, 7)):
        part = choose.randint(1, parts)
        price = 90_000 + part // 10 % 20_001 + 100 * (part % 1_000)
        quantity = draw_focused(choose, focus, range(20, 36), range(1, 51))
        discount = draw_focused(choose, focus, range(1, 8), range(11))
        lines.append((part, choose.randint(1, suppliers), quantity, price, discount, choose.randint(0, 8)))
    total = sum(q * price * (100 - discount) * (100 + tax) // 10_000 for _, _, q, price, discount, tax in lines)
    promised = [day + dt.timedelta(days=choose.randint(30, 90)) for _ in lines]
    return [
        (
            *(key, number, customer, part, supplier, day_key(day), priority, "0", quantity, quantity * price, total),
            *(discount, quantity * price * (100 - discount) // 100, price * 6 // 10, tax),
            day_key(promised[number - 1]),
            choose.choice(words.MODES),
        )
        for number, (part, supplier, quantity, price, discount, tax) in enumerate(lines, 1)
    ]


def day_key(day: dt.date) -> int:
    """Return a day as the benchmark counts days: 19940128."""
    return day.year * 10_000 + day.month * 100 + day.day


def day_row(day: dt.date) -> Row:
    """Return the row of a day in `dates`."""
    of_year = day.timetuple().tm_yday
    of_week = day.isoweekday() % 7 + 1  # weeks begin on Sunday
    last = calendar.monthrange(day.year, day.month)[1]
    month = calendar.month_name[day.month]
    return (
        *(day_key(day), day, calendar.day_name[day.weekday()], month, day.year, day.year * 100 + day.month),
        *(f"{month[:3]}{day.year}", of_week, day.day, of_year, day.month, (of_year - 1) // 7 + 1),
        *(_SEASONS[day.month - 1], int(of_week == 7), int(day.day == last)),
        *(int((day.month, day.day) in ((1, 1), (12, 25), (7, 4))), int(day.weekday() < 5)),
    )
