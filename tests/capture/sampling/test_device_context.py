"""Which device context is sampled, by a driver that says what a program has made."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lanewise.capture.sampling import device_context


class Driver:
    """Of two devices, of which the program uses the second."""

    def __init__(self) -> None:
        self.current: int | None = None

    def cuDeviceGetCount(self, number: Any) -> int:  # noqa: N802 - the driver's names
        number._obj.value = 2
        return 0

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:  # noqa: N802
        active._obj.value = device
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:  # noqa: N802
        context._obj.value = 4711
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self.current = context.value
        return 0


def cuda(*, used: bool) -> Any:
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: used))


def test_the_context_of_the_device_in_use_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(device_context.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setitem(sys.modules, "torch", cuda(used=True))
    assert device_context.context_in_use() == 4711
    assert driver.current == 4711


@pytest.mark.parametrize("torch", [None, cuda(used=False)])
def test_before_the_program_uses_a_device_the_driver_is_left_alone(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_context.ctypes, "CDLL", lambda name: pytest.fail("loaded"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert device_context.context_in_use() == 0


def test_the_library_that_is_mapped_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(device_context.ctypes, "CDLL", loaded.append)
    monkeypatch.setattr(device_context, "cupti_library", lambda: "")
    device_context.loaded_cupti()
    assert loaded == ["libcupti.so"]
    assert ctypes is device_context.ctypes
    match = device_context._MAPPED.search("7f12 r-xp 0 08:01 12    /opt/a b/nvidia/lib/libcupti.so.13\n7f13 r--p /x\n")
    assert match is not None
    assert match[1].endswith("/nvidia/lib/libcupti.so.13")
