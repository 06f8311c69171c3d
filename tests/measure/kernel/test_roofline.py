"""Achieved shares of what the card can do, and where no share may be claimed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof, roofline_table
from tests.support.builder import H100, TraceBuilder

BF16 = "c10::BFloat16"
# 2 x 4096^3 FLOP at 989.4 TFLOP/s take 138.9 us; 3 x 4096^2 bf16 bytes at 3.35 TB/s take 30.0 us.
MM: dict[str, Any] = {"dims": [[4096, 4096], [4096, 4096]], "types": [BF16, BF16]}


def roofs(
    *calls: tuple[str, dict[str, Any], list[tuple[str, float]]], device: dict[str, Any] | None = None
) -> list[Roof]:
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    for _ in range(4):
        with b.step():
            for name, arguments, kernels in calls:
                with b.op(name, **arguments):
                    for kernel, duration in kernels:
                        b.launch(kernel, duration=duration)
    return Facts(b.build()).roofline


def test_a_product_at_eighty_percent_is_bound_by_compute() -> None:
    (roof,) = roofs(("aten::mm", MM, [("nvjet_tst_bz_NNT", 138.9 / 0.8)]))
    assert roof.of_compute == pytest.approx(0.8, abs=0.001)
    assert (roof.bound, roof.resident, roof.impossible, roof.calls) == ("compute", False, False, 3)


def test_helpers_do_not_dilute_the_products_rate_but_count_as_its_time() -> None:
    (roof,) = roofs(("aten::mm", MM, [("nvjet_tst_bz_NNT", 138.9), ("vectorized_elementwise_kernel", 50.0)]))
    assert roof.of_compute == pytest.approx(1.0, abs=0.001)
    assert roof.time == 3 * 188_900


def test_more_than_the_peak_is_an_error_of_shapes() -> None:
    (roof,) = roofs(("aten::mm", MM, [("nvjet_tst_bz_NNT", 100.0)]))
    assert roof.impossible
    (roof,) = roofs(("aten::mm", MM, [("nvjet_tst_bz_NNT", 138.0)]))
    assert not roof.impossible  # within what clocks and timestamps are good for


def test_pointwise_work_is_bound_by_memory() -> None:
    arguments = {"dims": [[8192, 16384]] * 2, "types": [BF16, BF16]}
    (roof,) = roofs(("aten::mul", arguments, [("vectorized_elementwise_kernel", 300.0)]))
    assert roof.bound == "memory"
    assert roof.of_memory == pytest.approx(3 * 8192 * 16384 * 2 / 300e-6 / 3.35e12)


def test_a_working_set_in_the_cache_gets_no_share_of_the_memory() -> None:
    arguments = {"dims": [[1024, 4096]] * 2, "types": [BF16, BF16]}
    (roof,) = roofs(("aten::mul", arguments, [("vectorized_elementwise_kernel", 10.0)]))
    assert roof.resident
    assert math.isnan(roof.of_memory)
    assert roof.byte_rate == pytest.approx(3 * 1024 * 4096 * 2 / 10e-6)


def test_faster_than_the_memory_means_it_came_from_the_cache() -> None:
    arguments = {"dims": [[8192, 16384]] * 2, "types": [BF16, BF16]}
    (roof,) = roofs(("aten::mul", arguments, [("vectorized_elementwise_kernel", 200.0)]))
    assert (roof.resident, roof.impossible) == (True, False)
    assert math.isnan(roof.of_memory)


def test_a_tiny_kernel_is_bound_by_its_launch() -> None:
    arguments = {"dims": [[64, 64]] * 2, "types": [BF16, BF16]}
    (roof,) = roofs(("aten::mm", arguments, [("nvjet_tst_bz_NNT", 2.2)]))
    assert roof.bound == "launch"


def test_fp32_on_plain_units_is_measured_against_the_plain_units() -> None:
    arguments = {"dims": [[4096, 4096], [4096, 4096]], "types": ["float", "float"]}
    (plain,) = roofs(("aten::mm", arguments, [("sm80_xmma_gemm_f32f32_ffma_aligna4", 2600.0)]))
    (tensor,) = roofs(("aten::mm", arguments, [("sm80_xmma_gemm_tensor16x8x8", 350.0)]))
    assert plain.of_compute == pytest.approx(2 * 4096**3 / 2600e-6 / 67e12)
    assert tensor.of_compute == pytest.approx(2 * 4096**3 / 350e-6 / 494.7e12)


def test_an_unknown_card_has_rates_but_no_shares() -> None:
    (roof,) = roofs(("aten::mm", MM, [("nvjet", 200.0)]), device=H100 | {"name": "NVIDIA Z9"})
    assert roof.flop_rate == pytest.approx(2 * 4096**3 / 200e-6)
    assert math.isnan(roof.of_compute)
    assert roof.bound == ""


def test_calls_with_other_shapes_are_another_row() -> None:
    small = {"dims": [[64, 64], [64, 64]], "types": [BF16, BF16]}
    found = roofs(("aten::mm", MM, [("nvjet", 200.0)]), ("aten::mm", small, [("nvjet", 3.0)]))
    assert [roof.time for roof in found] == [600_000, 9_000]


def test_copies_from_the_host_are_not_the_devices_roofline() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::copy_", dims=[[64], [64]], types=["float", "float"]):
            b.copy("HtoD", size=256)
    assert Facts(b.build()).roofline == []


def test_a_list_takes_the_element_size_from_the_kernels_name() -> None:
    arguments = {"dims": [[[128, 64], [128, 64]], []], "types": ["TensorList", "Scalar"]}
    (roof,) = roofs(("aten::cat", arguments, [("CatArrayBatchedCopy<OpaqueType<2u>, unsigned int>", 10.0)]))
    assert roof.work is not None
    assert roof.work.read == 2 * 128 * 64 * 2


def test_an_operator_without_a_formula_is_unknown() -> None:
    (roof,) = roofs(("mine::op", {"dims": [[64]], "types": ["float"]}, [("mine", 10.0)]))
    assert (roof.work, roof.bound) == (None, "")
    assert math.isnan(roof.flop_rate)


def test_the_table_has_one_row_per_group() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm", **MM):
            b.launch("nvjet", duration=173.6)
    table = roofline_table(Facts(b.build()))
    assert table.height == 1
    assert table["operator"][0] == "aten::mm"
    assert table["of_compute"][0] == pytest.approx(0.8, abs=0.001)
