"""Which names a table, view, cube or column may have: any but those that no line, path or address can hold."""

from __future__ import annotations

import pytest

import cumulus
from cumulus import m3
from cumulus.errors import CumulusError, M3SyntaxError, SqlSyntaxError, ValidationError

LEGAL = [
    ".", "..", "../evil", "/", "a/b", "a" * 255, "é" * 255, "%", "%2E", 'a"b', "a'b", " ", "-", ".hidden", "_SUCCESS",
    "CON", "latest", "quarantine", "parts", "manifest", "view_errors", "x=1", "[a]*?", "$(rm)", "{a}", "~", "a\\b",
    "q;drop", "名前", "_op", "_seq", "_position", "change", "op", "seq",
]  # fmt: skip
REFUSED = {
    "": "is empty",
    "a" * 256: "has 256 characters",
    "a\0b": r"has the control character U\+0000",
    "a\nb": r"has the control character U\+000A",
    "\x7f": r"has the control character U\+007F",
    "a\x85": r"has the control character U\+0085",
    "\u2028": r"has the control character U\+2028",
}
SCRIPTS = [
    "CREATE TABLE t (a INT); CREATE VIEW {0} AS SELECT SUM(a) AS s FROM t",
    "CREATE TABLE {0} (a INT); CREATE VIEW v AS SELECT SUM(a) AS s FROM {0}",
    "CREATE TABLE t ({0} INT); CREATE VIEW v AS SELECT SUM({0}) AS {0} FROM t",
    "CREATE TABLE t (a INT, b INT); CREATE CUBE {0} AS SELECT a, SUM(b) AS s FROM t GROUP BY a",
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_name_compiles_and_its_program_is_read_again(name: str, script: str) -> None:
    program = cumulus.compile(script.format(quoted(name)))
    assert str(m3.read(str(program))) == str(program)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", REFUSED)
def test_an_illegal_name_is_refused_where_it_is_declared(name: str, script: str) -> None:
    with pytest.raises(SqlSyntaxError, match=REFUSED[name]) as caught:
        cumulus.compile(script.format(quoted(name)))
    assert "1 to 255 characters" in str(caught.value)
    assert len(str(caught.value).splitlines()[0]) < 120


@pytest.mark.parametrize("name", REFUSED)
def test_an_illegal_name_is_refused_in_a_program_of_ones_own(name: str) -> None:
    text = f"RELATION {quoted(name)}(a INTEGER); ON +{quoted(name)}(a) {{ q[] += a }}"
    with pytest.raises((ValidationError, M3SyntaxError)):
        m3.read(text)


def test_an_illegal_name_of_a_frame_is_refused() -> None:
    with pytest.raises(CumulusError, match=r"U\+000A"):
        cumulus.Warehouse.from_frames({"a\nb": {"x": [1]}}, "CREATE VIEW v AS SELECT 1 AS x")


def test_one_illegal_name_does_not_hide_other_errors() -> None:
    with pytest.raises(CumulusError, match=r"U\+000A(.|\n)*no column b"):
        cumulus.compile('CREATE TABLE "a\nb" (a INT); CREATE TABLE t (a INT); CREATE VIEW v AS SELECT b FROM t')
