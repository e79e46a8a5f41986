"""Requests made up from /openapi.json: no failure that nobody foresaw, and answers of the shapes that it promises."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cumulus.server.limits import Limits
from support.http_server import Running, running

SCRIPT = """
CREATE TABLE orders (id INT PRIMARY KEY, region TEXT, nation TEXT, amount DECIMAL(12,2)) WITH (keep = all);
CREATE CUBE sales DIMENSION customer (region, nation) KEEP (region), ()
  AS SELECT region, nation, COUNT(*) AS n, SUM(amount) AS revenue FROM orders GROUP BY ALL;
CREATE VIEW v AS SELECT region, COUNT(*) AS n FROM orders GROUP BY region;
"""
NAMES = ("v", "sales", "orders", "V", "nothing")
ENDLESS = ("/changes", "/v1/snapshot", "/v1/login")
"""Streams have no end, each snapshot writes files, and each login that fails waits longer."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = Limits(wait_s=0.05, statement_s=1.0, body_bytes=1 << 20)
    with running(tmp_path_factory.mktemp("schema"), SCRIPT, limits=limits) as found:
        yield found


def ask_everything(server: Running, examples: int) -> int:
    schemathesis = pytest.importorskip("schemathesis")
    with server.http() as http:
        described = http.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=server.address)
    has_shape = schemathesis.checks.CHECKS.get_one("response_schema_conformance")
    asked = 0
    for operation in (found.ok() for found in schema.get_all_operations()):
        if any(part in operation.path for part in ENDLESS):
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal asked
            if "name" in (case.path_parameters or {}):
                case.path_parameters["name"] = NAMES[asked % len(NAMES)]
            asked += 1
            answer = case.call(timeout=20)
            assert answer.status_code != 500, (case.as_curl_command(), answer.text)
            assert "Traceback" not in answer.text
            if answer.status_code >= 400:
                told = answer.json()
                assert told.keys() == {"error", "message", "hint", "place"}, case.as_curl_command()
            elif answer.headers.get("Content-Type", "").startswith("application/json"):
                case.validate_response(answer, checks=[has_shape])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask()
    return asked


@pytest.mark.slow
def test_a_few_requests_of_each_kind(server: Running) -> None:
    assert ask_everything(server, 3) > 60


@pytest.mark.slow
def test_many_requests_of_each_kind(server: Running) -> None:
    assert ask_everything(server, 400) > 5_000
