"""Who may connect, what becomes of garbage, and what of a link that is lost."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable

import pytest

from cumulus.errors import UsageError
from cumulus.machine import Lost, Received
from cumulus.transport.framing import FrameKind, header
from cumulus.transport.greeting import Credentials, Greeting, RefusalError, RefusalPolicy
from support.drivers import Listener, reconnect_all, refusal_by, until
from support.relay import ListCodec, machine_of, make

HELLO = json.dumps({"name": "zoe", "program": b"p".hex(), "incarnation": 1, "nonce": ""}).encode()


def message(*parts: object) -> bytes:
    return frame(FrameKind.MESSAGE, b"".join(ListCodec().encode(list(parts))))


def frame(kind: int, payload: bytes, incarnation: int = 1) -> bytes:
    return header(kind, len(payload), incarnation) + payload


async def answer_to(port: int, data: bytes) -> bytes:
    """Send bytes to a port; return all that comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


GARBAGE = {
    "another protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "does not begin as a frame does, but with b'GE'"),
    "another version": (b"cu\x02" + bytes(13), "frames of version 2 have come; this is version 1"),
    "a great length": (struct.pack("<2sBBIQ", b"cu", 1, 1, 2**32 - 1, 1), "a frame of 4,294,967,295 bytes"),
    "a message at once": (frame(FrameKind.MESSAGE, b"{}"), "a frame of kind 0 has come before both sides knew"),
    "no greeting": (frame(FrameKind.HELLO, b"[1, 2]"), "a greeting without name, program, incarnation, nonce"),
    "deep brackets": (frame(FrameKind.HELLO, b"[" * 4000), "a greeting without name"),
    "a name of nobody": (frame(FrameKind.HELLO, HELLO.replace(b"zoe", b"\\ud800")), "with a name that is none"),
    "a name of two lines": (frame(FrameKind.HELLO, HELLO.replace(b"zoe", b"z\\noe")), "with a name that is none"),
    "a long name": (frame(FrameKind.HELLO, HELLO.replace(b"zoe", b"z" * 201)), "with a name that is none"),
    "a refusal": (frame(FrameKind.REFUSAL, b'{"reason": "x\\ny", "outlook": "never"}') + b"GET / HTTP/1.1\r\n", ""),
    "no secret": (frame(FrameKind.HELLO, HELLO) + frame(FrameKind.PROOF, bytes(32)), "zoe does not know the secret"),
}


@pytest.mark.parametrize(("data", "reason"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_closes_the_connection_with_one_reason(data: bytes, reason: str) -> None:
    async def go() -> None:
        nodes = {name: Listener(name, make(name, None), b"secret") for name in "abc"}
        port = (await reconnect_all(nodes))["b"][1]
        await answer_to(port, data)
        if reason:
            await until(lambda: bool(nodes["b"].notes), nodes.values())
            assert reason in nodes["b"].notes[0]
        assert len(nodes["b"].notes) == bool(reason)
        assert nodes["b"].links_lost == []
        nodes["a"].ask(["token", "b c"])  # nobody else is disturbed
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_silence_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.transport.connections.GREETING_SECONDS", 0.05)

    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        port = (await reconnect_all(nodes))["b"][1]
        assert await answer_to(port, b"cu") == b""
        assert "it has not said within 0.05 s who it is" in nodes["b"].notes[0]
        await nodes["b"].end()

    asyncio.run(go())


@pytest.mark.slow
def test_a_member_may_take_seconds_to_say_who_it_is() -> None:
    """On a busy machine it does."""

    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        port = (await reconnect_all(nodes))["b"][1]
        _, writer = await connect_as("client", port, pause=5.5)
        assert nodes["b"].notes == []
        writer.close()
        await nodes["b"].end()

    asyncio.run(go())


def test_many_strangers_and_clients_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is sent away, not the newest, which may be a member."""
    monkeypatch.setattr("cumulus.transport.links._MOST_STRANGERS", 3)
    monkeypatch.setattr("cumulus.transport.links._MOST_CLIENTS", 1)

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None)) for name in "abc"}
        port = (await reconnect_all(nodes))["b"][1]
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        async with asyncio.timeout(10):
            assert await asyncio.gather(*(reader.read() for reader, _ in strangers[:5])) == [b""] * 5
            _, client = await connect_as("client", port)
            assert await strangers[5][0].read() == b""
        for _, writer in strangers:
            writer.close()
        with pytest.raises(RefusalError, match="b refuses: b has 1 clients") as raised:
            await connect_as("another", port)
        assert raised.value.outlook is RefusalPolicy.AGAIN
        nodes["a"].ask(["token", "b c"])
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        client.close()
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


REFUSED = {
    "another program": ("c", b"q", "c runs another program than b", RefusalPolicy.NEVER),
    "another program, a client": ("zoe", b"q", "zoe runs another program than b", RefusalPolicy.CHANGED),
    "a name that is its own": ("b", b"p", "b takes no connection from 'b'", RefusalPolicy.NEVER),
    "the supervisor": ("supervisor", b"p", "b takes no connection from 'supervisor'", RefusalPolicy.NEVER),
    "a wrong direction": ("c", b"p", "b takes no connection from 'c'", RefusalPolicy.NEVER),
}


@pytest.mark.parametrize(("name", "program", "reason", "outlook"), REFUSED.values(), ids=REFUSED)
def test_who_has_proved_who_it_is_is_told_why_it_may_not_connect(
    name: str, program: bytes, reason: str, outlook: RefusalPolicy
) -> None:
    async def go() -> None:
        nodes = {each: Listener(each, make(each, None), b"secret") for each in "abc"}
        port = (await reconnect_all(nodes))["b"][1]
        with pytest.raises(RefusalError, match=f"b refuses: {reason}") as raised:
            await connect_as(name, port, b"secret", program=program)
        assert raised.value.outlook is outlook
        noted = [True] if outlook is RefusalPolicy.NEVER else []
        assert [reason in note for note in nodes["b"].notes] == noted
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_before_its_proof_a_connection_learns_and_changes_nothing() -> None:
    """It says to be a member whose link is up, of another program or incarnation, and does not know the secret."""

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None), b"secret") for name in "abc"}
        port = (await reconnect_all(nodes))["b"][1]
        nodes["a"].ask(["token", "b c"])
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        hello = HELLO.replace(b"zoe", b"a")
        for said in (hello, hello.replace(b'"70"', b'"71"'), hello.replace(b": 1", b": 9"), *[hello] * 5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(FrameKind.HELLO, said))
            head = await reader.readexactly(16)
            *_, length, incarnation = struct.unpack("<ccBBIQ", head)
            assert incarnation == 0
            assert set(json.loads(await reader.readexactly(length))) == {"name", "nonce"}
            writer.write(frame(FrameKind.PROOF, bytes(32)))
            assert b"a does not know the secret" in await reader.read()
            writer.close()
        nodes["a"].ask(["token", "b c"])
        await until(lambda: nodes["c"].said == [["home", "c"]] * 2, nodes.values())
        assert [each.links_lost for each in nodes.values()] == [[], [], []]
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_a_proof_that_was_heard_proves_nothing_again() -> None:
    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None), b"secret")}
        port = (await reconnect_all(nodes))["b"][1]
        heard: list[bytes] = []
        _, writer = await connect_as("client", port, b"secret", heard=heard)
        answer = await answer_to(port, b"".join(heard))
        assert b"client does not know the secret" in answer
        writer.close()
        await nodes["b"].end()

    asyncio.run(go())


def test_a_hundred_strangers_are_two_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at once, and one for all others of the next minute."""
    monkeypatch.setattr("cumulus.transport.greeting.NOTE_SECONDS", 0.5)

    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        port = (await reconnect_all(nodes))["b"][1]
        for _ in range(100):
            await answer_to(port, b"GET / HTTP/1.1\r\n")
        await until(lambda: len(nodes["b"].notes) > 1)
        told = len(nodes["b"].notes)
        assert told < 20
        assert "more connections were closed meanwhile; of the last one: the conn" in nodes["b"].notes[-1]
        await asyncio.sleep(1.2)
        await answer_to(port, b"GET / HTTP/1.1\r\n")
        assert nodes["b"].notes[-1].startswith("the connection with 127.0.0.1")
        await nodes["b"].end()

    asyncio.run(go())


def test_halves_of_clients_take_so_much_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps most goes; a client that sends a large message whole is heard."""
    monkeypatch.setattr("cumulus.transport.links._HALVES_BYTES", 3 << 20)

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None)) for name in "ab"}
        port = (await reconnect_all(nodes))["b"][1]
        half = header(FrameKind.MESSAGE, 8 << 20, 1) + bytes(1_500_000)
        clients = []
        for number in range(4):
            reader, writer = await connect_as(f"client{number}", port)
            writer.write(half)
            await writer.drain()
            clients.append((reader, writer))
        async with asyncio.timeout(10):
            while sum(reader.at_eof() for reader, _ in clients) < 2:
                await asyncio.sleep(0.01)
        assert nodes["b"].driver.links._links.keys() >= {"a"}
        held = [each.connection.bytes_kept for each in nodes["b"].driver.links._links.values() if each.connection]
        assert sum(held) <= 3 << 20
        nodes["a"].ask(["token", "b"])
        await until(lambda: nodes["b"].said == [["home", "b"]], nodes.values())
        for _, writer in clients:
            writer.close()
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_a_client_can_take_no_name_of_a_member() -> None:
    """Members have a secret of their own."""

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None), b"members", b"clients") for name in "ab"}
        addresses = {name: await each.driver.links.listen() for name, each in nodes.items()}
        for each in nodes.values():
            each.task = asyncio.get_running_loop().create_task(each.driver.run())
        port = addresses["b"][1]
        with pytest.raises(RefusalError, match="b refuses: b does not know the others yet") as raised:
            await connect_as("a", port, b"clients", incarnation=0)  # as long as nobody is a member
        assert raised.value.outlook is RefusalPolicy.AGAIN
        nodes["a"].driver.reconnect_all(1, addresses)  # before b is told that a is a member
        await asyncio.sleep(0.05)  # long enough to be refused a few times
        nodes["b"].driver.reconnect_all(1, addresses)
        for name, secret in (("a", b"clients"), ("client", b"members"), ("b", b"members")):
            with pytest.raises(RefusalError, match=f"b refuses: {name} does not know the secret"):
                await connect_as(name, port, secret)
        _, writer = await connect_as("client", port, b"clients")
        nodes["a"].ask(["token", "b"])
        await until(lambda: nodes["b"].said == [["home", "b"]], nodes.values())
        writer.close()
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


async def connect_as(
    name: str,
    port: int,
    secret: bytes | None = None,
    *,
    pause: float = 0.0,
    program: bytes = b"p",
    incarnation: int = 1,
    heard: list[bytes] | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Greet as a machine does, after a pause."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(pause)
    greeting = Greeting(Credentials(name, program, secret), incarnation, "b", lambda _: None)
    frames = greeting.begin()
    while True:
        for kind, payload in frames:
            writer.write(frame(kind, payload))
            if heard is not None:
                heard.append(frame(kind, payload))
        if greeting.is_over:
            return reader, writer
        _, _, _, kind, length, _ = struct.unpack("<ccBBIQ", await reader.readexactly(16))
        frames = greeting.take(kind, await reader.readexactly(length))


LATER = {
    "garbage": (lambda: b"x" * 16, "does not begin as a frame does"),
    "an old incarnation": (lambda: frame(FrameKind.MESSAGE, b"", 0), "a frame of kind 0 and incarnation 0"),
    "a second greeting": (lambda: frame(FrameKind.HELLO, HELLO), "a frame of kind 1 and incarnation 1 has come"),
    "a message in parts": (lambda: frame(FrameKind.PART, b""), "a frame of kind 4 and incarnation 1 has come"),
    "a message of others": (lambda: message("nonsense", ""), "b: list from client is not for this machine"),
    "no message": (lambda: frame(FrameKind.MESSAGE, b"..?"), "no message: b'..?'"),
}


@pytest.mark.parametrize(("data", "reason"), LATER.values(), ids=LATER)
def test_garbage_of_a_peer_loses_its_link(data: Callable[[], bytes], reason: str) -> None:
    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        port = (await reconnect_all(nodes))["b"][1]
        reader, writer = await connect_as("client", port)
        writer.write(message("token", "client"))
        expected = message("token", "")
        assert await reader.readexactly(len(expected)) == expected
        writer.write(data())
        await until(lambda: Lost("client") in machine_of(nodes["b"].spec).told)
        assert reason in nodes["b"].notes[0]
        assert nodes["b"].links_lost == [], "clients come and go"
        writer.close()
        _, writer = await connect_as("client", port)  # a client may come again
        writer.close()
        await nodes["b"].end()

    asyncio.run(go())


@pytest.mark.parametrize("mine", [b"other", None])
def test_a_peer_with_another_secret_ends_who_has_connected(mine: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it has insisted for a while."""
    monkeypatch.setattr("cumulus.transport.links.INSIST_SECONDS", 0.1)

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None), mine if name == "a" else b"secret") for name in "ab"}
        await reconnect_all(nodes)
        assert "b refuses: a does not know the secret" in (await refusal_by(nodes["a"])).message
        assert "a does not know the secret" in nodes["b"].notes[0]
        await nodes["b"].end()

    asyncio.run(go())


def test_a_stranger_at_the_port_of_a_machine_that_has_died_ends_nobody() -> None:
    """It refuses who connects, for good, and proves nothing; the machine comes back elsewhere, in a new incarnation."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(FrameKind.REFUSAL, b'{"reason": "go", "outlook": "never"}'))
        writer.close()

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None), b"secret") for name in "ab"}
        addresses = {name: await each.driver.links.listen() for name, each in nodes.items()}
        stranger = await asyncio.start_server(refuse, "127.0.0.1")
        taken = stranger.sockets[0].getsockname()
        for each in nodes.values():
            each.task = asyncio.get_running_loop().create_task(each.driver.run())
        nodes["a"].driver.reconnect_all(1, {**addresses, "b": taken})
        await until(lambda: bool(nodes["a"].notes), nodes.values())
        assert nodes["a"].notes == ["the connection with b was closed: b refuses: go"]
        for each in nodes.values():
            each.driver.reconnect_all(2, addresses)
        nodes["a"].ask(["token", "b"])
        await until(lambda: nodes["b"].said == [["home", "b"]], nodes.values())
        stranger.close()
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_a_link_comes_back_in_a_new_incarnation_only() -> None:
    async def go() -> None:
        nodes = {name: Listener(name, make(name, None)) for name in "ab"}
        addresses = await reconnect_all(nodes)
        nodes["a"].ask(["token", "b"])
        await until(lambda: nodes["b"].said == [["home", "b"]])
        machines = {name: machine_of(each.spec) for name, each in nodes.items()}
        nodes["a"].cut("b")
        await until(lambda: Lost("b") in machines["a"].told and Lost("a") in machines["b"].told)
        for name in nodes:
            nodes[name].ask(["token", "a b".replace(name, "").strip()])  # it goes nowhere
            nodes[name].ask(["count"])
        await until(lambda: all(each.said[-1:] == [["counts", {}, 0]] for each in nodes.values()))
        nodes["a"].driver.reconnect_all(2, addresses)
        nodes["a"].ask(["token", "b"])  # it waits for the other to get there
        await asyncio.sleep(0.05)  # long enough to be refused a few times
        nodes["b"].driver.reconnect_all(2, addresses)
        await until(lambda: nodes["b"].said.count(["home", "b"]) == 2)
        assert ["home", "a"] not in nodes["a"].said
        assert machines["a"].told.count(Lost("b")) == machines["b"].told.count(Lost("a")) == 1
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


def test_a_client_that_does_not_read_stops_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read from no more; what it has asked for waits, up to a bound."""
    monkeypatch.setattr("cumulus.transport.links._CLIENT_BYTES", 20_000_000)

    async def go() -> None:
        nodes = {name: Listener(name, make(name, None)) for name in "abc"}
        port = (await reconnect_all(nodes))["b"][1]
        links = nodes["b"].driver.links
        _, writer = await connect_as("client", port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(message("flood", "client", 1, 150, 100_000))
        await until(lambda: links.queued().get("client", 0) > 1_000_000, nodes.values())
        writer.write(message("token", "client"))
        nodes["a"].ask(["token", "b c"])
        await until(lambda: nodes["c"].said == [["home", "c"]], nodes.values())
        told = machine_of(nodes["b"].spec).told
        assert Received("client", ["token", "client"]) not in told
        assert not links.is_holding
        nodes["b"].ask(["flood", "client", 151, 150, 100_000])
        await until(lambda: Lost("client") in told, nodes.values())
        writer.close()
        for each in nodes.values():
            await each.end()

    asyncio.run(go())


@pytest.mark.slow
def test_a_client_that_reads_nothing_for_long_is_sent_away_and_a_member_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.transport.connections._CLIENT_MS", 1000)
    monkeypatch.setattr("cumulus.transport.links._CLIENT_BYTES", 1 << 30)

    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        driver = nodes["b"].driver
        address = await driver.links.listen()
        nodes["b"].task = asyncio.get_running_loop().create_task(driver.run())
        driver.reconnect_all(1, {"a": ("127.0.0.1", 1), "b": address})
        writers = [(await connect_as(name, address[1]))[1] for name in ("a", "client")]
        for name, writer in zip(("a", "client"), writers, strict=True):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            nodes["b"].ask(["flood", name, 1, 150, 100_000])
        told = machine_of(nodes["b"].spec).told
        await until(lambda: Lost("client") in told, nodes.values(), 60)
        assert Lost("a") not in told
        for writer in writers:
            writer.close()
        await nodes["b"].end()

    asyncio.run(go())


def test_a_peer_that_connects_anew_has_lost_its_link() -> None:
    async def go() -> None:
        nodes = {"b": Listener("b", make("b", None))}
        driver = nodes["b"].driver
        address = await driver.links.listen()
        nodes["b"].task = asyncio.get_running_loop().create_task(driver.run())
        driver.reconnect_all(1, {"a": ("127.0.0.1", 1), "b": address})
        reader, writer = await connect_as("a", address[1])
        for _ in range(2):
            with pytest.raises(RefusalError, match="b refuses: b had a link to a already") as raised:
                await connect_as("a", address[1])
            assert raised.value.outlook is RefusalPolicy.LOST
            assert await reader.read() == b"", "the first one is closed"
        await until(lambda: Lost("a") in machine_of(nodes["b"].spec).told, nodes.values())
        assert machine_of(nodes["b"].spec).told == [Lost("a")]
        assert nodes["b"].notes == []
        writer.close()
        await nodes["b"].end()

    asyncio.run(go())


def test_only_this_computer_may_connect_without_a_secret() -> None:
    async def go() -> None:
        with pytest.raises(UsageError, match="can be reached from other machines, and there is no secret"):
            await Listener("a", make("a", None)).driver.links.listen("0.0.0.0")
        links = Listener("a", make("a", None), b"secret").driver.links
        await links.listen("0.0.0.0")
        await links.close()

    asyncio.run(go())
