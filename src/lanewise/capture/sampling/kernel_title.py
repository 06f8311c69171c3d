"""Names of kernels as traces and trees have them: of C++ written out, as `at::native::reduce_kernel<512, 1, ...>`."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["title_of"]

_LIBRARY = "libstdc++.so.6"


def title_of(name: str) -> str:
    """What a symbol of C++ means, by the library that compilers bring; any other name as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL(_LIBRARY)
        demangle: Any = library["__cxa_demangle"]
    except (OSError, AttributeError):
        return name
    demangle.restype = ctypes.c_void_p
    address = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int()))
    if not address:
        return name
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))
