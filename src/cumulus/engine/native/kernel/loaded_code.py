"""LLVM IR to machine code in this process, through llvmlite, with a cache of object files.

A cached object is used again where nothing that it depends on differs: the text, the way it is optimised, the versions
of LLVM and llvmlite, the processor. The cache is a folder that may be deleted at any time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import llvmlite
import llvmlite.binding as llvm

from cumulus.engine.native.kernel.language import Module
from cumulus.engine.native.kernel.memory import SYSTEM_FUNCTIONS

LEVELS = (0, 2)
"""How far code may be optimised: at once, or well."""


@cache
def _processor() -> tuple[Any, str, str]:
    """Return the target of this machine, and the name and the features of its processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _target_machine(level: int) -> Any:
    target, name, features = _processor()
    return target.create_target_machine(cpu=name, features=features, opt=level, codemodel="small", reloc="pic")


def to_object(text: str, level: int) -> bytes:
    """Return LLVM IR as an object file, optimised as far as a level of `LEVELS` says."""
    machine = _target_machine(level)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    if level:
        options.loop_vectorization = False  # loops are over chains and probes; nothing there is a vector
        options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    found: bytes = machine.emit_object(module)
    return found


_DIGEST = hashlib.sha256().digest_size
"""Bytes before the contents of a file of the cache, by which damage is noticed: code is run, not parsed."""


class Cache:
    """Files in a folder, by what they depend on: object files, and what is needed to use them. No folder keeps none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def object_of(self, text: str, level: int) -> tuple[str, bytes]:
        """Return `to_object(text, level)`, from the folder if it is there, and the name by which `get` finds it."""
        name = f"{identity(str(level), text)}.o"
        found = self.get(name)
        if found is None:
            found = to_object(text, level)
            self.put(name, found)
        return name, found

    def get(self, name: str) -> bytes | None:
        """Return a file's contents; None if it is not there, cannot be read, or is not what was written."""
        try:
            found = b"" if self._folder is None else (self._folder / name).read_bytes()
        except OSError:
            return None
        digest, made = found[:_DIGEST], found[_DIGEST:]
        return made if digest == hashlib.sha256(made).digest() else None

    def put(self, name: str, made: bytes) -> None:
        """Write a file whole or not at all; a cache that cannot be written is none."""
        if self._folder is None:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(made).digest() + made)
                os.replace(aside, self._folder / name)
            except OSError:
                os.unlink(aside)


def default_folder() -> Path | None:
    """Return where this user's objects are kept: `$CUMULUS_CACHE`, or `cumulus` in the folder for caches.

    None for a user without a home: then nothing is kept.
    """
    given = os.environ.get("CUMULUS_CACHE")
    if given:
        return Path(given)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cumulus"
    except RuntimeError:
        return None


def identity(*parts: str) -> str:
    """Return a name for what depends on some texts, the versions of LLVM and llvmlite, and the processor."""
    _, name, features = _processor()
    told = (llvmlite.__version__, str(llvm.llvm_version_info), name, features, *parts)
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


@cache
def _system_functions() -> Any:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in SYSTEM_FUNCTIONS]
    return (ctypes.c_int64 * len(found))(*found)


def system_functions() -> int:
    """Return the address of the addresses of `SYSTEM_FUNCTIONS`; 0 where they are not all there."""
    found = _system_functions()
    return 0 if found is None else ctypes.addressof(found)


class Loaded(Protocol):
    """Functions in this process, by name, as long as this lives."""

    def address(self, name: str) -> int:
        """Return where a function is; KeyError if there is none."""

    def function(self, name: str, result: Any, *parameters: Any) -> Any:
        """Return a function as Python calls it, without the interpreter's lock."""


Load: TypeAlias = Callable[[Sequence[Module]], Loaded]
"""Makes functions of modules: what one calls, another may define."""


_LIBRARY = "code"
"""What the linker calls the objects of one `MachineCode`."""


class MachineCode:
    """Object files that were loaded together: functions by name, as long as this lives.

    JITLink gives each object one piece of memory, and reaches the others from wherever they are. MCJIT would end the
    process where free memory next to the first section has run out and the rest is more than 2 GiB away.
    """

    def __init__(self, objects: Iterable[bytes]) -> None:
        library = llvm.JITLibraryBuilder().add_current_process()
        for each in objects:
            library.add_object_img(each)
        self._linker = llvm.create_lljit_compiler(_processor()[0].create_target_machine(), use_jit_link=True)
        self._loaded = library.link(self._linker, _LIBRARY)
        self._found: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """Return where a function is; KeyError if there is none."""
        if name not in self._found:
            try:
                self._found[name] = self._linker.lookup(_LIBRARY, name)
            except RuntimeError:
                raise KeyError(name) from None
        found: int = self._found[name][name]
        return found

    def function(self, name: str, result: Any, *parameters: Any) -> Any:
        """Return a function as Python calls it, without the interpreter's lock."""
        return ctypes.CFUNCTYPE(result, *parameters)(self.address(name))
