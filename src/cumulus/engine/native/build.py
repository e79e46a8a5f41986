"""From a program to machine code in this process, by the shortest way that there is.

A program that this process has loaded is used again as it is: code holds no state. One whose code lies in the cache of
the user is only loaded. Any other is written and compiled, but for the libraries of maps that others have had before.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cumulus import version
from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.kernel.llvm import to_llvm
from cumulus.engine.native.kernel.loaded_code import LEVELS, Cache, Load, Loaded, MachineCode, default_folder, identity
from cumulus.engine.native.program import CodePlan, write_program
from cumulus.garbage_collection import gc_paused
from cumulus.m3.program import Program
from cumulus.scalars.user import UserFunction

Indexes = Mapping[str, Sequence[tuple[int, ...]]]
_MOST_RECENT = 64
_DEEPEST = 1 << 17
_recent: dict[str, tuple[CodePlan, MachineCode]] = {}
"""What this process has loaded, the oldest first."""
_shared: dict[str, MachineCode] = {}
"""Code that is no program's."""


def program_code(
    program: Program, functions: Mapping[str, UserFunction], indexes: Indexes, level: int, load: Load | None
) -> tuple[CodePlan, Loaded]:
    """Return a program's code.

    Parameters
    ----------
    indexes
        As for `cumulus.engine.native.program.write_program`.
    level
        How far to optimise at least: `cumulus.engine.native.kernel.loaded_code.LEVELS`.
    load
        What makes machine code instead, without any cache.

    Raises
    ------
    NotNativeError
        If a part of the program can only be interpreted.
    """
    if load is not None:
        plan, modules = write_program(program, functions, indexes)
        return plan, load(modules)
    name = name_of(program, functions, indexes)
    for better in LEVELS[::-1]:
        found = cached(name, better) if better >= level else None
        if found is not None:
            return found
    return build(name, program, functions, indexes, level)


def forget() -> None:
    """Forget what this process has loaded; who uses it keeps it."""
    _recent.clear()
    _shared.clear()


def cached(name: str, level: int) -> tuple[CodePlan, MachineCode] | None:
    """Return code that this process has loaded, or the user's cache has; None if there is none."""
    file = f"{name}-{level}.plan"
    found = _recent.get(file) or _from_cache(file)
    return None if found is None else _remembered(file, found)


def build(
    name: str, program: Program, functions: Mapping[str, UserFunction], indexes: Indexes, level: int
) -> tuple[CodePlan, MachineCode]:
    """Write and compile a program, and leave the code in the user's cache."""
    store = Cache(default_folder())
    with gc_paused(), _deep():
        plan, modules = write_program(program, functions, indexes)
        objects = [_object_of(store, module, level) for module in modules]
    file = f"{name}-{level}.plan"
    store.put(file, pickle.dumps((plan, [each for each, _ in objects])))
    return _remembered(file, (plan, MachineCode(made for _, made in objects)))


@contextmanager
def _deep() -> Iterator[None]:
    """Allow as many calls in each other as the code of a table with thousands of columns is deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _remembered(file: str, found: tuple[CodePlan, MachineCode]) -> tuple[CodePlan, MachineCode]:
    _recent[file] = found
    while len(_recent) > _MOST_RECENT:
        del _recent[next(iter(_recent))]
    return found


def shared_code(names: Sequence[str], write: Callable[[], Sequence[Module]], level: int) -> MachineCode:
    """Return code that names say all about, written where neither this process nor the user's cache has it."""
    file = f"{identity(_source(), *names)}-{level}.code"
    found = _shared.get(file)
    if found is None:
        store = Cache(default_folder())
        listed = store.get(file)
        objects: list[bytes | None] = [None] if listed is None else [store.get(each) for each in pickle.loads(listed)]
        if None in objects:
            with gc_paused(), _deep():
                made = [_object_of(store, module, level) for module in write()]
            store.put(file, pickle.dumps([name for name, _ in made]))
            objects = [each for _, each in made]
        found = _shared[file] = MachineCode(each for each in objects if each is not None)
    return found


def code_of(modules: Sequence[Module], level: int) -> MachineCode:
    """Return modules as code, from the user's cache where it has them."""
    store = Cache(default_folder())
    return MachineCode([_object_of(store, module, level)[1] for module in modules])


def _object_of(store: Cache, module: Module, level: int) -> tuple[str, bytes]:
    return store.object_of(to_llvm(module, inline=level > 0), level)


def _from_cache(file: str) -> tuple[CodePlan, MachineCode] | None:
    store = Cache(default_folder())
    found = store.get(file)
    if found is None:
        return None
    plan, files = pickle.loads(found)
    objects = [store.get(each) for each in files]
    return None if None in objects else (plan, MachineCode(each for each in objects if each is not None))


def name_of(program: Program, functions: Mapping[str, UserFunction], indexes: Indexes) -> str:
    """Return the name of a program's code in the cache."""
    wanted = {name: sorted(places) for name, places in indexes.items()}
    signatures = sorted((name, repr(each.signature)) for name, each in functions.items())
    return identity(_source(), repr(wanted), repr(signatures), repr(program))


SOURCES = (
    "algebra",
    "catalog",
    "engine",
    "explain",
    "m3",
    "scalars",
    "views",
    "errors.py",
    "interrupts.py",
    "garbage_collection.py",
    "version.py",
)
"""Folders and files of the package whose code decides what machine code is, and what the plan beside it means."""


@cache
def _source() -> str:
    """Return a digest of the code that writes code, and the release.

    It is of what the files say, not of their times: an installer may give two releases the same times and sizes.
    """
    folder = Path(version.__file__).parent
    digest = hashlib.sha256(version.VERSION.encode())
    for source in SOURCES:
        place = folder / source
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
