"""A publisher that hangs while another incarnation begins commits nothing when it wakes up."""

from __future__ import annotations

from pathlib import Path

import pytest

from cumulus.cluster.machine_tasks import CommitEpoch
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.cluster_settings import INCARNATION_FILE
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import equip_by_plan
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import GoOn
from cumulus.compiler import compile_sql
from cumulus.epochs.committed.manifest import Written, committed_epochs, read_manifest
from cumulus.errors import StoreError

PROGRAM = compile_sql(
    "CREATE TABLE a (x INT); CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM a GROUP BY x;", rely=False, enforced=False
)


def test_a_manifest_of_an_old_incarnation_is_not_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Home(PROGRAM, (), out, None, mode=Mode.EVENTUAL, nodes=1, switches=1) as home:
        number = home.settings.root / INCARNATION_FILE
        number.write_text("4")
        spec = equip_by_plan(PUBLISHER, {"home": home.settings.home}, home.settings, home.plan)
        commit = CommitEpoch(1, [Written(0, {}, {}, {}, snapshot=True)], {})
        number.write_text("5")
        with pytest.raises(StoreError, match="incarnation 5 has begun, and this is 4") as told:
            spec.perform(commit)
        assert told.value.hint == "Nothing is lost: the later one goes on."
        assert list(committed_epochs(out)) == []
        spec.perform(GoOn())
        spec.perform(commit)
        assert read_manifest(out, 1).incarnation == 5
        assert spec.log is not None
        spec.log.close()
        spec.perform.__self__.close()  # type: ignore[attr-defined]
