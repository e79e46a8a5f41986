"""What is under way ends within a second when its user is not let in any more; admins list and end it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as open_socket

from cumulus import errors
from cumulus.server.access import Role, UserFile
from support.http_server import Running, running
from support.tiers import sampled

SLOW = "SELECT COUNT(*) FROM range(100000000) a, range(100000) b WHERE a.range * b.range % 7 = 3"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def users(server: Running) -> UserFile:
    made = UserFile(server.site.settings.data)
    made.add("root", Role.ADMIN)
    return made


class Follower:
    """Something that is under way in a thread of its own: how it begins, what it gets, and how and when it ends."""

    def __init__(self, run: Callable[[Follower], None]) -> None:
        self.begun, self.ended_at, self.why = threading.Event(), 0.0, ""
        self.got: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()
        assert self.begun.wait(20)

    def _run(self, run: Callable[[Follower], None]) -> None:
        try:
            run(self)
        except (httpx.HTTPError, ConnectionClosed) as problem:
            self.why = str(problem)
        self.ended_at = time.monotonic()

    def ended(self, within_s: float = 10) -> float:
        self._thread.join(within_s)
        assert not self._thread.is_alive(), "it goes on"
        return self.ended_at


def events(server: Running, token: str) -> Callable[[Follower], None]:
    def run(it: Follower) -> None:
        with server.http(token) as http, http.stream("GET", "/v1/views/sales/changes") as answer:
            for line in answer.iter_lines():
                it.got.append(line)
                it.begun.set()

    return run


def socket(server: Running, path: str, headers: dict[str, str], first: str = "") -> Callable[[Follower], None]:
    def run(it: Follower) -> None:
        address = server.address.replace("http", "ws") + path
        with open_socket(address, additional_headers=headers) as opened:
            if first:
                opened.send(first)
            while True:
                it.got.append(opened.recv(timeout=20))
                it.begun.set()

    return run


def query(server: Running, token: str) -> Callable[[Follower], None]:
    def run(it: Follower) -> None:
        with server.http(token) as http:
            threading.Timer(0.5, it.begun.set).start()
            answer = http.post("/v1/query", json={"sql": SLOW})
            it.why = f"{answer.status_code} {answer.text}"

    return run


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def followers(server: Running, token: str) -> dict[str, Follower]:
    """Begin everything that a user may have under way."""
    with server.http() as http:
        cookie = http.post("/v1/login", json={"token": token}).headers["set-cookie"].partition(";")[0]
    kinds = {
        "events": events(server, token),
        "socket": socket(server, "/v1/views/sales/changes", bearer(token)),
        "arrow": socket(server, "/v1/views/days/changes?format=arrow&snapshot=true", bearer(token)),
        "query": query(server, token),
    }
    with suppress(ModuleNotFoundError):
        import perspective  # noqa: F401

        kinds["page"] = socket(server, "/page/state", {"Cookie": cookie})
        kinds["page's view"] = socket(server, "/page/views", {"Cookie": cookie}, '{"open": "sales"}')
        kinds["page's cube"] = socket(server, "/page/cubes", {"Cookie": cookie}, '{"open": {"cube": "sales"}}')
    return {name: Follower(run) for name, run in kinds.items()}


def demoted(users: UserFile) -> None:
    text = users.path.read_text("utf-8")
    users.path.write_text(text.replace('role = "writer"', 'role = "reader"'), "utf-8")


def confined(users: UserFile) -> None:
    text = users.path.read_text("utf-8")
    users.path.write_text(text.replace('role = "writer"', 'role = "writer"\nviews = ["days"]'), "utf-8")


def given_another_token(users: UserFile) -> None:
    users.remove("will")
    users.add("will", Role.WRITER)


REVOKED: dict[str, Callable[[UserFile], Any]] = {
    "the user is removed": lambda users: users.remove("will"),
    "the role is another": demoted,
    "the views are others": confined,
    "the token is another": given_another_token,
    "the file is removed": lambda users: users.path.unlink(),
}


@pytest.mark.parametrize("how", sampled(REVOKED, of=3))
def test_all_that_a_token_has_open_ends_within_a_second(how: str, server: Running, users: UserFile) -> None:
    token, other = users.add("will", Role.WRITER), users.add("rita", Role.READER)
    open_ = followers(server, token)
    stays = Follower(events(server, other))
    REVOKED[how](users)
    at = time.monotonic()
    late = {name: each.ended() - at for name, each in open_.items()}
    if how == "the file is removed":
        stays.ended()
    else:
        count = len(stays.got)
        server.keeper.write(_row(1)).result(10)
        until = time.monotonic() + 10
        while len(stays.got) == count:
            assert time.monotonic() < until, "others go on"
            time.sleep(0.01)
    # A second, and what a busy machine takes besides.
    assert max(late.values()) < 4, late
    assert open_["query"].why.startswith(("401", "503")), open_["query"].why
    assert "401" in open_["query"].why or "503" in open_["query"].why
    assert any("event: error" in line for line in open_["events"].got)
    told = json.loads(open_["socket"].got[-1])
    assert told["error"] in ("AccessError", "ClosedError"), told
    assert not server.site.open.listed() or how != "the file is removed"


def _row(number: int) -> Any:
    from cumulus.hosts import TableRows, WriteRequest

    return WriteRequest((TableRows("insert", "orders", [(number, "ASIA", 1, None)]),))


def test_a_query_that_is_ended_stops_in_the_database(server: Running, users: UserFile) -> None:
    token = users.add("rita", Role.READER)
    running_query = Follower(query(server, token))
    users.remove("rita")
    running_query.ended()
    until = time.monotonic() + 5
    while any(each.name.startswith("AnyIO") and _is_in_duckdb(each) for each in threading.enumerate()):
        assert time.monotonic() < until, "it computes on, long before statement_s is over"
        time.sleep(0.05)


def _is_in_duckdb(thread: threading.Thread) -> bool:
    import sys

    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name in ("_asked", "_ask"):
            return True
        frame = frame.f_back
    return False


def test_who_logs_out_has_no_socket_any_more(server: Running, users: UserFile) -> None:
    token = users.add("rita", Role.READER)
    with server.http() as http, server.http() as other:
        cookie = http.post("/v1/login", json={"token": token}).headers["set-cookie"].partition(";")[0]
        second = other.post("/v1/login", json={"token": token}).headers["set-cookie"].partition(";")[0]
        first = Follower(socket(server, "/v1/views/sales/changes", {"Cookie": cookie}))
        stays = Follower(socket(server, "/v1/views/sales/changes", {"Cookie": second}))
        assert http.post("/v1/logout").status_code == 204
        first.ended()
        assert not stays.ended_at
        other.post("/v1/logout")
        stays.ended()


def test_streams_of_everybody_end_when_there_are_users(server: Running) -> None:
    open_ = Follower(events(server, ""))
    UserFile(server.site.settings.data).add("ann", Role.ADMIN)
    open_.ended()


def test_an_admin_ends_the_streams_that_hold_a_view(server: Running, users: UserFile) -> None:
    admin, token = users.add("ann", Role.ADMIN), users.add("rita", Role.READER)
    open_ = followers(server, token)
    open_["query"].why = ""
    with server.http(admin) as http, server.http(token) as reader:
        drop = {"sql": "DROP VIEW sales"}
        refused = http.post("/v1/execute", json=drop)
        assert refused.status_code == 400
        assert refused.json()["error"] == "SubscribedError"
        assert "sales has subscribers: rita" in refused.json()["message"]
        assert "cumulus serve streams ADDRESS --end --view sales" in refused.json()["hint"]
        for request in (reader.get("/v1/streams"), reader.post("/v1/streams/end", json={"view": "sales"})):
            assert request.status_code == 403
        listed = http.get("/v1/streams").json()["streams"]
        following = {each["id"]: each for each in listed if each["view"] == "sales"}
        assert {each["user"] for each in following.values()} == {"rita"}
        assert {each["kind"] for each in following.values()} == {"stream", "socket"}
        wrong: tuple[Any, ...] = ({}, [], {"id": "x"}, {"id": True}, {"who": "rita"}, {"view": None})
        for body in wrong:
            assert http.post("/v1/streams/end", json=body).status_code == 400, body
        assert http.post("/v1/streams/end", json={"view": "sales", "user": "ann"}).json() == {"ended": []}
        ended = http.post("/v1/streams/end", json={"view": "SALES"}).json()["ended"]
        assert sorted(ended) == sorted(following)
        for name in ("events", "socket"):
            open_[name].ended()
        told = json.loads(open_["socket"].got[-1])
        assert (told["error"], "ann has ended this" in told["message"]) == ("AccessError", True)
        until = time.monotonic() + 10
        while (answer := http.post("/v1/execute", json=drop)).status_code == 400:
            assert time.monotonic() < until, answer.text
        assert answer.status_code == 200
        assert not open_["arrow"].ended_at, "streams of other views go on"
        (query_id,) = [each["id"] for each in http.get("/v1/streams").json()["streams"] if "query" in each["address"]]
        assert http.post("/v1/streams/end", json={"id": query_id}).json() == {"ended": [query_id]}
        open_["query"].ended()
        assert open_["query"].why.startswith("403"), open_["query"].why


def test_the_client_is_told_why(server: Running, users: UserFile) -> None:
    token = users.add("rita", Role.READER)
    server.keeper.write(_row(1)).result(10)
    with server.client(token) as client:
        changes = client.changes("sales", snapshot=True)
        next(iter(changes))
        users.remove("rita")
        with pytest.raises(errors.AccessError, match="not known any more"):
            for _ in changes:
                pass
