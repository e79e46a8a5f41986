"""A program whose views read maps beside their own, what its views are by definition, and random events for it."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

TEXT = """
RELATION sales(shop INT, day DATE, price DECIMAL(9,2)) KEPT sales;
RELATION shops(shop INT, city VARCHAR) KEPT shops;

MAP sales[shop INT, day DATE, price DECIMAL(9,2)](n BIGINT) = sales(shop, day, price);
MAP shops[shop INT, city VARCHAR](n BIGINT) = shops(shop, city);
MAP by_shop[shop INT](n BIGINT, s DECIMAL(38,2)) COUNT n
  = SUM[shop](sales(shop, day, price)), SUM[shop](sales(shop, day, price) * price);
MAP prices[shop INT, price DECIMAL(9,2)](n BIGINT) = SUM[shop, price](sales(shop, day, price));
MAP days[day DATE, shop INT](n BIGINT, s DECIMAL(38,2)) COUNT n
  = SUM[day, shop](sales(shop, day, price)), SUM[day, shop](sales(shop, day, price) * price);
MAP total[](s DECIMAL(38,2)) = SUM[](sales(shop, day, price) * price);
MAP cities[city VARCHAR](n BIGINT) = SUM[city](shops(shop, city));

VIEW range(shop INT, low DECIMAL(9,2), high DECIMAL(9,2), last DATE) FROM by_shop
  SELECT shop, MIN prices[shop, *], MAX[p](prices[shop, p]), MAX[d](days[d, shop].s);
VIEW large(shop INT, s DECIMAL(38,2)) FROM by_shop
  SELECT shop, s WHERE s * 3 > total[];
VIEW bag(shop INT) FROM by_shop
  SELECT shop REPEAT shops[shop, 'rome'] + n * shops[shop, 'bern'];
VIEW extremes(first DATE, dearest INT, last_city VARCHAR) FROM total
  SELECT MIN days[*, 1], MAX[k](by_shop[k].s), MAX cities[*];
VIEW top(shop INT, high DECIMAL(9,2)) FROM by_shop
  SELECT shop, MAX prices[shop, *] ORDER BY MAX prices[shop, *] DESC, shop LIMIT 2;
VIEW followed(shop INT) FROM by_shop
  SELECT shop WHERE by_shop[shop + 1].n > 0;

ON +sales(shop, day, price) {
  sales[shop, day, price] += 1; by_shop[shop].n += 1; by_shop[shop].s += price; prices[shop, price] += 1;
  days[day, shop].n += 1; days[day, shop].s += price; total[] += price;
}
ON -sales(shop, day, price) {
  sales[shop, day, price] += -1; by_shop[shop].n += -1; by_shop[shop].s += -price; prices[shop, price] += -1;
  days[day, shop].n += -1; days[day, shop].s += -price; total[] += -price;
}
ON +shops(shop, city) { shops[shop, city] += 1; cities[city] += 1; }
ON -shops(shop, city) { shops[shop, city] += -1; cities[city] += -1; }
"""

SCHEMAS = {"sales": ("shop", "day", "price"), "shops": ("shop", "city")}


def with_views(*names: str) -> str:
    """Return the program with some of its views only."""
    declarations = TEXT.split(";")
    return ";".join(
        each for each in declarations if "VIEW " not in each or each.split("VIEW ")[1].split("(")[0] in names
    )


def random_events(seed: int, count: int) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
    """Insertions of few different rows, and deletions of rows that are there."""
    chance, there = random.Random(seed), []
    for _ in range(count):
        if there and chance.random() < 0.4:
            relation, row = there.pop(chance.randrange(len(there)))
            yield -1, relation, row
            continue
        shop = chance.choice([1, 2, 3, 4, None])
        if chance.random() < 0.7:
            day = chance.choice([None, *(dt.date(2024, 1, day) for day in range(1, 5))])
            price = chance.choice([None, *(Decimal(cents) / 100 for cents in (-150, 0, 5, 120, 999))])
            event = "sales", (shop, day, price)
        else:
            event = "shops", (shop, chance.choice(["rome", "bern", "oslo", None]))
        there.append(event)
        yield 1, *event


def expected(tables: dict[str, Counter[tuple[Any, ...]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of every view, from the rows of the tables and nothing else; `top` without its order."""
    sales, shops = list(tables["sales"].elements()), list(tables["shops"].elements())

    def least(values: Any) -> Any:
        return min((value for value in values if value is not None), default=None)

    def greatest(values: Any) -> Any:
        return max((value for value in values if value is not None), default=None)

    def amount(rows: list[tuple[Any, ...]]) -> Decimal:
        return sum((row[2] or Decimal(0) for row in rows), Decimal(0))

    views: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in ("range", "large", "bag", "followed")}
    top = []
    for shop in {row[0] for row in sales}:
        mine = [row for row in sales if row[0] == shop]
        prices = [row[2] for row in mine]
        days = {row[1] for row in mine}
        earning = [day for day in days if amount([row for row in mine if row[1] == day])]
        views["range"][shop, least(prices), greatest(prices), greatest(earning)] += 1
        if amount(mine) * 3 > amount(sales):
            views["large"][shop, amount(mine)] += 1
        cities = Counter(city for other, city in shops if other == shop)
        views["bag"][shop,] += cities["rome"] + len(mine) * cities["bern"]
        following = None if shop is None else shop + 1  # NULL is a key like any other
        if any(row[0] == following for row in sales):
            views["followed"][shop,] += 1
        top.append((shop, greatest(prices)))
    top.sort(key=lambda row: (row[1] is None, -(row[1] or 0), row[0] is None, row[0] or 0))
    views["top"] = Counter(top[:2])
    by_shop = {shop: amount([row for row in sales if row[0] == shop]) for shop in {row[0] for row in sales}}
    first = least(row[1] for row in sales if row[0] == 1)
    views["extremes"] = Counter(
        [(first, greatest(shop for shop, s in by_shop.items() if s), greatest(city for _, city in shops))]
    )
    return {name: +rows for name, rows in views.items()}
