"""What a card can do: by name and number of multiprocessors, and never another card's."""

from __future__ import annotations

import pytest

from lanewise.measure.device import device_of
from lanewise.measure.kernel.datasheet import PEAKS, peak_of
from tests.support.builder import H100


@pytest.mark.parametrize(
    ("name", "sms", "card"),
    [
        ("NVIDIA H100 80GB HBM3", 132, "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", 114, "H100 PCIe"),
        ("NVIDIA H100 NVL", 132, "H100 NVL"),
        ("NVIDIA H200", 132, "H200 SXM"),
        ("NVIDIA A100-SXM4-40GB", 108, "A100 SXM 40GB"),
        ("NVIDIA A100-SXM4-80GB", 108, "A100 SXM 80GB"),
        ("NVIDIA A100 80GB PCIe", 108, "A100 PCIe 80GB"),
        ("NVIDIA L4", 58, "L4"),
        ("NVIDIA L40S", 142, "L40S"),
        ("NVIDIA GeForce RTX 4090", 128, "RTX 4090"),
        ("NVIDIA B200", 148, "B200"),
        ("AMD Instinct MI300X VF", 304, "MI300X"),
        ("Tesla T4", 40, "T4"),
    ],
)
def test_known_cards(name: str, sms: int, card: str) -> None:
    peak = peak_of(name, sms)
    assert peak is not None
    assert peak.card == card
    assert peak.source


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 132),
        ("NVIDIA H100 80GB HBM3", 16),  # a slice that kept the name
        ("NVIDIA H100", 132),
        ("NVIDIA H200 NVL", 132),
        ("NVIDIA L40", 142),
        ("NVIDIA A100-PG509-200", 108),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76),
        ("", 132),
    ],
)
def test_unknown_cards_have_no_peak(name: str, sms: int) -> None:
    assert peak_of(name, sms) is None


def test_rates_by_type() -> None:
    peak = device_of({"deviceProperties": [H100]}, "0").peak
    assert peak is not None
    assert peak.flop_rate("c10::BFloat16") == 989.4e12
    assert (peak.flop_rate("float"), peak.flop_rate("float", tensor_cores=False)) == (494.7e12, 67e12)
    assert peak.flop_rate("c10::Float8_e4m3fn") == 1979e12
    assert peak.flop_rate("double") == 0


def test_the_tensor_core_count_gives_the_datasheets_number() -> None:
    # 528 tensor cores, 1024 dense half-precision FLOP per clock and core, 1.83 GHz.
    peak = peak_of("NVIDIA H100 80GB HBM3", 132)
    assert peak is not None
    assert abs(528 * 1024 * 1.83e9 / peak.half - 1) < 0.001


def test_no_rate_is_mistyped_by_a_factor() -> None:
    for _, peak in PEAKS:
        assert 1e13 < peak.half < 4e15
        assert 1e11 < peak.bandwidth < 1e13
        assert 4e6 <= peak.l2 < 1e9
        assert not peak.tf32 or 1.9 < peak.half / peak.tf32 < 2.1
        assert not peak.fp8 or 1.9 < peak.fp8 / peak.half < 2.1


@pytest.mark.parametrize("listed", [None, "text", [], [3], [{"name": 5, "numSms": "many", "warpSize": True}]])
def test_odd_device_properties_are_an_empty_device(listed: object) -> None:
    device = device_of({"deviceProperties": listed}, "0")
    assert (device.name, device.sms, device.peak) == ("", 0, None)


def test_the_device_with_the_ordinal_is_taken() -> None:
    two = [H100, H100 | {"id": 1, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}]
    assert device_of({"deviceProperties": two}, "1").sms == 108
    assert device_of({"deviceProperties": two}, "7").sms == 132
