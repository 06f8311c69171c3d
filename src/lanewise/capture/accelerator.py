"""What the recorder asks of an accelerator: wait until it is idle, and a timestamp in its queue."""

from __future__ import annotations

import sys
from typing import Any, Protocol

__all__ = ["Device", "Host", "TorchDevice", "current_device"]


class Device(Protocol):
    """The accelerator that the program uses, or the host alone."""

    name: str
    """`cpu`, `cuda` or `xpu`, as torch spells it."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""
        ...

    def mark(self) -> Any:
        """A timestamp in the current queue, or None if the device has none."""
        ...

    def between_us(self, first: Any, second: Any) -> float:
        """Microseconds between two marks that the device has passed."""
        ...


class Host:
    """No accelerator: work is done when the call returns."""

    name = "cpu"

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def mark(self) -> None:
        """The host clock is exact already."""

    def between_us(self, first: Any, second: Any) -> float:
        """Never called: there are no marks."""
        raise NotImplementedError


class TorchDevice:
    """A CUDA (or HIP) or XPU device through its torch module."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module

    def synchronize(self) -> None:
        """Wait for the device; skipped while a graph is being captured, where waiting is an error of the program's."""
        if not self._capturing():
            self._module.synchronize()

    def mark(self) -> Any:
        """An event on the current stream."""
        if self._capturing():
            return None
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def between_us(self, first: Any, second: Any) -> float:
        """Microseconds between two recorded events."""
        return first.elapsed_time(second) * 1000.0

    def _capturing(self) -> bool:
        asked = getattr(self._module, "is_current_stream_capturing", None)
        return bool(asked and asked())


def current_device() -> Device:
    """The accelerator that the program has initialised.

    An accelerator that is present but unused stays untouched: to initialise it would cost the program seconds and
    memory.
    """
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", bool)():
            return TorchDevice(name, module)
    return Host()
