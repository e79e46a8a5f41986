"""Runs whose input, output and state are in an object store: the same epochs as over folders, and one run at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.durable.store import Storage, Store, store_of
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.query import query
from cumulus.epochs.output.turns import RunNumber
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import sources_from
from cumulus.errors import CumulusError, InputError, LockedError, StoreError, UsageError
from cumulus.m3 import parse
from support.object_server import ENVIRONMENT, Proxy
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows
from support.published_orders import QUERIES, check_tables

pytestmark = pytest.mark.xdist_group("objects")
TESTS = Path(__file__).parents[1]
COMPILED = parse(PROGRAM + "CUBE revenue DIMENSION nation (nation);")


def given_to(store: Store, folder: Path) -> None:
    """Copy the files of tables into a store, those that are not there."""
    for file in sorted(folder.rglob("*.*")):
        store.create(str(file.relative_to(folder)), file.read_bytes())


def stream_of(folder: Path, epochs: int, seed: int = 1) -> OrdersStream:
    stream = OrdersStream(folder, seed, {name: QUERIES[name] for name in ("customers", "orders")})
    for _ in range(epochs):
        stream.write()
    return stream


def opened(source: str, out: str, storage: Storage, **more: Any) -> EmbeddedRun:
    sources = sources_from([source], COMPILED, storage=storage)
    return EmbeddedRun(COMPILED, sources, out, storage=storage, make_engine=partial(make_engine, "interpreter"), **more)


def check(stream: OrdersStream, out: Store) -> None:
    """Check that each epoch is committed once, with the rows that it must have, and that no row is lost."""
    assert committed_epochs(out) == list(stream.expected)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected, epoch
    totals, last = read_manifest(out, max(stream.expected)).totals, read_manifest(out, max(stream.expected)).counts
    assert totals["events"] == stream.events
    fates = ("applied", "repeated", "quarantined", "tombstones", "messages")
    assert totals["events"] == sum(totals.get(each, 0) for each in fates) + last.get("waiting", 0)


def test_a_run_over_objects_says_what_one_over_folders_says(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/same"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    told: list[Epoch] = []
    for _ in range(2):  # with a restart between
        with opened(f"{place}/in", f"{place}/out", storage, publish=("all",)) as run:
            for _ in range(2):
                epoch = run.step()
                assert epoch is not None
                told.append(epoch)
    out = store_of(f"{place}/out", storage)
    check(stream, out)
    check_tables(stream, out)
    assert sum(told[1].changes("revenue").column("change").to_pylist()) == len(stream.expected[2]) - len(
        stream.expected[1]
    )
    folded = OutputFolder(out).fold("revenue", []).finish().to_pylist()
    assert folded == [
        {"revenue": sum(row[1] for row in stream.expected[4]), "items": sum(row[2] for row in stream.expected[4])}
    ]
    assert [read_manifest(out, epoch).run for epoch in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert read_manifest(out, 4).began == [[1, 1], [3, 2]]
    secrets = [value for name, value in storage.options.items() if name in storage.secrets]
    for file in out.list():
        assert not any(secret.encode() in out.get(file.name) for secret in secrets), file.name


def test_the_state_of_a_run_over_objects_may_be_in_a_folder(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/apart"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    for _ in range(2):  # with a restart between
        with opened(f"{place}/in", f"{place}/out", storage, checkpoint=tmp_path / "state") as run:
            for _ in range(2):
                assert run.step() is not None
    check(stream, store_of(f"{place}/out", storage))


def test_a_run_over_objects_goes_on_in_other_buckets(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 6)
    storage, place = proxy.storage(), "s3://runs-one/moved"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    out = store_of(f"{place}/out", storage)
    for number, options in enumerate([{}, {"layout": "one-round", "buckets": 3}, {"buckets": 2}]):
        with opened(f"{place}/in", f"{place}/out", storage, **options) as run:
            for _ in range(2):
                assert run.step() is not None
        folders = {"/".join(file.name.split("/")[1:3]) for file in out.list("checkpoint/state")}
        assert len(folders) == min(number, 1), folders  # what no run goes back to is removed
    assert [read_manifest(out, epoch).generation for epoch in range(1, 7)] == [0, 0, 1, 1, 2, 2]
    check(stream, out)


def test_buckets_that_are_made_while_an_earlier_run_commits_are_void(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/void"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    with opened(f"{place}/in", f"{place}/out", storage) as early:
        assert early.step() is not None
        late = opened(f"{place}/in", f"{place}/out", storage, layout="one-round", buckets=3)
        assert late.identity.plan.buckets == 3
        with suppress(CumulusError):  # the last epoch that it may still commit, or none
            early.step()
    with late:
        while late.step() is not None:
            pass
        assert late.identity.plan.buckets == 3
    check(stream, store_of(f"{place}/out", storage))


def test_a_query_fetches_what_it_names(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/named"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    with opened(f"{place}/in", f"{place}/out", storage) as run:
        list(run.steps())
    out = store_of(f"{place}/out", storage)
    asked = []
    for sql in ("FROM revenue", 'SELECT COUNT(*) AS n FROM "Quarantine"'):
        proxy.requests.clear()
        assert query(out, sql).num_rows
        asked.append({kind.split()[1] for kind in proxy.counted() if kind.startswith("GET ")} - {"epochs", "out"})
    assert asked == [{"revenue"}, {"quarantine"}]


def test_a_steady_epoch_asks_for_what_it_needs_and_nothing_else(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 9)
    storage, place = proxy.storage(), "s3://runs-one/steady"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    counted = []
    with opened(f"{place}/in", f"{place}/out", storage) as run:
        for _ in range(8):
            proxy.requests.clear()
            epoch = run.step(last=False)
            assert epoch is not None
            counted.append(proxy.counted())
    for found in counted[2:]:
        assert found["list"] == 3  # one for each source
        assert found["PUT epochs"] == found["HEAD runs"] == found["PUT embedded"] == found["PUT out"] == 1
        written = sum(count for kind, count in found.items() if kind.split()[0] == "PUT")
        read = sum(count for kind, count in found.items() if kind.split()[0] in ("GET", "HEAD"))
        assert written == 3 + found["PUT revenue"] + found["PUT parts"] + found["PUT quarantine"] + found["PUT data"]
        assert read == 1 + 2 * 3  # a look for a later run; the end and the bytes of three small files of Parquet
        assert sum(count for kind, count in found.items() if kind.startswith("DELETE")) == 0


def test_two_runs_at_once_commit_each_epoch_once(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/two"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    with opened(f"{place}/in", f"{place}/out", storage) as older:
        older.step()
        with opened(f"{place}/in", f"{place}/out", storage) as newer:
            with pytest.raises(LockedError, match="another run has begun to write here, number 2"):
                older.step()
            list(newer.steps())
    check(stream, store_of(f"{place}/out", storage))


def test_what_an_earlier_run_committed_last_is_built_on(proxy: Proxy, tmp_path: Path) -> None:
    """The older run has looked for a later one, and creates its manifest when that has begun and read what there is."""
    stream = stream_of(tmp_path / "in", 4)
    storage, place = proxy.storage(), "s3://runs-one/late"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    out = store_of(f"{place}/out", storage)
    newer: list[EmbeddedRun] = []

    def begin(method: str, path: str, headers: object) -> None:
        if method == "PUT" and path.endswith("epochs/2.json") and not newer:
            newer.append(None)  # type: ignore[arg-type]  # this is asked once
            newer[0] = opened(f"{place}/in", f"{place}/out", storage)

    older = opened(f"{place}/in", f"{place}/out", storage)
    older.step()
    proxy.fault = begin
    assert older.step() is not None
    with pytest.raises(LockedError):
        older.step()
    with newer[0] as run:
        assert [epoch.number for epoch in run.steps()] == [3, 4]
    check(stream, out)
    assert [read_manifest(out, epoch).run for epoch in (1, 2, 3, 4)] == [1, 1, 2, 2]


def two_runs_in_any_order(proxy: Proxy, folder: Path, seed: int) -> None:
    """Let two runs take steps in turn as a seed says, with lost, cut and refused answers, and check what is left."""
    draw = random.Random(seed)
    stream = stream_of(folder, 5, seed)
    storage, place = proxy.storage(), f"s3://runs-one/any-{seed}-{os.urandom(3).hex()}"
    proxy.reset()
    given_to(store_of(f"{place}/in", storage), stream.folder)
    proxy.fault = lambda method, path, headers: draw.choices((None, 500, 503, "cut", "lose"), (90, 2, 2, 3, 3))[0]
    runs: list[EmbeddedRun] = []
    for _ in range(60):
        if len(runs) < 2:
            runs.append(opened(f"{place}/in", f"{place}/out", storage))
        run = draw.choice(runs)
        try:
            if run.step() is None:
                break
        except LockedError:
            runs.remove(run)
        except CumulusError:
            run.close()
            runs.remove(run)
    proxy.reset()
    out = store_of(f"{place}/out", storage)
    check(stream, out)
    began = read_manifest(out, max(stream.expected)).began
    assert [run for _, run in began] == sorted({run for _, run in began}), "an older run went on"


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_any_order_of_two_runs_and_faults_leaves_each_epoch_once(
    proxy: Proxy, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    two_runs_in_any_order(proxy, tmp_path_factory.mktemp("in"), seed)


@pytest.mark.slow
def test_the_law_of_two_runs_finds_one_that_does_not_look_for_later_ones(
    proxy: Proxy, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunNumber, "check", lambda self: None)

    def tried() -> None:
        for seed in range(20):
            two_runs_in_any_order(proxy, tmp_path_factory.mktemp("in"), seed)

    with pytest.raises(AssertionError, match="an older run went on"):
        tried()


@pytest.mark.parametrize("knows_its_nonce", [True, False])
def test_a_commit_whose_answer_is_lost_is_known_by_its_nonce(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_its_nonce: bool
) -> None:
    stream = stream_of(tmp_path / "in", 3)
    storage, place = proxy.storage(), f"s3://runs-one/lost-{knows_its_nonce}"
    given_to(store_of(f"{place}/in", storage), stream.folder)
    lost = ["lose"]

    def lose(method: str, path: str, headers: object) -> str | None:
        return lost.pop() if method == "PUT" and path.endswith("epochs/2.json") and lost else None

    if not knows_its_nonce:
        strange = partial(replace, nonce="of another")
        monkeypatch.setattr("cumulus.epochs.output.sink.read_manifest", lambda *given: strange(read_manifest(*given)))
    with opened(f"{place}/in", f"{place}/out", storage) as run:
        proxy.fault = lose
        told = list(run.steps())
    assert not lost
    assert [epoch.number for epoch in told] == ([1, 2, 3] if knows_its_nonce else [1, 3])  # nobody tells of another's
    check(stream, store_of(f"{place}/out", storage))


def test_a_store_without_conditional_creates_is_refused(proxy: Proxy, tmp_path: Path) -> None:
    class Simple(type(store_of("s3://runs-one/simple", proxy.storage()))):  # type: ignore[misc]
        def create(self, name: str, data: bytes) -> bool:
            self.put(name, data)
            return True

    with pytest.raises(StoreError, match="this store creates a file that is there already"):
        RunNumber(Simple("s3://runs-one/simple", proxy.storage()))


def test_input_that_changes_or_comes_late_is_told(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 3)
    storage, place = proxy.storage(), "s3://runs-one/changed"
    there = store_of(f"{place}/in", storage)
    given_to(there, stream.folder)
    with opened(f"{place}/in", f"{place}/out", storage) as run:
        list(run.steps())
    last = [file.name for file in there.list("orders")][-1]
    kept = there.get(last)
    there.put(last, kept[:-1] + b"x")
    with opened(f"{place}/in", f"{place}/out", storage) as run, pytest.raises(InputError, match="was replaced after"):
        run.step()
    there.put(last, kept)
    there.put("orders/000.parquet", kept)
    with opened(f"{place}/in", f"{place}/out", storage) as run, pytest.raises(InputError, match="came late"):
        run.step()


def test_what_cannot_be_is_refused_before_anything_is_written(proxy: Proxy, tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 1)
    storage, place = proxy.storage(), "s3://runs-one/refused"
    with pytest.raises(InputError, match="no folder for any of the tables"):
        sources_from([f"{place}/in"], COMPILED, storage=storage)
    given_to(store_of(f"{place}/in", storage), stream.folder)
    with pytest.raises(UsageError, match="is in s3://runs-one/refused/in/orders"):
        opened(f"{place}/in", f"{place}/in/orders/out", storage)
    with pytest.raises(InputError, match="there is nothing there for table 'orders'"):
        sources_from([f"{place}/in", f"orders={place}/nothing"], COMPILED, storage=storage)
    denied = proxy.storage(secret_access_key="wrong")
    with pytest.raises(InputError, match="does not belong to the access key"):
        sources_from([f"{place}/in"], COMPILED, storage=denied)
    sources = sources_from([str(stream.folder)], COMPILED)
    with pytest.raises(StoreError, match="access is denied"):
        EmbeddedRun(COMPILED, sources, f"{place}/out", storage=denied, make_engine=partial(make_engine, "interpreter"))
    assert store_of(f"{place}/out", storage).list() == []


@pytest.mark.spark_hosts
@pytest.mark.parametrize("seed", range(20))
def test_a_process_that_is_killed_leaves_each_epoch_once(proxy: Proxy, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    stream = stream_of(tmp_path / "in", 6, seed)
    place = f"s3://runs-one/killed-{seed}"
    given_to(store_of(f"{place}/in", proxy.storage()), stream.folder)
    (tmp_path / "program.m3").write_text(PROGRAM)
    command = [str(Path(sys.executable).with_name("cumulus")), "run", str(tmp_path / "program.m3")]
    command += ["--from", f"{place}/in", "--out", f"{place}/out", "--host", "embedded"]
    command += ["--storage", f"endpoint={proxy.endpoint}", "--storage", "allow_http=true"]
    points = ("after-read", "in-handler", "after-state-write", "before-manifest", "after-manifest")
    wishes = ",".join(f"{point}:{draw.randrange(1, 7)}" for point in draw.sample(points, 3))
    environment = {**os.environ, **ENVIRONMENT, "CUMULUS_CRASH": wishes, "CUMULUS_CRASH_DIR": str(tmp_path)}
    for _ in range(10):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    check(stream, store_of(f"{place}/out", proxy.storage()))
