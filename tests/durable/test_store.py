"""Stores: a folder and a place in an object store do the same by the same methods."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.durable.store import FileStore, Storage, Store, read_parquet, storage_of, store_of
from cumulus.errors import UsageError
from support.object_server import KEY, READER, READERS_SECRET, SECRET, Proxy

pytestmark = pytest.mark.xdist_group("objects")
OWNER = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1", "allow_http": "true"}


def at(proxy: Proxy, address: str, **more: str) -> Store:
    return store_of(address, proxy.storage(**more))


NAMES = st.sampled_from(["a", "b", "a/b", "a/b c", "x=1/y", "data/%2Evil/é.parquet", "epochs/1.json", "epochs/10.json"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "put", "get", "size", "list", "delete", "after"]), NAMES, st.binary(max_size=9)
    ),
    max_size=15,
)
_places = iter(range(1_000_000))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_all_stores_do_what_a_dict_does(proxy: Proxy, tmp_path: Path, steps: list[tuple[str, str, bytes]]) -> None:
    place = next(_places)
    for store in (FileStore(tmp_path / f"{place}"), at(proxy, f"s3://bucket-one/laws/{place}")):
        known: dict[str, bytes] = {}
        made: set[str] = set()
        for step, name, data in steps:
            if any(each.startswith(f"{name}/") or name.startswith(f"{each}/") for each in made):
                continue  # a folder cannot have the name of a file, in a file system, and stays when its files go
            if step in ("create", "put"):
                made.add(name)
            if step == "create":
                assert store.create(name, data) == (name not in known)
                known.setdefault(name, data)
            elif step == "put":
                store.put(name, data)
                known[name] = data
            elif step == "get" and name in known:
                assert store.get(name) == known[name]
            elif step == "get":
                with pytest.raises(FileNotFoundError):
                    store.get(name)
            elif step == "size":
                assert store.size(name) == (len(known[name]) if name in known else None)
            elif step == "delete":
                store.delete(name)
                known.pop(name, None)
            else:
                after = name if step == "after" else ""
                wanted = sorted(each for each in known if each > after)
                assert [each.name for each in store.list(after=after)] == wanted
                assert [each.name for each in store.list("epochs")] == sorted(
                    each for each in known if each.startswith("epochs/")
                )


def test_parquet_is_read_by_ranges(proxy: Proxy) -> None:
    store = at(proxy, "s3://bucket-one/parquet")
    table = pa.table({"a": range(200_000), "b": [str(each) for each in range(200_000)]})
    store.write_new("t.parquet", table)
    assert read_parquet(store, "t.parquet").equals(table)
    assert read_parquet(store, "t.parquet", columns=["a"]).equals(table.select(["a"]))
    assert not any(method == "GET" and kind for method, _, kind in proxy.requests)


def test_a_lost_answer_to_a_create_is_no_second_file(proxy: Proxy) -> None:
    store = at(proxy, "s3://bucket-one/lost")
    lost = ["lose"]
    proxy.fault = lambda method, path, headers: lost.pop() if lost and method == "PUT" else None
    assert store.create("one", b"x") is False  # whose it is, its content says
    assert store.get("one") == b"x"


@pytest.mark.parametrize("status", [500, 503])
def test_what_passes_is_tried_again(proxy: Proxy, status: int) -> None:
    store = at(proxy, "s3://bucket-one/again")
    left = [status, status, "cut"]
    proxy.fault = lambda method, path, headers: left.pop() if left else None
    store.put("one", b"x")
    assert store.get("one") == b"x"
    assert not left


def test_what_is_wrong_is_one_sentence_with_the_address(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    at(proxy, "s3://bucket-one/x").put("one", b"x")
    reader = at(proxy, "s3://bucket-one/x", access_key_id=READER, secret_access_key=READERS_SECRET)
    assert reader.get("one") == b"x"
    told = {}
    for what, store in {
        "denied": reader,
        "wrong secret": at(proxy, "s3://bucket-one/x", secret_access_key="wrong"),
        "unknown key": at(proxy, "s3://bucket-one/x", access_key_id="nobody"),
        "no bucket of that name": at(proxy, "s3://b/x"),
    }.items():
        with pytest.raises(OSError, match="s3://") as caught:
            store.put("two", b"x")
        told[what] = caught.value.strerror
        assert "two" in str(caught.value.filename)
        assert not any(secret in str(caught.value) for secret in (SECRET, READERS_SECRET, "wrong"))
    assert told == {
        "denied": "access is denied (credentials: --storage)",
        "wrong secret": "the secret does not belong to the access key (credentials: --storage)",
        "unknown key": "the access key is not known there (credentials: --storage)",
        "no bucket of that name": "this is no name of a bucket",
    }


def test_a_server_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.durable.object_store._RETRY", {"max_retries": 0})
    options = {**OWNER, "endpoint": "http://127.0.0.1:1"}
    with pytest.raises(OSError, match="the store cannot be reached"):
        store_of("s3://bucket-one/x", Storage(options)).put("one", b"x")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hdfs://host/x", "there is no store of the kind hdfs"),
        ("file:///data", "there is no store of the kind file"),
        ("s3:///", "this address has no bucket"),
        ("s3://key:secret@bucket/x", "an address must have no credentials in it"),
    ],
)
def test_addresses_that_cannot_be_are_refused(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        store_of(address)
    assert "secret" not in caught.value.message


def test_options_are_checked_and_secrets_do_not_travel() -> None:
    with pytest.raises(UsageError, match="nonsense"):
        store_of("s3://bucket-one/x", storage_of(["nonsense=1"]))
    with pytest.raises(UsageError, match="a name and a value are needed") as caught:
        storage_of(["=hidden"])
    assert "hidden" not in str(caught.value)
    storage = Storage({**OWNER, "session_token": "t", "endpoint": "http://e"})
    sent = pickle.loads(pickle.dumps(storage))
    assert sent.options == {"region": "us-east-1", "allow_http": "true", "endpoint": "http://e"}
    assert "secret" not in repr(storage).replace("secret_access_key", "")
