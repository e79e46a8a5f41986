"""The file of users: whatever happens to it, before the start or while the server runs, nobody comes in by that."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cumulus import errors
from cumulus.server.access import Role, UserFile
from cumulus.server.http.entrance.listening import check_exposure
from cumulus.server.settings import ServerSettings
from support.http_server import running
from support.tiers import one_mode_each


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def replaced_by_a_link(path: Path, to: str) -> None:
    path.unlink()
    path.symlink_to(to)


def given_to_another(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, 65534, 65534)


def in_a_folder_of_another(path: Path) -> None:
    given_to_another(path.parent)


def edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    return edit


def with_another(lines: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text("utf-8") + lines, "utf-8")


HARMS: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "without users": lambda path: path.write_text("# none\n"),
    "half written": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "not utf-8": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
    "nested without end": lambda path: path.write_bytes(b"users = " + b"[" * 100_000),
    "huge": lambda path: os.truncate(path, 1 << 34),
    "a folder": replaced_by_a_folder,
    "a pipe": replaced_by_a_pipe,
    "a link to nothing": lambda path: replaced_by_a_link(path, "nothing"),
    "a link to itself": lambda path: replaced_by_a_link(path, path.name),
    "a link to a device": lambda path: replaced_by_a_link(path, "/dev/zero"),
    "readable for all": lambda path: path.chmod(0o644),
    "writable for its group": lambda path: path.chmod(0o620),
    "another's": given_to_another,
    "in a folder of another": in_a_folder_of_another,
    "in a folder that all may write": lambda path: path.parent.chmod(0o777),
    "an unknown role": edited('role = "reader"', 'role = "king"'),
    "a misspelt word": edited("views = ", "view = "),
    "views as a text": edited('views = ["total"]', 'views = "total"'),
    "no token": edited("token_sha256", "token"),
    "a short hash": lambda path: path.write_text(path.read_text("utf-8").replace('sha256 = "', 'sha256 = "00')),
    "an empty hash": with_another('\n[users.eve]\nrole = "admin"\ntoken_sha256 = ""\n'),
    "something else beside users": with_another("\n[open]\nall = true\n"),
}


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of users in order, to copy."""
    folder = tmp_path_factory.mktemp("users")
    users = UserFile(folder)
    (folder / "ann").write_text(users.add("ann", Role.ADMIN))
    (folder / "dora").write_text(users.add("dora", Role.READER, ("total",)))
    return folder


@pytest.mark.parametrize(("harm", "when"), one_mode_each(HARMS, ("before the start", "while it runs"), of=3))
def test_a_list_that_cannot_be_used_lets_nobody_in(
    harm: str, when: str, mended: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cumulus.server")
    data, is_early = tmp_path / "data", when == "before the start"
    shutil.copytree(mended, data)
    path, whole = data / "users.toml", (data / "users.toml").read_bytes()
    data.chmod(0o700)
    if is_early:
        HARMS[harm](path)
    with running(tmp_path) as server, server.http((mended / "ann").read_text()) as ann, server.http() as stranger:
        if not is_early:
            assert ann.get("/v1/views").status_code == 200
            assert stranger.get("/readyz").status_code == 200
            HARMS[harm](path)
        for http in (ann, stranger):
            for way, at in (("GET", "/v1/views"), ("GET", "/v1/me"), ("POST", "/v1/tables/orders/rows")):
                told = http.request(way, at, json=[] if way == "POST" else None)
                assert told.status_code == 503, told.text
                assert "nobody is let in" in told.json()["message"]
                assert str(tmp_path) not in told.text, "no client is told a path"
        assert stranger.post("/v1/login", json={"token": "x"}).status_code == 503
        assert stranger.get("/healthz").status_code == 200
        ready = stranger.get("/readyz")
        assert (ready.status_code, "the list of users" in ready.json()["problem"]) == (503, True)
        assert str(tmp_path) not in ready.text
        (line,) = caplog.messages
        assert line.startswith(f"nobody is let in: {path}")
        assert line.endswith((".", str(path), str(data))), "it says what to do"

        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        data.chmod(0o700)
        os.chown(data, os.geteuid(), os.getegid())
        path.write_bytes(whole)
        path.chmod(0o600)
        assert ann.get("/v1/views").status_code == 200
        assert stranger.get("/v1/views").status_code == 401
        assert stranger.get("/readyz").status_code == 200
        assert "in order again" in caplog.messages[-1]


def test_the_last_user_who_goes_leaves_the_door_closed(tmp_path: Path) -> None:
    users = UserFile(tmp_path / "data")
    users.add("ann", Role.ADMIN)
    users.remove("ann")
    with running(tmp_path) as server, server.http() as http:
        assert http.get("/v1/views").status_code == 503
        token = users.add("zoe", Role.READER)
        assert server.http(token).get("/v1/views").status_code == 200


def test_a_folder_of_before_is_marked_when_a_server_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    UserFile(data).add("ann", Role.ADMIN)
    (data / "users.required").unlink()
    with running(tmp_path):
        pass
    (data / "users.toml").unlink()
    with running(tmp_path) as server, server.http() as http:
        assert http.get("/v1/views").status_code == 503
    (data / "users.required").unlink()
    with running(tmp_path) as server, server.http() as http:
        assert http.get("/v1/views").status_code == 200, "whoever removes both has no users any more"


def test_new_users_are_known_where_nobody_had_a_name(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.http() as http:
        assert http.get("/v1/views").status_code == 200
        token = UserFile(tmp_path / "data").add("ann", Role.ADMIN)
        assert http.get("/v1/views").status_code == 401
        assert server.http(token).get("/v1/views").status_code == 200


def test_a_change_that_leaves_size_and_time_is_seen(tmp_path: Path) -> None:
    users = UserFile(tmp_path)
    token = users.add("ann", Role.READER, ("a",))
    before = users.path.stat()
    for name in "bcdefgh":
        text = users.path.read_text("utf-8")
        users.path.write_text(text.replace(f'"{chr(ord(name) - 1)}"', f'"{name}"'), "utf-8")
        os.utime(users.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        found = users.user_with(token)
        assert found is not None
        assert found.views == (name,)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_a_private_key_is_private(tmp_path: Path) -> None:
    import subprocess

    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True)
    settings = ServerSettings(tmp_path, certificate=certificate, private_key=key)
    check_exposure(settings)
    key.chmod(0o604)
    with pytest.raises(errors.UsageError, match="other users can read or change the private key"):
        check_exposure(settings)
    key.chmod(0o600)
    whole = key.read_bytes()
    locked = ["openssl", "ec", "-in", str(key), "-out", str(tmp_path / "locked.pem"), "-aes128", "-passout", "pass:x"]
    subprocess.run(locked, check=True, capture_output=True)
    for harmed in (b"", whole[:60], (tmp_path / "locked.pem").read_bytes()):
        key.write_bytes(harmed)
        with pytest.raises(errors.UsageError, match=r"TLS cannot be had|has a password"):
            check_exposure(settings)
    key.unlink()
    with pytest.raises(errors.UsageError, match="No such file"):
        check_exposure(settings)
