"""What a switch makes of files: net changes that, added up, are the tables."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cumulus.cluster.intake import Intake
from cumulus.compiler import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.arrivals import Progress, next_files
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.keeping import keeping_program
from cumulus.epochs.layouts import match_sources_to_tables
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import sources_from
from support.star_stream import STAR, Star
from support.tiers import examples


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("seed", range(examples(30)))
def test_net_changes_add_up_to_the_rows_that_a_bucket_keeps(seed: int, engine: str, tmp_path: Path) -> None:
    star = Star(tmp_path, seed)
    draw = random.Random(seed)
    for _ in range(6):
        star.write()
    program = compile_sql(STAR, rely=False, enforced=False)
    program, sources = match_sources_to_tables(program, sources_from([str(tmp_path)], program))
    make = partial(make_engine, engine)
    keeping, names = keeping_program(program)
    bucket = Bucket(keeping, BucketPlan(), 0, make)
    tables = frozenset(names)
    intake = Intake(program, tables, make)
    rows: dict[str, Counter[object]] = {name: Counter() for name in tables}
    done: Progress = {}
    epoch = 0
    while True:
        files, done = next_files(sources, done, 1)
        if not files:
            break
        epoch += 1
        packed = pack(read_files(program, sources, files), BucketPlan())
        outcome, nets = intake.apply(epoch, packed)
        expected = bucket.apply(epoch, packed)
        assert (outcome.applied, outcome.waiting, outcome.quarantine) == (
            expected.applied,
            expected.waiting,
            expected.quarantine,
        )
        for net in nets:
            for row, count in zip(net.rows.to_pylist(), net.counts.tolist(), strict=True):
                assert count
                rows[net.relation][tuple(row.values())] += count
        if draw.random() < 0.3:
            saved, intake = intake.save(), Intake(program, tables, make)
            intake.load(saved)
        for name, kept in names.items():
            there = {row: count for row, (count,) in bucket.engine.items(kept)}
            assert {row: count for row, count in rows[name].items() if count} == there
    assert epoch > 2
