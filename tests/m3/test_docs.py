"""Every example of the reference page is valid M3, and says what the page says that it says."""

import re
from pathlib import Path

import pytest

from cumulus.m3 import parse, read

PAGE = (Path(__file__).parents[2] / "docs" / "m3.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```m3\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES, ids=[text.splitlines()[0] for text in EXAMPLES])
def test_an_example_is_valid_and_reads_back(text):
    program = read(text)
    assert parse(str(program)) == program


def test_the_page_has_examples_of_everything():
    assert len(EXAMPLES) == 10
    whole = "\n".join(EXAMPLES)
    for part in (
        "RELATION",
        "MAP",
        "VIEW",
        "ON +",
        "ON -",
        "ON BATCH",
        "ORDERED",
        "START",
        "COUNT",
        "EXISTS",
        "MAX ",
        "MIN[",
        "SUM[",
        "NEW ",
        "CHANGED ",
        "if ",
    ):
        assert part in whole


def test_the_domain_prints_as_the_page_shows():
    written, printed = EXAMPLES[7:9]
    assert parse(written) == parse(printed)


def test_literals_have_the_types_of_the_table():
    from support.term_texts import parse_scalar

    types = {"12": "INTEGER", "0.50": "DECIMAL(2,2)", "1e0": "DOUBLE", "5e-1": "DOUBLE", "'it''s'": "VARCHAR"}
    types |= {"CAST(12 AS BIGINT)": "BIGINT", "CAST(NULL AS DATE)": "DATE", "CAST('nan' AS DOUBLE)": "DOUBLE"}
    for literal, name in types.items():
        assert literal in PAGE
        assert str(parse_scalar(literal).type) == name
