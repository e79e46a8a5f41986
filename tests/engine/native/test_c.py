"""The kernel language as C does what it does as LLVM."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cumulus.compiler import compile_sql
from cumulus.m3 import parse
from cumulus_lab.bench.c import COMPILER, CompiledC
from engine.native.test_engine import CASES, EVENTS, NOT_NATIVE, PROGRAM, check
from fuzz.case import parse_case

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="no C compiler")


def test_all_layouts_of_keys_and_values() -> None:
    program = parse(PROGRAM)
    check(program, tuple((event,) for event in EVENTS), "event", CompiledC)


SOME = [each for each in CASES[::9] if each.stem not in NOT_NATIVE]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, ("event", "batch")[place % 2]) for place, path in enumerate(SOME)],
    ids=[path.stem for path in SOME],
)
def test_maps_are_the_interpreters(path: Path, mode: str) -> None:
    case = parse_case(path.read_text(encoding="utf-8"), mode)
    program = compile_sql(case.sql([name for name, _ in case.views]))
    check(program, case.transactions, mode, CompiledC)
