"""The user's functions on their way to Spark's Python workers.

A function of an installed package goes by its name: the workers import it. Any other (of a script, a notebook, a file
named on the command line) goes with its code, and with what it uses of its own module.
"""

from __future__ import annotations

import pickle
import sys
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from cumulus.errors import UsageError
from cumulus.scalars.user import Given, UserFunction


def pack_functions(functions: Mapping[str, Given]) -> bytes:
    """Return functions as bytes for `unpack_functions`, here or in a worker.

    Raises
    ------
    UsageError
        If one uses something that cannot travel.
    """
    with_code = {module.__name__: module for module in map(_module, functions.values()) if module is not None}
    try:
        for module in with_code.values():
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        found: bytes = cloudpickle.dumps(dict(functions))  # type: ignore[no-untyped-call]
        return found
    except Exception as problem:  # noqa: BLE001  # what cannot be pickled says so in its own way
        raise UsageError(
            f"the functions {', '.join(functions)} cannot be sent to Spark's workers: {problem}",
            hint="Make what they use when they are called, not when their module is loaded.",
        ) from None
    finally:
        for module in with_code.values():
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=16)
def unpack_functions(data: bytes) -> Mapping[str, Given]:
    """Return the functions of `pack_functions`; the same objects for the same bytes."""
    found: Mapping[str, Given] = pickle.loads(data)
    return found


def _module(given: Given) -> ModuleType | None:
    """Return the module that must travel with a function, None if the workers have it."""
    plain = given.implement if isinstance(given, UserFunction) else given
    module = sys.modules.get(getattr(plain, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None  # built in, or by value anyway
    places = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return None if any(Path(file).is_relative_to(place) for place in places) else module
