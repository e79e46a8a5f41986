"""One script over one folder by the embedded host and by clusters: what both must say of every epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.versions import VersionOrder
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from cumulus.m3.program import Program
from cumulus.machine import Machine, Name
from cumulus.scalars.function_modules import functions_in
from support.cluster_world import run_cluster
from support.equal_outputs import difference

Shape: TypeAlias = tuple[int, int]
"""How many nodes, how many switches."""

SHAPES: tuple[Shape, ...] = ((2, 2), (3, 2), (4, 1), (1, 1))
OTHERS = (Mode.GATED, Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.TICKS)
CORRECTING = (Mode.EVENTUAL, Mode.FOUR_LOGS)
WAYS = [
    (shape, mode, order)
    for mode, orders in (
        *((mode, tuple(VersionOrder)) for mode in CORRECTING),
        *((mode, (VersionOrder.CLOCK,)) for mode in OTHERS),
    )
    for order in orders
    for shape in SHAPES
]
"""All ways to run a cluster; the order of versions says nothing where all is gated, or from one switch."""


class Compared:
    """A script over a folder, done by the embedded host; `check` does it by a cluster and compares.

    Parameters
    ----------
    script
        SQL, or M3 if it has no CREATE.
    sources
        As `--from` takes them.
    program
        The script as the embedded host runs it, if it has been compiled.
    """

    def __init__(
        self,
        script: str,
        sources: Sequence[str],
        place: Path,
        engine: str = "interpreter",
        functions: tuple[str, ...] = (),
        program: Program | None = None,
        **settings: Any,
    ) -> None:
        self.script = script
        self._place, self._engine, self._functions, self._settings = place, engine, functions, settings
        given = functions_in(functions)
        is_sql = "CREATE" in script
        compiled = partial(compile_sql, script, functions=given, rely=False) if is_sql else partial(parse, script)
        program = program or compiled()
        has_keys = any(relation.key for relation in program.relations)  # else there is nothing to enforce
        self.program: Program = compiled(enforced=False) if is_sql and has_keys else program
        self.sources: tuple[FolderSource, ...] = tuple(sources_from(list(sources), program))
        self.embedded = place / "embedded"
        self.epochs = self.run_embedded(self.embedded, program)
        self.counts: Counter[str] = Counter()
        """What clusters have done: rows of blocks and deltas that came in order and late, and messages."""

    def run_embedded(self, out: Path, program: Program) -> int:
        """Do all epochs by the embedded host; return the last one."""
        with EmbeddedRun(
            program,
            self.sources,
            out,
            make_engine=partial(make_engine, self._engine),
            functions=functions_in(self._functions),
            **self._settings,
        ) as run:
            for _ in run.steps():
                pass
            return run.epoch

    def check(
        self, shape: Shape, mode: Mode = Mode.EVENTUAL, order: VersionOrder = VersionOrder.CLOCK, **settings: Any
    ) -> None:
        """Do all epochs by a cluster; everything that it says is what the embedded host says."""
        nodes, switches = shape if not RULES[mode].needs_one_switch else (shape[0], 1)
        out = self._place / f"{nodes}-{switches}-{mode.value}-{order.value}"
        machines: dict[Name, Machine] = {}
        run = run_cluster(
            self.program,
            self.sources,
            out,
            nodes=nodes,
            switches=switches,
            mode=mode,
            machines=machines,
            **{"engine": self._engine, "functions": self._functions, "order": order.value, "block_rows": 7}
            | self._settings
            | settings,
        )
        found = difference(self.embedded, out)
        assert not found, f"{nodes} × {switches}, {mode}, {order}: {found}"
        self.counts["messages"] += run.messages
        for each in machines.values():
            if isinstance(each, ClusterNode) and each.protocol is not None:
                facts = each.protocol.facts()
                for name in ("rows_in_order", "rows_late", "deltas_in_order", "deltas_late"):
                    self.counts[name] += facts.get(name, 0)
