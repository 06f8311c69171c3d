"""NVML is read through its C interface: against a library of our own that answers as nvml.h says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from lanewise import nvml

COMPILER = which("cc") or which("gcc")

FAKE = r"""
#include <stdio.h>
#include <string.h>
typedef struct device { int known; } *nvmlDevice_t;
static struct device card = {1};
static int ready;
int nvmlInit_v2(void) { ready = 1; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  if (!ready) return 1;
  if (strcmp(uuid, "GPU-1234")) return 6;
  *device = &card;
  return 0;
}
static int known(nvmlDevice_t device) { return device == &card && device->known; }
int nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
  if (!known(device) || type < 1 || type > 2) return 2;
  *mhz = type == 1 ? 1980 : 3201;
  return 0;
}
int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *mw) { *mw = 350500; return !known(device); }
int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *mw) { *mw = 700000; return POWER_LIMIT; }
int nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *c) { *c = 41; return sensor; }
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *bits) {
  *bits = 0x100000004;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *mj) {
  static unsigned long long drawn = 5000000000ULL;
  drawn += 1500;
  *mj = drawn;
  return POWER_LIMIT || !known(device);
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.1"); return 0; }
"""


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    nvml._library.cache_clear()
    yield
    nvml._library.cache_clear()


def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, power_limit: int = 0) -> None:
    source, built = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(FAKE)
    words = [str(COMPILER), "-shared", "-fPIC", f"-DPOWER_LIMIT={power_limit}", "-o", str(built), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    monkeypatch.setattr(nvml, "LIBRARY", str(built))


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_device_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch)
    assert nvml.driver_version() == "580.1"
    for name in ("1234", "GPU-1234"):
        device = nvml.open_device(name)
        assert device is not None
        assert device.sm_mhz() == 1980.0
        assert device.reading() == nvml.Reading(1980, 3201, 350.5, 700.0, 41, 0x100000004)
        before = device.energy_j()
        assert before is not None
        assert before > 5_000_000
        assert device.energy_j() == pytest.approx(before + 1.5)
    assert nvml.open_device("another") is None


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_what_is_refused_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch, power_limit=3)
    device = nvml.open_device("1234")
    assert device is not None
    assert device.reading() is None
    assert device.energy_j() is None
    assert device.sm_mhz() == 1980.0


@pytest.mark.skipif(COMPILER is None or not hasattr(os, "fork"), reason="needs a C compiler and forks")
def test_a_fork_makes_it_ready_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch)
    mine = nvml._library(os.getpid())
    assert mine is not None
    assert nvml._library(os.getpid() + 1) is not mine


@pytest.mark.parametrize("name", ["libno-such-library.so.1", os.devnull])
def test_without_a_driver_nothing_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", name)
    assert nvml.open_device("1234") is None
    assert nvml.driver_version() == ""
