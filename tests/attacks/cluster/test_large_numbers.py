"""Numbers beyond 128 bits from a client of a live cluster: their views fail, everything else goes on, also tomorrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.catalog.events import INSERT
from cumulus.cli.main import app
from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.client_rows import rows_to_send
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.errors import CumulusError, NotRunningError, ValueTypeError

SCRIPT = """
CREATE TABLE r (k INTEGER NOT NULL, a HUGEINT NOT NULL); CREATE TABLE s (k INTEGER NOT NULL, b BIGINT NOT NULL);
CREATE VIEW totals AS SELECT k, SUM(a) AS t FROM r GROUP BY k;
CREATE VIEW joined AS SELECT b, SUM(a) AS t FROM r JOIN s USING (k) GROUP BY b;
CREATE VIEW lines AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
"""


def run(*arguments: object) -> None:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


@contextmanager
def running(home: Path, *options: str) -> Iterator[None]:
    script = home.parent / "large.sql"
    script.write_text(SCRIPT)
    run("cluster", "start", script, "--home", home, "--nodes", 2, "--switches", 2, "--trigger", "100ms", *options)
    try:
        yield
    finally:
        with suppress(NotRunningError):
            run("cluster", "stop", home)


def incarnation(home: Path) -> int:
    address = read_address(home)
    assert address is not None
    return address.incarnation


@pytest.mark.slow
def test_two_rows_of_2_to_the_126_cost_their_views_alone(tmp_path: Path) -> None:
    home, large = tmp_path / "home", 2**126
    with running(home):
        first = incarnation(home)
        with cumulus.connect(home) as client:
            client.insert("s", [(1, 7), (2, 8)])
            client.insert("r", [(1, 5), (2, 6)])
            client.view("joined", after=client.insert("r", [(2, 1)]))
            token = client.insert("r", [(1, large)] * 2)
            after = client.insert("s", [(3, 9)])
            assert sorted(client.view("lines", after=after).rows()) == [(1, 1), (2, 1), (3, 1)]
            assert sorted(client.view("totals", after=token).rows()) == [(1, 5), (2, 7)]  # its last good rows
            for view in ("totals", "joined"):
                with pytest.raises(CumulusError, match=r"128 bits|does not fit|beyond"):
                    client.view(view, "tentative").rows()
            assert sorted(client.view("lines", "tentative").rows()) == [(1, 1), (2, 1), (3, 1)]
            manifest = newest_manifest(home)
            assert manifest is not None
            assert manifest.errors.keys() == {"totals", "joined"}
        assert incarnation(home) == first
    with running(home), cumulus.connect(home) as client:
        again = client.insert("s", [(3, 9)])
        assert sorted(client.view("lines", after=again).rows()) == [(1, 1), (2, 1), (3, 2)]
        healed = client.delete("r", [(1, large)] * 2)
        assert sorted(client.view("totals", after=healed).rows()) == [(1, 5), (2, 7)]
        assert sorted(client.view("joined", "tentative").rows()) == [(7, 5), (8, 7)]
        manifest = newest_manifest(home)
        assert manifest is not None
        assert not manifest.errors


@pytest.mark.slow
def test_two_rows_of_2_to_the_126_cost_gated_views_alone(tmp_path: Path) -> None:
    home, large = tmp_path / "home", 2**126
    with running(home, "--mode", "gated"):
        first = incarnation(home)
        with cumulus.connect(home) as client:
            client.insert("s", [(1, 7), (2, 8)])
            client.view("joined", after=client.insert("r", [(1, 5), (2, 6)]))
            token = client.insert("r", [(1, large)] * 2)
            after = client.insert("s", [(3, 9)])
            assert sorted(client.view("lines", after=after).rows()) == [(1, 1), (2, 1), (3, 1)]
            client.view("lines", after=token)
            manifest = newest_manifest(home)
            assert manifest is not None
            assert manifest.errors.keys() == {"totals", "joined"}
        assert incarnation(home) == first
    with running(home, "--mode", "gated"), cumulus.connect(home) as client:
        again = client.insert("s", [(3, 9)])
        assert sorted(client.view("lines", after=again).rows()) == [(1, 1), (2, 1), (3, 2)]
        healed = client.delete("r", [(1, large)] * 2)
        assert sorted(client.view("totals", after=healed).rows()) == [(1, 5), (2, 6)]
        assert sorted(client.view("joined", after=healed).rows()) == [(7, 5), (8, 6)]
        manifest = newest_manifest(home)
        assert manifest is not None
        assert not manifest.errors


@pytest.mark.parametrize("number", [10**38, 2**127 - 1, -(2**127)])
def test_a_number_that_no_message_holds_is_refused_by_name(tmp_path: Path, number: int) -> None:
    relation = compile_sql(SCRIPT).relation("r")
    with pytest.raises(ValueTypeError, match=rf"r\.a HUGEINT: {number} has 39 digits"):
        rows_to_send(relation, INSERT, [(1, 5), (1, number)])
    assert rows_to_send(relation, INSERT, [(1, 10**38 - 1), (1, 1 - 10**38)]).num_rows == 2
