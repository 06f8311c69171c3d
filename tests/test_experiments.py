"""The numbers of the classic experiments, recomputed from our H100 traces (level V1 of the design notes).

Times are microseconds. "Unprofiled" is the step time without the profiler, from truth.json.gz.
"""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.facts import Facts
from lanewise.trace.schema import Kind
from tests.support.corpus import facts_of, unprofiled_us


def us(values: np.ndarray) -> list[float]:
    return [round(float(v) / 1e3, 1) for v in values]


def launch_to_start(facts: Facts) -> list[float]:
    """Mean delay from launch call to kernel start per step, us."""
    step = facts.trace.steps.of_event[facts.trace.device_work]
    delay = facts.launches.device_start_delay
    return [round(float(delay[step == s].mean()) / 1e3, 1) for s in range(len(facts.trace.steps))]


def calls_per_step(facts: Facts) -> list[str]:
    """Names of the API calls of the last step, in order."""
    calls = facts.trace.api_calls
    calls = calls[facts.trace.steps.of_event[calls] == len(facts.trace.steps) - 1]
    return [facts.trace.name_of(e) for e in calls[np.argsort(facts.trace.start[calls])].tolist()]


# -- E1: size 64, cold and warm ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "gap", "before_launch", "annotation"),
    [
        ("01_matmul_add_64_cold_eager", [21.7, 5.4, 5.5], [84.0, 20.3, 15.4], [180.3, 64.8, 53.9]),
        ("01_matmul_add_64_warm_eager", [12.7, 5.9, 4.8], [58.2, 20.9, 18.2], [130.5, 66.7, 57.9]),
    ],
)
def test_e1_gap_table(run: str, gap: list[float], before_launch: list[float], annotation: list[float]) -> None:
    gaps = facts_of(run).gaps
    assert us(gaps["gap"]) == gap
    assert us(gaps["before_launch"]) == before_launch
    assert us(gaps["annotation_duration"]) == annotation


def test_e1_two_launches_and_six_percent_busy() -> None:
    facts = facts_of("01_matmul_add_64_warm_eager", with_unprofiled=True)
    table = facts.steps.table
    assert table["launches"].tolist() == [2, 2, 2]
    assert us(table["device_time"][1:]) == [3.2, 3.2]
    assert facts.regime.name == "host"
    assert round(facts.regime.busy_share, 2) == 0.06
    assert unprofiled_us("01_matmul_add_64_warm_eager") == pytest.approx(55.5, abs=0.05)


def test_e1_the_first_step_is_slow_even_warm() -> None:
    host = facts_of("01_matmul_add_64_warm_eager").steps.table["host_duration"]
    assert host[0] / host[-1] == pytest.approx(2.2, abs=0.05)


# -- E2: no wait, no warm-up; twenty steps -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "request_us", "first_launch"),
    [
        ("01_matmul_add_64_nowait", 2420, 2534),
        ("01_matmul_add_64_active20", 2567, 2671),
    ],
)
def test_e2_one_buffer_request_inside_the_first_matmul(run: str, request_us: int, first_launch: int) -> None:
    facts = facts_of(run)
    stalls = facts.host.stalls
    assert len(stalls.request) == 1
    assert round(int(facts.trace.duration[stalls.request[0]]) / 1e3) == request_us
    assert facts.trace.name_of(int(stalls.call[0])) == "aten::mm"
    assert round(int(facts.gaps["first_launch"][0]) / 1e3) == first_launch


def test_e2_with_warm_up_there_is_no_request() -> None:
    assert not facts_of("01_matmul_add_64_warm_eager").host.stalls.request.size


def test_e2_host_times_settle_after_nine_steps_and_means_mislead() -> None:
    host = facts_of("01_matmul_add_64_active20").steps.table["host_duration"] / 1e3
    assert np.round(host[:4]).tolist() == [3184, 131, 75, 71]
    assert np.median(host[9:]) == pytest.approx(56.0, abs=0.3)
    assert np.median(host) == pytest.approx(65.3, abs=0.1)
    assert host.mean() == pytest.approx(223.5, abs=0.5)


# -- E3: dispatch chain and what a GEMM calls ----------------------------------------------------------------------


def test_e3_the_chain_from_annotation_to_kernel() -> None:
    links = facts_of("01_matmul_add_64_warm_eager").chain().links
    assert [(link.depth, link.name.split("<")[0].split("_")[0]) for link in links] == [
        (0, "ProfilerStep#4"),
        (1, "matmul"),
        (2, "aten::matmul"),
        (3, "aten::mm"),
        (4, "cuLaunchKernelEx"),
        (5, "nvjet"),
        (2, "aten::add"),
        (3, "cudaLaunchKernel"),
        (4, "void at::native::vectorized"),
    ]


@pytest.mark.parametrize(
    ("run", "calls"),
    [
        ("01_matmul_add_64_warm_eager", ["cuLaunchKernelEx", "cudaLaunchKernel"]),
        ("01_matmul_add_4096_warm_eager", ["cudaMemsetAsync", "cuLaunchKernelEx", "cudaLaunchKernel"]),
        ("01_matmul_add_4096_fp32_warm", ["cudaFuncGetAttributes", "cudaLaunchKernelExC", "cudaLaunchKernel"]),
    ],
)
def test_e3_signatures_of_a_gemm(run: str, calls: list[str]) -> None:
    assert calls_per_step(facts_of(run)) == calls


# -- E4: the trailing synchronise ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "took"),
    [
        ("01_matmul_add_64_cold_eager", 20.1),
        ("01_matmul_add_64_warm_eager", 9.9),
        ("01_matmul_add_4096_warm_eager", 372),
        ("01_matmul_add_4096_fp32_warm", 9944),
    ],
)
def test_e4_the_profilers_synchronise_is_found_and_no_step_waits(run: str, took: float) -> None:
    facts = facts_of(run)
    sync = facts.host.profiler_sync
    assert facts.trace.name_of(sync) == "cudaDeviceSynchronize"
    assert int(facts.trace.duration[sync]) / 1e3 == pytest.approx(took, rel=0.005)
    assert not facts.steps.table["waits"].any()


# -- E5: size 4096 ---------------------------------------------------------------------------------------------------


def test_e5_device_bound_with_a_growing_queue() -> None:
    facts = facts_of("01_matmul_add_4096_warm_eager", with_unprofiled=True)
    assert facts.regime.name == "compute"
    assert us(facts.steps.table["device_time"][1:])[-1] == pytest.approx(202.2, abs=0.6)
    trace = facts.trace
    work = trace.device_work
    gemm = np.flatnonzero(facts.is_family("gemm"))
    assert np.round(facts.launches.device_start_delay[gemm] / 1e3).tolist() == pytest.approx([9, 110, 230], abs=25)
    assert trace.duration[work[gemm]].max() / 1e3 < 180


def test_e5_fp32_runs_without_tensor_cores_and_the_head_is_not_idle() -> None:
    facts = facts_of("01_matmul_add_4096_fp32_warm")
    trace = facts.trace
    gemm = [e for e in trace.of(Kind.KERNEL).tolist() if "gemm" in trace.name_of(e)]
    assert facts.tensor_cores_of_name[trace.name[gemm[-1]]] == 0
    assert trace.duration[gemm[-1]] / 1e3 == pytest.approx(2658, rel=0.01)
    assert facts.classes.backlog.there
    assert facts.steps.table["host"][0] == 0
    first = int(trace.device_work[np.flatnonzero(trace.links.launch >= 0)[0]])
    assert (trace.start[first] - trace.steps.start[0]) / 1e3 == pytest.approx(2219, abs=1)


# -- E6, E7: compile and graphs ---------------------------------------------------------------------------------------


def test_e6_compile_copies_the_addend_and_moves_the_regime() -> None:
    facts = facts_of("01_matmul_add_4096_warm_compile", with_unprofiled=True)
    copy = facts.copies.rows()[0]
    assert copy["name"].startswith("Memcpy DtoD")
    assert copy["median"] / 1e3 == pytest.approx(18.6, abs=0.1)
    gemm = facts.kernels.rows()[0]
    assert "_badd_" in gemm["name"]
    assert gemm["median"] / 1e3 == pytest.approx(181.2, abs=1)
    eager = facts_of("01_matmul_add_4096_warm_eager", with_unprofiled=True)
    assert facts.regime.busy_share < 0.7 < eager.regime.busy_share


def test_e7_one_graph_launch_owns_its_kernels() -> None:
    facts = facts_of("06_cuda_graph_replay", with_unprofiled=True)
    assert facts.health.graph_launches == 3
    assert facts.health.graph_nodes == 9
    assert facts.health.graph_time_share == 1.0
    assert us(facts.steps.table["device_time"][1:]) == [8.0, 8.0]
    kernels = facts.trace.of(Kind.KERNEL)[-3:]
    gaps = (facts.trace.start[kernels][1:] - facts.trace.end[kernels][:-1]) / 1e3
    assert (gaps > 0.2).all()
    assert (gaps < 0.3).all()


# -- E8, E9: linear and MLP -------------------------------------------------------------------------------------------


def test_e8_linear_is_one_kernel_with_its_bias_in_the_epilogue() -> None:
    facts = facts_of("02_linear_warm_eager")
    kernels = facts.kernels.rows()
    assert len(kernels) == 1
    assert "_bz_bias_" in kernels[0]["name"]
    assert kernels[0]["median"] / 1e3 == pytest.approx(4.5, abs=0.05)
    assert facts.copies.height == 0
    view = next(row for row in facts.operators.rows() if row["name"] == "aten::t")
    assert view["device_total"] == 0


def test_e9_compiling_the_mlp_keeps_the_kernel_count_and_the_gemms() -> None:
    eager, compiled = (facts_of(f"02_mlp_256_1024_b32_{mode}") for mode in ("eager", "compile"))
    assert eager.steps.table["kernels"].tolist() == compiled.steps.table["kernels"].tolist() == [3, 3, 3]
    gemms = [{r["name"] for r in f.kernels.rows() if r["family"] == "gemm"} for f in (eager, compiled)]
    assert gemms[0] == gemms[1]
    assert any(r["name"] == "triton_poi_fused_gelu_0" for r in compiled.kernels.rows())


@pytest.mark.parametrize(
    ("run", "device", "torch_device"),
    [
        ("02_mlp_4096_16384_b4096_eager", 4.400, 5.163),
        ("02_swiglu_4096_16384_b4096_eager", 6.963, 8.565),
    ],
)
def test_e9_work_of_unrecorded_steps_is_left_out(run: str, device: float, torch_device: float) -> None:
    facts = facts_of(run)
    everything = int(facts.trace.duration[facts.trace.device_work].sum()) / 1e6
    assert facts.steps.table["device_time"].sum() / 1e6 == pytest.approx(device, abs=0.002)
    assert everything == pytest.approx(torch_device, abs=0.002)


# -- E13, E14: copies and the API table -------------------------------------------------------------------------------


def test_e13_pinned_against_pageable() -> None:
    pinned, pageable = (
        facts_of("07_good_pinned_copy").copies.rows()[0],
        facts_of("07_bad_pageable_copy").copies.rows()[0],
    )
    assert pinned["bandwidth"] == pytest.approx(54, abs=1.5)
    assert pageable["bandwidth"] == pytest.approx(7, abs=0.5)
    assert pageable["call_time"] >= pageable["total"]


def test_e14_the_api_table_has_the_median_that_the_mean_hides() -> None:
    facts = facts_of("04_resnet50_model_to_device_each_step")
    copies = next(row for row in facts.api.rows() if row["name"] == "cudaMemcpyAsync")
    assert copies["count"] == 1923
    assert copies["total"] / 1e6 == pytest.approx(149.2, abs=0.05)
    assert copies["mean"] / 1e3 == pytest.approx(77.6, abs=0.05)
    assert copies["median"] / 1e3 == pytest.approx(13.0, abs=0.05)
    assert copies["min"] / 1e3 == pytest.approx(3.9, abs=0.05)
    assert copies["max"] / 1e3 == pytest.approx(8825, abs=1)


# -- E18 to E20: the small Llama ---------------------------------------------------------------------------------------


def test_e18_prefill_is_host_bound() -> None:
    facts = facts_of("05_llama_prefill_stack", with_unprofiled=True)
    kernels = facts.trace.of(Kind.KERNEL)
    last = kernels[facts.trace.steps.of_event[kernels] == 1]
    assert len(last) == 342
    assert facts.trace.duration[last].max() < 10_000
    assert facts.trace.duration[last].mean() * len(last) / 1e6 == pytest.approx(0.83, abs=0.01)
    assert round(facts.regime.busy_share, 2) == 0.06


def test_e20_the_gpu_annotation_of_backward_lasts_a_microsecond() -> None:
    facts = facts_of("05_llama_train", with_unprofiled=True)
    trace = facts.trace
    projected = [e for e in trace.of(Kind.GPU_ANNOTATION).tolist() if trace.name_of(e) == "backward"]
    assert max(trace.duration[projected]) < 2_000
    assert round(facts.regime.busy_share, 2) == 0.10
