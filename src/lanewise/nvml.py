"""What NVIDIA's driver says of a device, through the library that comes with it (NVML): it needs no package and no CUDA.

Functions and constants are those of nvml.h. Nothing here raises: what cannot be read is None, 0 or "".
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, NamedTuple

__all__ = ["Device", "Reading", "driver_version", "full_uuid", "open_device", "read"]

LIBRARY = "libnvidia-ml.so.1"

_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_TEMPERATURE_GPU = 0
_LONGEST_VERSION = 80


class Reading(NamedTuple):
    """The state of a device now.

    Attributes:
        sm_mhz, memory_mhz: clocks, MHz. power_w, power_limit_w: drawn, and the limit that is enforced, W.
        temperature_c: of the chip, degrees Celsius. throttle_bits: why clocks are held down, `nvmlClocksThrottleReason*`.
    """

    sm_mhz: int
    memory_mhz: int
    power_w: float
    power_limit_w: float
    temperature_c: int
    throttle_bits: int


class Device:
    """One device; see `open_device`."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    def sm_mhz(self) -> float:
        """Clock of the multiprocessors now, MHz; 0 if it cannot be read."""
        return float(self._number("nvmlDeviceGetClockInfo", _CLOCK_SM) or 0)

    def energy_j(self) -> float | None:
        """What the device has drawn since the driver was loaded, J; None where it does not count. The counter moves in
        jumps, some tens of milliseconds apart."""
        counted = self._number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        return None if counted is None else counted / 1e3

    def reading(self) -> Reading | None:
        """Everything at once; None if any of it cannot be read."""
        numbers = [
            self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            self._number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            self._number("nvmlDeviceGetPowerUsage"),
            self._number("nvmlDeviceGetEnforcedPowerLimit"),
            self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong),
        ]
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            return None
        sm, memory, power_mw, limit_mw, temperature, bits = known
        return Reading(sm, memory, power_mw / 1e3, limit_mw / 1e3, temperature, bits)

    def _number(self, name: str, *which: int, kind: type[Any] = ctypes.c_uint) -> int | None:
        value = kind()
        ask = getattr(self._library, name, None)
        if ask is None or ask(self._handle, *which, ctypes.byref(value)) != 0:
            return None
        return int(value.value)


def open_device(uuid: str) -> Device | None:
    """The device with that UUID, as CUDA and torch give it, with or without `GPU-`; None without NVML or such a device."""
    library = _library(os.getpid())
    handle = ctypes.c_void_p()
    if library is None or library.nvmlDeviceGetHandleByUUID(full_uuid(uuid).encode(), ctypes.byref(handle)) != 0:
        return None
    return Device(library, handle)


def read(uuid: str) -> Reading | None:
    """The state of that device now; None if it cannot be read."""
    device = open_device(uuid)
    return None if device is None else device.reading()


def full_uuid(uuid: str) -> str:
    """As NVML and nvidia-smi want it: torch leaves out what it begins with."""
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def driver_version() -> str:
    """Of the driver; "" without one."""
    library = _library(os.getpid())
    text = ctypes.create_string_buffer(_LONGEST_VERSION)
    if library is None or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return ""
    return text.value.decode(errors="replace")


@functools.cache
def _library(_process: int) -> Any:
    """The library, ready for use by this process: a fork needs it anew."""
    try:
        library: Any = ctypes.CDLL(LIBRARY)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
