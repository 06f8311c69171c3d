"""The context of the first device that a program uses, and the CUPTI library that is loaded: without importing torch, and
without making a context of our own."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from typing import Any

from lanewise.capture.context.native_build import cupti_library

__all__ = ["context_in_use", "loaded_cupti"]

_DRIVER = "libcuda.so.1"
_MAPPED = re.compile(r"^[^/\n]*(/.*libcupti\.so\S*)$", re.MULTILINE)


def context_in_use() -> int:
    """The primary context that the program has made, 0 if there is none yet. It becomes that of the calling thread: one of
    ours."""
    # The program has come to its device once torch says so; the driver alone would be initialised by asking.
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0
    driver = ctypes.CDLL(_DRIVER)
    number, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    for device in range(number.value):
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        context = ctypes.c_void_p()
        if active.value and not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
            driver.cuCtxSetCurrent(context)
            return context.value or 0
    return 0


def loaded_cupti() -> Any:
    """The library that torch has loaded, or the one that belongs to it. OSError if there is none."""
    mapped = ""
    with suppress(OSError), open(f"/proc/{os.getpid()}/maps", encoding="utf-8", errors="replace") as maps:
        mapped = next((match[1] for match in _MAPPED.finditer(maps.read())), "")
    return ctypes.CDLL(mapped or cupti_library() or "libcupti.so")
