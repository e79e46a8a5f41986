"""`cumulus serve` from the command line: tokens, limits, and what is said when something is wrong."""

from __future__ import annotations

from pathlib import Path

from cumulus.server.access import UserFile
from support.command_line import cumulus


def test_tokens_are_made_listed_and_taken_away(tmp_path: Path) -> None:
    made = cumulus("serve", "token", "add", "ann", "--data", "d", "--views", "a, b", folder=tmp_path)
    user = UserFile(tmp_path / "d").user_with(made.stdout.strip())
    assert user is not None
    assert (user.name, user.role, user.views) == ("ann", "reader", ("a", "b"))
    again = cumulus("serve", "token", "add", "ann", "--data", "d", folder=tmp_path)
    assert (again.returncode, "there is a user ann already" in again.stderr) == (2, True)
    assert cumulus("serve", "token", "list", "--data", "d", folder=tmp_path).stdout == "ann  reader  a, b\n"
    assert cumulus("serve", "token", "remove", "ann", "--data", "d", folder=tmp_path).returncode == 0
    assert cumulus("serve", "token", "list", "--data", "d", folder=tmp_path).stdout == ""
    assert cumulus("serve", "token", "remove", "ann", "--data", "d", folder=tmp_path).returncode == 2


def test_what_is_wrong_is_said_before_anything_listens(tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    for words, told in (
        (["--limit", "speed=1"], "there is no limit 'speed'"),
        (["--limit", "statement_s=fast"], "gives statement_s no number"),
        (["--port", "99999"], "less than or equal to 65535"),
        (["--host", "0.0.0.0"], "there are no users"),
        (["--certificate", "c.pem"], "TLS needs a certificate and its private key"),
    ):
        ended = cumulus("serve", "s.sql", "--data", "d", "--port", "0", *words, folder=tmp_path)
        assert (ended.returncode, told in ended.stderr) == (2, True), ended.stderr
    assert "serve start" in cumulus("serve", "start", "--help", folder=tmp_path).stdout
    ended = cumulus("serve", "s.sql", "--data", "s.sql", "--port", "0", folder=tmp_path)
    assert (ended.returncode, "s.sql is a file" in ended.stderr) == (1, True), ended.stderr


def test_the_help_shows_all_options(tmp_path: Path) -> None:
    shown = cumulus("serve", "--help", folder=tmp_path).stdout
    assert "token" in shown
    for option in ("--data", "--host", "--port", "--sync", "--keep", "--memory", "--certificate", "--limit"):
        assert option in shown, option
