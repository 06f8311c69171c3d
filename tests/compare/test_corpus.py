"""Pairs of real H100 traces: what the difference must say, and how much of the device time it must account for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from lanewise.compare.compare import compare_arms
from lanewise.compare.model import Difference
from lanewise.compare.sides.arm import Arm, short_labels
from lanewise.compare.sides.run import Run, measure_run
from lanewise.diagnose.engine import diagnose
from lanewise.errors import UsageError
from tests.support.corpus import facts_of


class Pair(NamedTuple):
    """Two traces, what the verdict must and must not say, and by how much the step time differs in us."""

    a: str
    b: str
    says: tuple[str, ...]
    step_us: float
    never: tuple[str, ...] = ()


PAIRS = [
    # E1: cold against warm. Part 1 of the series: all of it is the host's.
    Pair(
        "01_matmul_add_64_cold_eager",
        "01_matmul_add_64_warm_eager",
        ("changed nothing on the device: the same 2 device ops", "about 4 runs per side would tell"),
        -71.0,
    ),
    Pair(
        "01_matmul_add_4096_cold_eager",
        "01_matmul_add_4096_warm_eager",
        ("changed nothing on the device", "takes 212.7 us on both sides"),
        0.7,
    ),
    # E6: "the same kernel, a copy and a GEMM replace GEMM and add". On H100 the epilogue is in the name.
    Pair(
        "01_matmul_add_64_warm_eager",
        "01_matmul_add_64_warm_compile",
        (
            "Compiling: the same matrix product",
            "add moved into the product's epilogue, which copies its operand first",
            "3.20 us of device time against 3.12 us",
            "164.7 us more; all of it host time",
        ),
        164.7,
        ("fused",),
    ),
    Pair(
        "01_matmul_add_4096_warm_eager",
        "01_matmul_add_4096_warm_compile",
        ("the same matrix product", "which copies its operand first", "(1.54x as long"),
        115.0,
        ("fused",),
    ),
    # E7: one launch, but the inputs are copied to fixed addresses: 88 us of device time at 4096.
    Pair(
        "01_matmul_add_4096_warm_eager",
        "01_matmul_add_4096_warm_compile_reduce_overhead",
        (
            "Compiling with a CUDA graph: the same matrix product",
            "3 copies of graph inputs (+87.7 us)",
            "Step time: slower (1.56x as long",
        ),
        118.1,
    ),
    Pair(
        "02_mlp_256_1024_b32_eager",
        "06_cuda_graph_replay",
        (
            "Replaying a CUDA graph changed nothing on the device: the same 3 device ops",
            "3 launches became 1",
            "all of it host time",
            "from host-bound to mixed",
        ),
        -124.3,
    ),
    # E9: the secondary articles say that the MLP becomes one kernel. Nothing was fused.
    Pair(
        "02_mlp_256_1024_b32_eager",
        "02_mlp_256_1024_b32_compile",
        (
            "the same 2 matrix products; nothing was fused, gelu only became a generated kernel",
            "about 4 runs per side would tell",
        ),
        101.8,
    ),
    Pair(
        "02_mlp_4096_16384_b4096_eager",
        "02_mlp_4096_16384_b4096_compile",
        ("the same 2 matrix products; nothing was fused", "more than 200 runs per side would tell"),
        16.3,
        ("slower (", "faster ("),
    ),
    Pair(
        "07_bad_pageable_copy",
        "07_good_pinned_copy",
        ("Memcpy HtoD (Pageable -> Device) became Memcpy HtoD (Pinned -> Device) (38.4 ms → 5.00 ms).", "29.7 ms less"),
        -29_702.2,
    ),
    # A straggler on the other rank: the same work here, and a collective that waits.
    Pair(
        "08_ddp_good_rank0",
        "08_ddp_straggler_rank1_8ms_rank0",
        (
            "changed nothing on the device: the same 546 device ops",
            "which waits for other ranks",
            "from host-bound to communication-bound",
        ),
        30_847.2,
    ),
]


@cache
def run_of(name: str) -> Run:
    facts = facts_of(name, with_unprofiled=True)
    return measure_run(facts, diagnose(facts)[0])


def compare(a: str, b: str, *, anyway: bool = False) -> Difference:
    labels = short_labels([a, b])
    return compare_arms([Arm(labels[0], [run_of(a)]), Arm(labels[1], [run_of(b)])], anyway=anyway).differences[0]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.a}-{pair.b}")
def test_the_verdict(pair: Pair) -> None:
    difference = compare(pair.a, pair.b)
    for sentence in pair.says:
        assert sentence in difference.verdict
    for sentence in pair.never:
        assert sentence not in difference.verdict
    water = difference.waterfall
    assert water.b_ns - water.a_ns == pytest.approx(pair.step_us * 1e3, abs=60)
    assert water.a_ns + sum(item.ns for item in water.items) == water.b_ns


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.a}-{pair.b}")
def test_at_least_95_percent_of_device_time_is_accounted_for(pair: Pair) -> None:
    coverage = compare(pair.a, pair.b).coverage
    assert coverage.matched_share + coverage.explained_share >= 0.95


def test_three_steps_and_one_recording_decide_only_what_no_two_processes_differ_by() -> None:
    decided: dict[str, float] = {}
    for pair in PAIRS:
        step = compare(pair.a, pair.b).step
        assert step.ratio is not None
        if step.verdict == "not enough samples":
            assert step.further > 0
            assert step.further_unit == "runs"
            continue
        decided[pair.a] = step.ratio
        assert step.verdict == ("faster" if step.ratio > 1 else "slower")
        assert not 0.7 < step.ratio < 1.4
    assert 0 < len(decided) < len(PAIRS)


def test_the_compiled_copy_is_a_new_finding_and_the_region_is_not_amortised() -> None:
    difference = compare("01_matmul_add_64_warm_eager", "01_matmul_add_64_warm_compile")
    assert "CMP106" in {f.code for f in difference.findings if f.status == "new"}
    assert [s.code for s in difference.statements] == ["CMP103"]
    assert difference.statements[0].recoverable_us_per_step == pytest.approx(164.67, abs=0.1)


def test_a_large_compiled_mlp_had_nothing_to_fuse() -> None:
    assert [s.code for s in compare("02_mlp_4096_16384_b4096_eager", "02_mlp_4096_16384_b4096_compile").statements] == [
        "CMP105"
    ]


def test_moving_the_model_every_step_is_seen_as_copies_that_go() -> None:
    difference = compare("04_resnet50_model_to_device_each_step", "04_resnet50_infer")
    assert "320x Memcpy DtoH, 320x Memcpy HtoD gone" in difference.verdict
    assert "from transfer-bound to device-bound" in difference.verdict
    assert {c.how for c in difference.device if any(op.kind == "kernel" for op in c.a)} == {"same"}


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("01_matmul_add_64_warm_eager", "01_matmul_add_4096_warm_eager", "different sizes"),
        ("01_matmul_add_64_warm_eager", "01_bmm_add_64_warm_eager", "different sizes"),
        ("05_llama_train", "05_llama_prefill_stack", "backward pass"),
    ],
)
def test_what_is_not_comparable_is_refused(a: str, b: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        compare(a, b)
    assert any("because you asked" in warning for warning in compare(a, b, anyway=True).warnings)
