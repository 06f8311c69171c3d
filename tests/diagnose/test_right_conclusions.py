"""What a specialist would conclude from small traces in which it is easy to conclude something else."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lanewise.compare.diff import diff
from lanewise.diagnose.explain import explain, facts_of
from lanewise.diagnose.sections.overlap import overlap_section
from lanewise.measure.distributed.job import job_of
from lanewise.measure.distributed.ranks import collectives
from lanewise.report.model import Finding, Report
from lanewise.show.report.terminal import render
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder
from tests.support.text import shown

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"


@cache
def report(name: str) -> Report:
    """The report on one of the small traces, by the beginning of its name."""
    (file,) = TRACES.glob(f"{name}*.json.gz")
    return explain(file)


def codes(of: Report) -> list[str]:
    """Codes of the problems that would give something, in their order."""
    return [f.code for f in of.findings if f.kind == "problem" and f.recoverable_us_per_step > 0]


def finding(of: Report, code: str) -> Finding | None:
    return next((f for f in of.findings if f.code == code), None)


# -- device work that was not recorded ---------------------------------------------------------------------------------


def test_a_gpu_program_recorded_without_gpu_activities_did_not_run_on_the_cpu() -> None:
    of = report("d_gpu_program_cpu_activities_only")
    assert "What the GPU did was not recorded" in of.verdict
    assert "aten::cudnn_convolution runs on nothing else" in of.verdict
    assert finding(of, "MEA109") is None


@pytest.mark.parametrize(
    "name",
    [
        "aten::miopen_convolution",
        "aten::_scaled_dot_product_flash_attention",
        "npu::npu_rotary_mul",
        "aten::_mps_convolution",
        "aten::record_stream",
        "xccl:all_reduce",
    ],
)
def test_operators_of_a_device_show_that_there_was_one(name: str) -> None:
    b = TraceBuilder(metadata={})
    for _ in range(3):
        with b.step(), b.op(name):
            b.wait(100)
    assert f"{name} runs on nothing else" in explain(b.build()).verdict


@pytest.mark.parametrize(
    "name", ["aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mkldnn_convolution", "gloo:x"]
)
def test_operators_of_the_cpu_do_not(name: str) -> None:
    b = TraceBuilder(metadata={})
    for _ in range(3):
        with b.step(), b.op(name):
            b.wait(100)
    assert "Everything ran on the CPU" in explain(b.build()).verdict


def test_a_program_that_only_asks_for_device_memory_is_told_so() -> None:
    of = report("only_memory_of_a_gpu")
    assert "No kernel was launched" in of.verdict
    assert codes(of) == ["MEM101"]


def test_a_device_without_a_name_is_a_device() -> None:
    head = shown(render(report("e_device_without_name"))).splitlines()[1]
    assert "a GPU that the file does not name" in head


# -- work from before the recording ------------------------------------------------------------------------------------


def test_a_backlog_on_the_second_stream_is_not_the_steps() -> None:
    of = report("a_leak_on_second_stream")
    assert of.regime.name == "device-bound"
    assert of.regime.shares["compute"] > 0.9
    assert of.regime.recorded_step_us < 11_000
    leak = finding(of, "MEA111")
    assert leak is not None
    assert "waited 463.3 ms" in leak.title


def test_a_step_begins_when_the_device_is_free_of_what_came_before() -> None:
    of = report("p_head_then_busy")
    assert of.regime.name == "device-bound"
    assert of.regime.shares["compute"] > 0.99
    assert 10_300 < of.regime.step_us < 10_500


def first_operation_waits(us: float, *, work: float) -> TraceBuilder:
    """The first operation waits so long in its queue; then the host is slow for so long."""
    b = TraceBuilder()
    b.launch("gemm", delay=us, duration=100)
    b.wait(us)
    for _ in range(round(work / 500)):
        b.wait(480)
        with b.op("aten::mm"):
            b.launch("gemm", duration=20)
    return b


def test_a_long_wait_of_the_first_operation_alone_says_that_the_device_is_behind() -> None:
    of = explain(first_operation_waits(20_000, work=10_000).build())
    assert of.regime.name == "device-bound"
    assert "the host had run 20.0 ms ahead" in of.verdict


def test_a_short_one_says_nothing_of_what_follows() -> None:
    of = explain(first_operation_waits(1_000, work=10_000).build())
    assert of.regime.name == "host-bound"
    assert finding(of, "MEA111") is not None


def test_a_stream_that_waits_for_another_one_does_not_wait_for_earlier_work() -> None:
    b = TraceBuilder()
    for _ in range(20):
        b.launch("gemm", duration=500)
    b.launch("copy out", stream="9", delay=9_900)  # its event comes with the last product
    assert finding(explain(b.build()), "MEA111") is None


# -- a step ends when the host is done, too ----------------------------------------------------------------------------


def test_a_single_step_lasts_until_the_host_is_done() -> None:
    of = report("g_host_after_last_kernel")
    assert of.regime.recorded_step_us == pytest.approx(100_000, rel=0.01)
    assert of.regime.name == "host-bound"


def test_a_recording_without_marks_lasts_until_its_last_call() -> None:
    b = TraceBuilder()
    with b.op("aten::fill_"):
        b.launch("fill")
    for _ in range(10):
        with b.op("aten::mm"):
            b.wait(1_000)
    b.call("cudaDeviceSynchronize", duration=50_000)
    assert explain(b.build()).regime.recorded_step_us == pytest.approx(10_030, rel=0.01)


# -- waits that cost nothing -------------------------------------------------------------------------------------------


def test_a_synchronise_that_returns_at_once_does_not_claim_the_idle_time_after_it() -> None:
    of = report("b_sync_without_wait")
    seen = finding(of, "SYN105")
    assert seen is not None
    assert seen.kind == "note"
    assert "10.0 us in all" in seen.title
    assert "late by 10.0 us" in seen.title
    assert codes(of)[0] == "LAU110"


def test_a_wait_that_nothing_follows_is_not_taken_for_one_that_something_follows() -> None:
    b = TraceBuilder()
    for _ in range(2):
        b.launch("gemm", duration=300)
        b.call("cudaDeviceSynchronize", duration=300)
        b.wait(150)
    b.launch("gemm", duration=300)
    for _ in range(8):
        b.call("cudaDeviceSynchronize", duration=300)
    seen = finding(explain(b.build()), "SYN105")
    assert seen is not None
    assert seen.values["after"].value == pytest.approx(300e3, rel=0.05)


# -- kernels beside communication --------------------------------------------------------------------------------------


def test_kernels_beside_communication_do_not_leave_multiprocessors_idle() -> None:
    of = report("c_deepep_overlapped")
    assert finding(of, "KER106") is None
    hotspot = finding(of, "KER101")
    assert hotspot is not None
    assert "100 %" in hotspot.title


def test_a_small_grid_beside_another_stream_is_no_idle_device() -> None:
    alone, beside = TraceBuilder(), TraceBuilder()
    for b in (alone, beside):
        for _ in range(3):
            with b.step():
                b.launch("gather_rows", grid=(40, 1, 1), duration=500)
                if b is beside:
                    b.launch("other_rows", grid=(92, 1, 1), duration=500, stream="9", delay=3)
                b.call("cudaDeviceSynchronize", duration=500)
    assert finding(explain(alone.build()), "KER106") is not None
    assert finding(explain(beside.build()), "KER106") is None


# -- gaps ----------------------------------------------------------------------------------------------------------------


def test_a_gap_is_named_after_what_the_launching_thread_does_in_it() -> None:
    gap = finding(report("m_gap_named_after_daemon"), "LAU110")
    assert gap is not None
    assert "acquire_read" in gap.title
    assert "daemon" not in gap.title


def test_a_gap_of_many_short_calls_has_their_name() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.frame("train.py(1): loop"):
            for _ in range(20):
                with b.frame("socket.py(10): recv"):
                    b.wait(100)
            b.launch("gemm")
    gap = finding(explain(b.build()), "LAU110")
    assert gap is not None
    assert "recv (socket.py:10)" in gap.title


# -- families ------------------------------------------------------------------------------------------------------------


def test_an_embedding_lookup_is_no_matrix_product() -> None:
    kernels = report("h_fbgemm_family").tables["kernels"]
    assert {row["family"] for row in kernels.rows} == {"embedding and indexing"}


# -- collectives whose arguments are not recorded ----------------------------------------------------------------------


def test_ranks_are_matched_by_names_order_and_sizes_where_no_arguments_are_recorded() -> None:
    first, second = (facts_of(read(file)) for file in sorted(TRACES.glob("k_rank*")))
    ranks = job_of([first, second]).ranks
    assert ranks is not None
    assert ranks.rank == (0, 1)
    assert ranks.unmatched == 0
    assert ranks.last.tolist() == [1] * len(ranks.last)
    assert collectives(first).bytes.tolist() == [4 * 394_241] * 3


@pytest.mark.parametrize("sizes", [True, False])
def test_all_reduces_that_nobody_put_into_buckets(sizes: bool) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(404):
                dims, types = ([[1_000]], ["float"]) if sizes else (None, None)
                with b.op("c10d::allreduce_"), b.op("nccl:all_reduce", dims=dims, types=types, head=20, tail=20):
                    b.launch("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", duration=15, stream="20")
    seen = finding(explain(b.build()), "DIS103")
    assert seen is not None
    assert "404 collectives per step" in seen.title
    assert ("1.62 MB" in seen.title) is sizes
    assert seen.recoverable_us_per_step > 0


# -- backward work -------------------------------------------------------------------------------------------------------


def forward_names(trace: Trace) -> dict[str, str]:
    """Name of the forward row of each backward row that has one."""
    forward = trace.links.forward_of
    return {trace.name_of(int(row)): trace.name_of(int(forward[row])) for row in np.flatnonzero(forward >= 0)}


def test_backward_work_does_not_stand_under_what_merely_shares_its_number() -> None:
    (file,) = TRACES.glob("q_*")
    assert forward_names(read(file)) == {}


def test_backward_work_stands_under_its_forward_operator() -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::linear", sequence=7, forward_thread=0), b.op("aten::addmm", sequence=7, forward_thread=0):
            b.launch("gemm")
        with b.op("MyFunction", sequence=8, forward_thread=0):
            b.launch("mine")
        with b.op("aten::relu_", sequence=9, forward_thread=0):
            b.launch("relu")
        for name, number in (
            ("ReluBackward0", 9),
            ("MyFunctionBackward", 8),
            ("AddmmBackward0", 7),
            ("MulBackward0", 7),
        ):
            with b.op(name, sequence=number, forward_thread=1):
                b.launch("backward")
    assert forward_names(b.build()) == {
        "ReluBackward0": "aten::relu_",
        "MyFunctionBackward": "MyFunction",
        "AddmmBackward0": "aten::addmm",
        "MulBackward0": "aten::addmm",  # no operator here is called `mul`: its name is no evidence
    }


# -- a device that computes, and waits -----------------------------------------------------------------------------------


def test_a_device_bound_run_that_waits_for_the_host_hears_of_both() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(12):
                b.launch("gemm", duration=500)
            b.call("cudaDeviceSynchronize", duration=6_000)
            for at in range(200):
                name = f"aten::op{at * at * at % 89}"
                with b.op(name, head=12, tail=3):
                    b.launch(name, duration=2, delay=6, call=5)
    of = explain(b.build(), unprofiled_us=10_000)
    assert of.regime.name == "device-bound"
    assert "it also waits for the host" in of.verdict
    assert "LAU101" in codes(of)


# -- patterns ------------------------------------------------------------------------------------------------------------


def attention(b: TraceBuilder, *between: str) -> None:
    """Attention by hand over 4 heads of 64 x 64 scores, with other operators among its own."""
    half = "c10::Half"
    scores = [4, 64, 64]
    with b.op("aten::bmm", dims=[[4, 64, 32], [4, 32, 64]], types=[half, half]):
        b.launch("gemm", duration=100)
    for name in ("aten::div", *between, "aten::masked_fill_"):
        dims = scores if name.startswith("aten::") and name != "aten::bitwise_not" else [64, 64]
        with b.op(name, dims=[dims], types=[half]):
            b.launch("elementwise", duration=100)
    with b.op("aten::_softmax", dims=[scores], types=[half]):
        b.launch("softmax", duration=100)
    with b.op("aten::bmm", dims=[scores, [4, 64, 32]], types=[half, half]):
        b.launch("gemm", duration=100)


@pytest.mark.parametrize("between", [(), ("aten::bitwise_not",), ("aten::tril", "mine::bias"), ("aten::add",) * 5])
def test_attention_by_hand_is_found_with_other_operators_in_between(between: tuple[str, ...]) -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            attention(b, *between)
    seen = finding(explain(b.build()), "KER109")
    assert seen is not None
    # What makes the mask is no part of the chain.
    assert all("bitwise" not in row["operator"] for row in seen.evidence[0].rows)  # type: ignore[union-attr]


def norm(b: TraceBuilder, us: float) -> None:
    half = "c10::Half"
    for name, part in (("pow", 1), ("mean", 0.5), ("add", 0.1), ("rsqrt", 0.1), ("mul", 1), ("mul", 1)):
        with b.op(f"aten::{name}", dims=[[64, 4096]], types=[half]):
            b.launch("elementwise", duration=us * part)


def test_a_single_norm_that_takes_long_is_found_and_a_short_one_is_not() -> None:
    long, short = TraceBuilder(), TraceBuilder()
    for b, us in ((long, 60.0), (short, 2.0)):
        for _ in range(4):
            with b.step():
                norm(b, us)
                b.launch("gemm", duration=20_000)
    assert finding(explain(long.build()), "KER111") is not None
    assert finding(explain(short.build()), "KER111") is None


def test_copies_are_no_tiny_kernels() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(12):
                with b.op("aten::addmm", head=20):
                    b.launch("gemm", duration=3)
            for _ in range(16):
                with b.op("aten::copy_", head=20):
                    b.copy("DtoH", size=1024, duration=2)
    assert finding(explain(b.build()), "LAU101") is None


# -- fixes that fit their evidence ---------------------------------------------------------------------------------------


def test_full_precision_convolutions_are_switched_by_cudnn_not_by_the_products_switch() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::cudnn_convolution"):
            b.launch("implicit_convolve_sgemm", duration=500)
    seen = finding(explain(b.build()), "KER104")
    assert seen is not None
    assert "cudnn.allow_tf32" in seen.fix
    assert "matmul_precision" not in seen.fix


def test_layout_copies_of_convolutions_want_channels_last() -> None:
    b = TraceBuilder()
    shape, half = [8, 64, 56, 56], "c10::Half"
    for _ in range(3):
        with b.step(), b.op("aten::_convolution"):
            with (
                b.op("aten::contiguous", dims=[shape], types=[half]),
                b.op("aten::clone", dims=[shape], types=[half]),
                b.op("aten::copy_", dims=[shape, shape], types=[half, half], strides=[[1, 2, 3, 4], [4, 3, 2, 1]]),
            ):
                b.launch("elementwise", duration=300)
            b.launch("sm80_xmma_fprop_implicit_gemm", duration=300)
    seen = finding(explain(b.build()), "MEM104")
    assert seen is not None
    assert "channels_last" in seen.fix


def test_a_cast_by_autocast_under_no_grad_is_not_recorded_for_backward() -> None:
    b = TraceBuilder()
    for step in range(3):
        with b.step():
            for at in range(4):
                with b.op("aten::linear"), b.op("aten::to", sequence=10 * step + at, forward_thread=0):
                    b.launch("cast")
    assert finding(explain(b.build()), "OPT104") is None


@pytest.mark.parametrize(("inside", "says"), [(True, "Enter autocast once"), (False, "stand in the program")])
def test_the_fix_of_a_conversion_says_who_makes_it(inside: bool, says: str) -> None:
    b = TraceBuilder()

    def cast() -> None:
        dims, types = [[512, 512]] * 2, ["c10::BFloat16", "float"]
        with b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_", dims=dims, types=types):
            b.launch("cast", duration=50)

    for _ in range(3):
        with b.step():
            for _ in range(4):
                if inside:
                    with b.op("aten::linear"):
                        cast()
                else:
                    cast()
                b.launch("gemm", duration=100)
    seen = finding(explain(b.build()), "MEM106")
    assert seen is not None
    assert says in seen.fix


def test_more_graphs_are_not_the_fix_where_many_are_launched() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(30):
                b.wait(30)
                b.launch(["piece_a", "piece_b"], duration=2)
                with b.op("aten::add", head=20):
                    b.launch("elementwise", duration=2)
    seen = finding(explain(b.build()), "LAU101")
    assert seen is not None
    assert "30 are launched per step already" in seen.fix


# -- a way on ------------------------------------------------------------------------------------------------------------


def test_a_host_bound_step_has_a_way_on() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(4):
                with b.op("aten::addmm", head=100, tail=100):
                    b.launch("gemm", duration=15)
    assert codes(explain(b.build())) == ["LAU111"]


def test_the_headline_and_the_list_say_the_same_where_no_finding_helps() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.launch("gemm", duration=100)
            b.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", duration=2_000, stream="20", delay=100)
            b.launch("gemm", duration=100, delay=2_100)
            b.call("cudaDeviceSynchronize", duration=2_200)
    of = explain(b.build())
    text = " ".join(shown(render(of)).split())
    assert of.regime.name == "communication-bound"
    assert "compare the ranks' traces" in of.verdict
    assert text.count("compare the ranks' traces") == 2


def test_the_start_of_the_device_is_said_where_no_steps_are_marked() -> None:
    b = TraceBuilder()
    with b.op("aten::to"):
        b.call("cudaDeviceGetStreamPriorityRange", duration=30_000_000)
    for _ in range(10):
        with b.op("aten::mm"):
            b.launch("gemm", duration=1_000)
    seen = finding(explain(b.build()), "MEA101")
    assert seen is not None
    assert "cudaDeviceGetStreamPriorityRange alone took 30.0 s" in seen.title


# -- words ---------------------------------------------------------------------------------------------------------------


def test_a_recording_without_marks_has_no_steps_to_speak_of() -> None:
    text = shown(render(report("a_leak_on_second_stream"))).split("What ran")[0]
    said = [line for line in text.splitlines() if not line.strip().startswith(("Verify:", "readbacks per step"))]
    assert not [line for line in said if "per step" in line]
    assert "per step" in shown(render(report("m_gap_named_after_daemon")))


def test_a_detector_has_no_generation_loop() -> None:
    def reads(*, fed_back: bool) -> str:
        b = TraceBuilder()
        for _ in range(3):
            with b.step():
                for _ in range(4):
                    if fed_back:
                        with b.op("aten::embedding"):
                            b.launch("index")
                    with b.op("aten::argmax"):
                        b.launch("reduce")
                    with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
                        b.copy("DtoH", destination="pageable", size=8, duration=2)
        seen = finding(explain(b.build()), "SYN101")
        assert seen is not None
        return seen.title

    assert "generation loop" in reads(fed_back=True)
    assert "generation loop" not in reads(fed_back=False)


def test_sides_with_one_file_name_are_told_apart(tmp_path: Path) -> None:
    for folder, name in (("one", "q"), ("two", "m")):
        (file,) = TRACES.glob(f"{name}_*")
        (tmp_path / folder).mkdir()
        shutil.copy(file, tmp_path / folder / "trace.json.gz")
    compared = diff(tmp_path / "one" / "trace.json.gz", tmp_path / "two" / "trace.json.gz", anyway=True)
    assert (compared.base.label, compared.others[0].label) == ("one/trace", "two/trace")


def test_what_a_broken_file_held_is_shown_without_escapes(tmp_path: Path) -> None:
    (file,) = TRACES.glob("q_*")
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(file.read_bytes() + b"\x93\x00\xffrest")
    (note,) = (n.text for n in explain(broken).health if "after the end" in n.text)
    assert "\\x" not in note
    assert "93 00 ff" in note


def test_two_streams_are_both_busy_not_two_of_two_or_more() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.launch("gemm", duration=500)
            b.launch("copy out", duration=400, stream="9")
    section = overlap_section(facts_of(b.build()))
    assert "both of its streams are busy at once" in str(section.statements[0])
