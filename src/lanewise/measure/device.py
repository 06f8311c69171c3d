"""The device that the trace was recorded on, from its `deviceProperties`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lanewise.measure.kernel.datasheet import Peak, peak_of

__all__ = ["Device", "device_of"]


@dataclass(frozen=True)
class Device:
    """One device; 0 or "" for what the file does not say.

    Attributes:
        name: as recorded; untrusted text.
        vendor: `nvidia`, `amd` or "".
        compute: compute capability (major, minor); on AMD the digits of its own version, not comparable.
        sms: multiprocessors (compute units on AMD).
        memory: bytes.
        warp: threads per warp.
        threads_per_sm, registers_per_sm, shared_per_sm: limits; bytes for memory.
        peak: what the card can do at most; None for a card that the table does not hold.
    """

    name: str = ""
    vendor: str = ""
    compute: tuple[int, int] = (0, 0)
    sms: int = 0
    memory: int = 0
    warp: int = 0
    threads_per_sm: int = 0
    registers_per_sm: int = 0
    shared_per_sm: int = 0
    peak: Peak | None = None

    @property
    def has_tensor_cores(self) -> bool | None:
        """Whether the device has matrix units; None if the file does not tell."""
        if self.vendor == "nvidia":
            return self.compute >= (7, 0) if self.compute > (0, 0) else None
        return True if self.vendor == "amd" and "Instinct" in self.name else None


def device_of(metadata: Mapping[str, Any], ordinal: str) -> Device:
    """The device with an ordinal (text; "" for the first one). An empty Device if the file describes none."""
    listed = metadata.get("deviceProperties")
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    if not entries:
        return Device()
    entry = next((entry for entry in entries if str(entry.get("id")) == ordinal), entries[0])

    def number(*keys: str) -> int:
        for key in keys:
            value = entry.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62:
                return value
        return 0

    name = entry.get("name")
    name = name[:200] if isinstance(name, str) else ""
    warp = number("warpSize")
    vendor = "amd" if name.startswith("AMD") or warp == 64 else "nvidia" if warp == 32 else ""
    sms = number("numSms")
    return Device(
        name=name,
        vendor=vendor,
        compute=(number("computeMajor"), number("computeMinor")),
        sms=sms,
        memory=number("totalGlobalMem"),
        warp=warp,
        threads_per_sm=number("maxThreadsPerMultiprocessor"),
        registers_per_sm=number("regsPerMultiprocessor"),
        shared_per_sm=number("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
        peak=peak_of(name, sms),
    )
