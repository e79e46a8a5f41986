"""Scalar functions of the user from a module or a file that is given by its name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from cumulus.errors import InputError
from cumulus.scalars.user import UserFunction


def functions_in(places: Sequence[str] | None) -> list[UserFunction]:
    """Return the functions that modules or files declare with `cumulus.function`.

    Raises
    ------
    InputError
        If there is no such module or file, it cannot be loaded, or it declares none.
    """
    found: dict[int, UserFunction] = {}
    for place in places or ():
        try:
            module = _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
        except Exception as problem:
            raise InputError(
                f"cannot load the functions of {place}: {type(problem).__name__}: {problem}",
                hint="Give a module that Python finds from here, or the path of a .py file.",
            ) from problem
        declared = [each for each in vars(module).values() if isinstance(each, UserFunction)]
        if not declared:
            raise InputError(f"{place} declares no functions", hint="Decorate them with @cumulus.function.")
        found.update((id(each), each) for each in declared)
    return list(found.values())


def _from_file(path: Path) -> ModuleType:
    name = f"cumulus_functions_{re.sub(r'[^0-9A-Za-z]', '_', str(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _by_name(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    return importlib.import_module(name)
