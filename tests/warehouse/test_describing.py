"""What `explain` and `stats` show of themselves at a prompt and in a notebook."""

from __future__ import annotations

import cumulus

SQL = """
CREATE TABLE orders (id INTEGER NOT NULL, city VARCHAR NOT NULL, price DECIMAL(10,2));
CREATE VIEW "a<b" AS SELECT city, SUM(price) AS total, COUNT(*) AS n FROM orders GROUP BY city;
"""


def test_an_explanation_is_shown_as_its_text() -> None:
    warehouse = cumulus.Warehouse(SQL)
    found = warehouse.explain("a<b")
    assert repr(found) == str(found)
    assert found._repr_html_().startswith("<pre>view a&lt;b: 1 map")
    assert len(repr(found)) < 1_500
    assert "MapUse(" not in repr(found)


def test_counts_are_shown_in_a_few_lines() -> None:
    warehouse = cumulus.Warehouse(SQL, engine="interpreter", memory_limit="1GB")
    warehouse.insert("orders", [(1, "Rome", 5), (2, "Oslo", 7), (3, "Rome", 1)])
    found = warehouse.stats()
    assert repr(found) == str(found)
    lines = str(found).split("\n")
    assert lines[0] == "3 events; rows: orders 3"
    assert lines[1].startswith("engine interpreter, ")
    assert lines[1].endswith(" of 1.0 GB that it may take")
    assert lines[-1].startswith("map a<b  ")
    assert "           2 rows" in lines[-1]
    assert found._repr_html_() == f"<pre>{str(found).replace('<', '&lt;')}</pre>"


def test_of_many_maps_the_largest_are_shown() -> None:
    views = "".join(
        f"CREATE VIEW v{n} AS SELECT id % {n} AS k, COUNT(*) AS n FROM orders GROUP BY 1;" for n in range(2, 22)
    )
    warehouse = cumulus.Warehouse(SQL + views, engine="interpreter")
    warehouse.insert("orders", [(n, "Rome", 1) for n in range(50)])
    lines = str(warehouse.stats()).split("\n")
    assert len(lines) < 20
    assert lines[-1].startswith("and ")
    assert lines[-1].endswith(" smaller maps")


def test_programs_and_comparisons_are_shown_as_their_text() -> None:
    assert cumulus.compile(SQL)._repr_html_().startswith("<pre>RELATION orders(")
    report = cumulus.Warehouse(SQL, keep="all").recheck()
    assert report._repr_html_() == "<pre>view a&lt;b: 0 rows, equal</pre>"
