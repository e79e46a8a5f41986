"""`--dispatch`, `--arity` and `--gc`: what is refused, what a home keeps, and who may send what."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.cluster.messages import Deltas
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.central_options import CentralOptions, DispatchScheme, central_options
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.processes.cluster_settings import SETTINGS_FILE, read_settings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import fed_by
from cumulus.cluster.processes.resizing import open_home
from cumulus.cluster.protocols.central_messages import (
    Fetch,
    ForwardedBlock,
    Push,
    Put,
    PutsAsked,
    PutsTold,
    RootBlock,
    VersionCommit,
)
from cumulus.cluster.protocols.table import takes_of
from cumulus.cluster.senders import Senders
from cumulus.compiler import compile_sql
from cumulus.errors import CumulusError, MismatchError, UsageError
from cumulus.workloads import shop
from support.spread_cases import spread_program

WRONG: Sequence[tuple[Mode, dict[str, Any], str]] = (
    (Mode.EVENTUAL, {"dispatch": "directives"}, "--dispatch directives is of --mode central-target, not of --mode eve"),
    (Mode.FOUR_LOGS, {"dispatch": "directives"}, "is of --mode central-target"),
    (Mode.TICKS, {"gc": "poll"}, "--gc poll=16 is of --mode central-target"),
    (Mode.GATED, {"gc": "poll=3"}, "--gc poll=3 is of --mode central-target"),
    (Mode.CENTRAL_TARGET, {"dispatch": "tree"}, "there is no such scheme"),
    (Mode.CENTRAL_TARGET, {"arity": 2}, "--arity 2 is of --dispatch directives"),
    (Mode.CENTRAL_TARGET, {"dispatch": "directives", "arity": 0}, "--arity 0"),
    (Mode.CENTRAL_TARGET, {"dispatch": "directives", "arity": -2}, "--arity -2"),
    *(
        (Mode.CENTRAL_TARGET, {"gc": text}, "deltas are not dropped so")
        for text in ("often", "poll=", "poll=0", "poll=x", "epochs=2", "poll=-1", "poll=²", "=")
    ),
)


@pytest.mark.parametrize(("mode", "wanted", "told"), WRONG)
def test_what_is_not_taken_is_told_with_a_way_out(mode: Mode, wanted: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_cluster(spread_program("shop"), 2, 1, mode, central=central_options(**wanted))
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("command", ["cluster plan {file} --nodes 2", "cluster start {file} --home live --nodes 2"])
@pytest.mark.parametrize("options", ["--dispatch directives", "--gc poll", "--mode central-target --arity 3"])
def test_commands_refuse_alike_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.sql").write_text(shop.sql())
    with pytest.raises(CumulusError, match="is of --"):
        CliRunner().invoke(app, shlex.split(f"{command.format(file='shop.sql')} {options}"), catch_exceptions=False)
    assert not (tmp_path / "live" / "checkpoint" / SETTINGS_FILE).exists()


def test_other_hosts_refuse_them(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(shop.sql())
    words = f"run {tmp_path / 'shop.sql'} --from in --out out --host embedded"
    for option in ("--dispatch table", "--gc epochs", "--arity 2"):
        with pytest.raises(UsageError, match=f"{option.split()[0]} is of --host cluster, not embedded"):
            CliRunner().invoke(app, shlex.split(f"{words} {option}"), catch_exceptions=False)


# --- a home that has begun goes on with its own ---------------------------------------------------------------------

PROGRAM = compile_sql(shop.sql(), rely=False, enforced=False)


def kept(out: Path, **wanted: Any) -> CentralOptions:
    """Open a home, and return with what its machines begin."""
    given: dict[str, Any] = {"mode": Mode.CENTRAL_TARGET, "nodes": 3, "switches": 1} | wanted
    with open_home(PROGRAM, (), out, None, note=print, **given) as home:
        assert home.plan.central == home.settings.central
        found = read_settings(out / "checkpoint")
        assert found == home.settings
        return home.plan.central


def test_a_home_goes_on_with_its_own(tmp_path: Path) -> None:
    tree = DispatchScheme.DIRECTIVES
    assert kept(tmp_path / "new") == CentralOptions()
    out = tmp_path / "out"
    assert kept(out, dispatch="directives", arity=3, gc="poll=4") == CentralOptions(tree, 3, 4)
    assert kept(out) == CentralOptions(tree, 3, 4)
    assert kept(out, arity=5) == CentralOptions(tree, 5, 4)
    assert kept(out, gc="epochs") == CentralOptions(tree, 5, 0)
    assert kept(out, nodes=2) == CentralOptions(tree, 5, 0), "so it does with other nodes"
    assert kept(out, dispatch="table", gc="poll", nodes=2) == CentralOptions(poll_blocks=16)
    with pytest.raises(UsageError, match="--arity 2 is of --dispatch directives"):
        kept(out, arity=2, nodes=2)
    assert kept(out, nodes=2) == CentralOptions(poll_blocks=16)


def test_another_mode_is_told_as_that(tmp_path: Path) -> None:
    kept(tmp_path / "out", dispatch="directives")
    with pytest.raises(MismatchError, match=r"began with .*--mode central-target, and now it is .*--mode eventual"):
        kept(tmp_path / "out", mode=Mode.EVENTUAL)
    with pytest.raises(UsageError, match="--dispatch directives is of --mode central-target"):
        kept(tmp_path / "other", mode=Mode.EVENTUAL, dispatch="directives")
    assert not (tmp_path / "other" / "checkpoint").exists()


def test_a_home_of_an_earlier_release_has_a_dispatch_table(tmp_path: Path) -> None:
    kept(tmp_path / "out")
    path = tmp_path / "out" / "checkpoint" / SETTINGS_FILE
    found = json.loads(path.read_text())
    for name in ("dispatch", "arity", "gc"):
        del found[name]
    path.write_text(json.dumps(found))
    assert kept(tmp_path / "out") == CentralOptions()


# --- who may send, and who feeds whom ---------------------------------------------------------------------------------

NEW = {RootBlock, ForwardedBlock, PutsAsked, PutsTold, VersionCommit, Put, Fetch, Push, Deltas}
TAKEN = {
    "table": {"node1": {"switch0": {Put, Fetch}, "node0": {Push, Deltas}}, "switch0": {}},
    "directives": {"node1": {"switch0": {RootBlock}, "node0": {ForwardedBlock, Push, Deltas}}, "switch0": {}},
    "directives, poll": {
        "node1": {"switch0": {RootBlock, PutsAsked, VersionCommit}, "node0": {ForwardedBlock, Push, Deltas}},
        "switch0": {"node0": {PutsTold}},
    },
}


@pytest.mark.parametrize("way", TAKEN)
def test_messages_come_from_those_who_send_them(way: str) -> None:
    dispatch, _, gc = way.partition(", ")
    takes = takes_of(Mode.CENTRAL_TARGET, central_options(dispatch, gc=gc))
    for me, taken in TAKEN[way].items():
        senders = Senders(me, nodes=2, switches=1, takes=takes)
        for sender in ("switch0", "node0", "publisher", "client-1", "node2"):
            found = {kind for kind in NEW if senders.may_send(sender, object.__new__(kind))}
            assert found == taken.get(sender, set()), (me, sender)


def test_a_node_is_fed_by_its_parent(tmp_path: Path) -> None:
    """A node that does not read makes its parent read less from its own, and so on, up to the switch."""
    given: dict[str, Any] = {"mode": Mode.CENTRAL_TARGET, "nodes": 4, "switches": 1}
    fed = {}
    for dispatch in ("table", "directives"):
        with Home(PROGRAM, (), tmp_path / dispatch, None, dispatch=dispatch, **given) as home:
            fed[dispatch] = [fed_by(home.settings, f"node{node}") - {"switch0"} for node in range(4)]
    assert fed == {"table": [set()] * 4, "directives": [set(), {"node0"}, {"node0"}, {"node1"}]}
