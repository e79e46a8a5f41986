"""A function of machine code as a builtin of Python: no ctypes between a caller and a trigger.

The builtin looks into a *cell* for what it calls: a fast way, which may decline, and a Python function that takes what
the fast way leaves. So code may be replaced while callers hold the builtin.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cumulus.engine.native.intake.python_values import OCCURRED
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, Local, Signature

BUILTIN = "cu_builtin"

# The cell, as offsets in bytes.
_FAST = 0
"""The address of `(context, arguments, how many)` → 1 where it is done; 0 if there is none."""
_CONTEXT = 8
_SLOW = 16
"""The Python function."""
_NONE = 24

_BYTES = Signature("PyBytes_AsString", (PTR,), PTR)
_CALL = Signature("PyObject_Vectorcall", (PTR, PTR, I64, PTR), PTR)
_KEEP = Signature("Py_IncRef", (PTR,))
_FASTCALL = 0x80


@kernel_function(BUILTIN, [("self", PTR), ("args", PTR), ("count", I64)], PTR)
def builtin_function(body: Body, self: Local, args: Local, count: Local) -> None:
    """Return the function behind all builtins; its `self` is a bytes object with the address of the cell."""
    cell = body.load(PTR, body.call(_BYTES, self), 0, "cell")
    fast = body.load(PTR, cell, _FAST, "fast")
    with body.when(fast.ne(NOWHERE), likely=True):
        fits = Signature("fast", (PTR, PTR, I64), I64)
        done = body.call_at(fast, fits, body.load(PTR, cell, _CONTEXT), args, count, hint="done")
        with body.when(done.ne(0), likely=True):
            nothing = body.load(PTR, cell, _NONE, "nothing")
            body.run(_KEEP, nothing)
            body.leave(nothing)
        with body.when(body.call(OCCURRED).ne(NOWHERE), likely=False):  # Ctrl-C
            body.leave(NOWHERE)
    body.leave(body.call(_CALL, body.load(PTR, cell, _SLOW), args, count, NOWHERE, hint="result"))


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class Entry:
    """The builtin for one relation; the function `slow` takes what the fast way leaves."""

    def __init__(self, name: str, slow: Callable[..., Any]) -> None:
        self._cell = (ctypes.c_int64 * 4)()
        self._slow = slow
        self._cell[_SLOW // 8], self._cell[_NONE // 8] = id(slow), id(None)
        self._method = _Method(name.encode(), 0, _FASTCALL, b"Fire a trigger: a sign, and the values of a row.")
        self._behind: Any = None

    def attach(self, image: Any, fast: str) -> None:
        """Make a function of an image (`cumulus.engine.native.image`) the fast way, and keep the image."""
        self._cell[_CONTEXT // 8], self._cell[_FAST // 8] = image.at, image.code.address(fast)
        self._behind = image

    def detach(self) -> None:
        """Let everything take the slow way, and keep no image."""
        self._cell[_CONTEXT // 8] = self._cell[_FAST // 8] = 0
        self._behind = None

    def builtin(self, code: Any) -> Callable[..., Any]:
        """Return the builtin; it keeps the entry alive, and the code of `BUILTIN`."""
        self._method.function = code.address(BUILTIN)
        make = ctypes.pythonapi.PyCMethod_New
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
        cell = ctypes.addressof(self._cell).to_bytes(8, "little")
        # What CPython takes for the module is only kept: here it is what must live as long as the builtin.
        found: Callable[..., Any] = make(ctypes.addressof(self._method), cell, (self, code), None)
        return found
