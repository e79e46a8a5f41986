"""The program of an output, which stands in it as text."""

from __future__ import annotations

from functools import lru_cache

from cumulus.durable.store import Place, store_of
from cumulus.errors import CumulusError, StoreError
from cumulus.m3 import parse
from cumulus.m3.program import Program

_PROGRAM = "program.m3"


@lru_cache(maxsize=16)
def program_of(text: str) -> Program:
    """Return the program of an M3 text. Programs travel as text: their terms are interned in each process."""
    return parse(text)


def write_program(out: Place, program: Program) -> None:
    """Write the program of an output into it, if it is not there."""
    store = store_of(out)
    if store.size(_PROGRAM) is None:
        store.put(_PROGRAM, str(program).encode())


def written_program(out: Place) -> Program:
    """Return the program that has made an output.

    Raises
    ------
    StoreError
        If it is not there, as in folders of old releases, or cannot be read.
    """
    store = store_of(out)
    try:
        return program_of(store.get(_PROGRAM).decode())
    except FileNotFoundError:
        raise StoreError(
            f"{out}: the run that has made it did not write its program, {_PROGRAM}",
            hint="Run it again with this release, into the same folders: it goes on after the last epoch.",
        ) from None
    except (OSError, ValueError, CumulusError) as problem:
        place = store.place(_PROGRAM)
        raise StoreError(f"{place} cannot be read: {problem}", hint="Bring it back from a copy.") from None
