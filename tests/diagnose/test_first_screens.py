"""What the first screen says of recordings that hold something else than a program at work, or too little of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.diagnose.explain import explain, facts_of, report_of
from lanewise.report.model import Report
from lanewise.show.report.one_screen import one_screen
from lanewise.show.report.short_markdown import short_markdown
from lanewise.trace.reader import read
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder
from tests.support.corpus import PUBLIC
from tests.support.text import shown

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"


def screen(of: Report | TraceBuilder | str) -> str:
    """The first screen on one line."""
    if isinstance(of, str):
        of = explain(TRACES / f"{of}.json.gz")
    report = of if isinstance(of, Report) else explain(of.build())
    return " ".join(shown(one_screen(report), width=120).split())


# -- no device work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("d_gpu_program_cpu_activities_only", "What the GPU did was not recorded, though the program used one"),
        ("f_host_rows_of_gpu_program", "What the GPU did was not recorded, though the program used one"),
        ("only_memory_of_a_gpu", "No kernel was launched"),
    ],
)
def test_the_verdict_on_a_gpu_that_was_not_recorded_is_on_the_first_screen(name: str, says: str) -> None:
    assert says in screen(name)
    assert "holds no device work. !" not in screen(name)
    assert "No single fix" not in screen(name)
    assert says in short_markdown(explain(TRACES / f"{name}.json.gz")).splitlines()[0]


def test_launches_without_any_work_are_a_recording_that_lost_it() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm", head=100, tail=100):
            b.call("cudaLaunchKernel")
    assert "What the GPU did is missing from this recording" in screen(b)
    assert explain(b.build()).regime.name == "undetermined"


def test_what_a_finding_would_give_is_not_said_where_the_devices_work_is_lost() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(4):
                with b.op("aten::mm", head=500, tail=100, sequence=7, forward_thread=0):
                    b.call("cudaLaunchKernel")
                b.call("cudaMalloc", duration=3_000)
    of = explain(b.build())
    assert [f.code for f in of.findings if f.kind == "problem"] == []
    assert "MEM101" in [f.code for f in of.findings if f.kind == "statement"]
    assert "less than 1 %" not in screen(of)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("f_missing_records", "record fewer steps at a time"),
        ("f_unlinked_steps", "record the host's activities together with the device's"),
        ("f_wait_unexplained", "record the other processes and cards as well"),
    ],
)
def test_where_nothing_can_be_said_the_screen_says_how_to_find_out(name: str, way: str) -> None:
    text = screen(name)
    assert f"What would help cannot be told from this recording. To find out, {way}" in text
    assert "without the profiler" not in text
    assert way in explain(TRACES / f"{name}.json.gz").verdict


# -- the start of the device -------------------------------------------------------------------------------------------


def cold(*long: float, steps: bool) -> TraceBuilder:
    """So long takes the first launch of each step, or of each piece of a recording without marks; us."""
    b = TraceBuilder()
    for us in long:
        with b.step() if steps else b.op("aten::conv"), b.op("aten::mm"):
            b.launch("gemm", call=us, delay=us + 5)
            for _ in range(20):
                with b.op("aten::add", head=20):
                    b.launch("add", duration=5)
    return b


@pytest.mark.parametrize(("long", "steps"), [((6_500, 5), False), ((6_500,), True)])
def test_loading_kernels_is_the_start_of_a_program_and_not_what_binds_it(long: tuple[float, ...], steps: bool) -> None:
    of = explain(cold(*long, steps=steps).build())
    assert of.regime.name == "undetermined"
    assert "starting the device and loading kernels (cudaLaunchKernel alone took 6.5 ms)" in of.verdict
    assert "run the program for some steps before recording" in screen(of)
    assert [f.code for f in of.findings if f.kind == "problem"] == []


def test_one_step_of_many_that_loads_a_kernel_leaves_the_verdict() -> None:
    of = explain(cold(5, 5, 5, 6_500, 5, steps=True).build())
    assert of.regime.name == "host-bound"
    assert of.regime.step_us < 1_000


def test_a_launch_that_is_long_in_every_step_is_what_the_program_does() -> None:
    of = explain(cold(6_500, 6_500, 6_500, 6_500, steps=True).build())
    assert of.regime.name == "host-bound"
    assert of.regime.shares["dependency"] < 0.02


def test_a_call_of_many_seconds_that_starts_the_device_leaves_nothing_to_gain() -> None:
    b = TraceBuilder()
    with b.op("aten::to"):
        b.call("cudaDeviceGetStreamPriorityRange", duration=24_000_000)
    for _ in range(10):
        with b.op("aten::mm", head=500_000, sequence=3, forward_thread=0):
            b.launch("gemm", duration=1_000)
    of = explain(b.build())
    assert of.regime.name == "undetermined"
    assert "cudaDeviceGetStreamPriorityRange alone took 24.0 s" in of.verdict
    assert [f.code for f in of.findings if f.kind == "problem"] == []


# -- the capture of a graph --------------------------------------------------------------------------------------------


def capture(b: TraceBuilder, launches: int) -> None:
    b.launch("fill")
    b.call("cudaStreamBeginCapture")
    for _ in range(launches):
        with b.op("aten::mm", head=100, tail=20):
            b.call("cudaLaunchKernel", duration=5)
    b.call("cudaStreamEndCapture")
    b.call("cudaGraphInstantiate", duration=200)


def capturing(launches: int, *, steps: int) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            capture(b, launches)
    return b


def test_a_recording_of_a_capture_says_nothing_of_the_replay() -> None:
    of = explain(capturing(40, steps=1).build())
    assert of.regime.name == "undetermined"
    assert "a graph is captured here: 98 % of the launches are only written down" in of.verdict
    assert "record some steps after the capture" in screen(of)
    assert "MEA105" not in screen(of)
    assert [f.code for f in of.findings if f.kind == "problem"] == []


def test_a_program_that_captures_in_every_step_is_one_that_does() -> None:
    of = explain(capturing(40, steps=4).build())
    assert of.regime.name == "host-bound"
    assert "LAU108" in [f.code for f in of.findings]


def test_a_capture_beside_much_work_leaves_the_verdict() -> None:
    b = TraceBuilder()
    with b.step():
        capture(b, 3)
        for _ in range(100):
            with b.op("aten::mm"):
                b.launch("gemm", duration=500)
    assert explain(b.build()).regime.name == "device-bound"


# -- work that does not begin ------------------------------------------------------------------------------------------


def late(us: float, *, file: str = "train.py", other: bool = False) -> TraceBuilder:
    """Each launch begins so much later than it could, with or without another stream that was at work until then."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step(), b.frame(f"{file}(3): step"):
            for _ in range(5):
                b.launch("gemm", duration=400, delay=us)
                if other:
                    b.launch("ncclDevKernel_Broadcast", duration=us - 30, stream="20")
                b.call("cudaDeviceSynchronize", duration=us + 390)
                b.wait(20)
    return b


def test_work_that_does_not_begin_waits_for_nothing_that_was_recorded() -> None:
    of = explain(late(3_000).build())
    assert of.regime.name == "undetermined"
    assert of.regime.shares["dependency"] < 0.02
    assert "launched work does not begin although nothing that was recorded runs" in of.verdict
    assert "record the whole of some steps" in screen(of)


@pytest.mark.parametrize("file", ["C:\\me\\train.py", "torch\\nn\\modules\\module.py"])
@pytest.mark.parametrize("us", [3_000, 1_500])
def test_on_windows_the_driver_submits_late(file: str, us: float) -> None:
    of = explain(late(us, file=file).build())
    assert of.regime.name == "host-bound"
    assert of.regime.shares["dependency"] < 0.02
    assert "the driver collects launches before it submits them" in of.verdict


def test_on_windows_short_delays_are_the_drivers_too() -> None:
    def shares(file: str) -> dict[str, float]:
        b = TraceBuilder()
        for _ in range(6):
            with b.step(), b.frame(f"{file}(3): step"):
                for _ in range(8):
                    b.launch("gemm", duration=40, delay=120)
                    b.call("cudaDeviceSynchronize", duration=170)
        return explain(b.build()).regime.shares

    assert shares("C:\\me\\train.py")["dependency"] < 0.02 < shares("/home/me/train.py")["dependency"]


def test_the_recorder_says_on_which_system_it_ran() -> None:
    b = late(3_000)
    b.metadata["lanewise"] = {"schema": 1, "environment": {"host": {"system": "Windows"}}}
    assert explain(b.build()).regime.name == "host-bound"


def test_work_that_begins_as_another_stream_ends_waited_for_it() -> None:
    of = explain(late(3_000, other=True).build())
    assert of.regime.name == "communication-bound"


def test_a_short_pause_between_operations_is_no_missing_record() -> None:
    of = explain(late(60).build())
    assert of.regime.name == "device-bound"


def test_a_copy_that_stays_in_its_queue_moves_nothing() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step():
            b.launch("gemm", duration=500)
            b.launch("held back", duration=300, delay=5_000)
            with b.op("aten::item"):
                b.copy("DtoH", destination="pageable", size=4, duration=2, delay=5_400, call=5_410)
    of = explain(b.build())
    assert of.regime.shares["transfer"] < 0.1
    assert of.regime.shares["unknown"] > 0.5


# -- what to do --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("b_sync_without_wait", "Fix: take resize (preprocess.py:23) out of the loop"),
        ("m_gap_named_after_daemon", "Fix: find out what this waits for"),
        ("k_rank0_no_collective_args", "Fix: record with stacks"),
    ],
)
def test_the_change_fits_what_fills_the_gap(name: str, says: str) -> None:
    assert says in screen(name)
    assert "gc.freeze" not in screen(name)


def test_each_change_leaves_less_than_the_one_above() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for at in range(60):
                with b.op(f"aten::op{at * at * at % 53}", head=25, tail=10):
                    b.launch(f"small{at % 7}", duration=4)
            with b.op("aten::mm", head=20):
                b.launch("few_blocks", duration=150, grid=(4, 1, 1))
            with b.op("aten::item"):
                b.copy("DtoH", destination="pageable", size=4, duration=2)
    of = explain(b.build())
    problems = [f for f in of.findings if f.kind == "problem" and f.recoverable_us_per_step > 0]
    # Many launches are what binds it; that a kernel has few blocks costs nothing before they are mended.
    assert [f.code for f in problems][:2] == ["LAU101", "KER106"]
    left = of.regime.step_us
    for one in problems:
        left -= one.recoverable_us_per_step
        assert one.leaves_us_per_step == pytest.approx(left, abs=0.01)


def test_a_device_that_computes_all_the_time_is_shown_with_its_kernels() -> None:
    text = screen("c_deepep_overlapped")
    assert "Kernels that take most" in text
    assert "25 % 24 5.90 ms deep_ep::internode::combine" in text


def test_products_are_not_told_to_be_fused() -> None:
    text = screen("p_head_then_busy")
    assert "Try: compute less, or with quicker kernels for these shapes: 100 % of it is matrix products" in text
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.launch("vectorized_elementwise_kernel", duration=900)
    assert "fuse pointwise operations" in screen(b)


def test_where_changes_give_little_the_screen_says_what_most_of_the_step_is() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.launch("gemm", duration=3_000)
            b.launch("few_blocks", duration=400, grid=(16, 1, 1))
            b.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", duration=6_000, stream="20", delay=3_400)
            b.call("cudaDeviceSynchronize", duration=9_410)
    of = explain(b.build())
    assert of.regime.name == "communication-bound"
    assert [f.code for f in of.findings if f.kind == "problem"]
    assert "compare the ranks' traces" in screen(of)


def test_few_launches_of_a_mixed_run_have_a_way_on() -> None:
    assert "No single fix" not in screen("f_privateuse1_runtime")
    assert "LAU111" in screen("f_privateuse1_runtime")


def test_replays_that_wait_for_the_host_have_a_way_on() -> None:
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            b.launch(["a", "b", "c"], duration=9, call=20, delay=22)
            b.wait(50)
    of = explain(b.build())
    assert of.regime.name == "mixed"
    assert "Try: give the device more to do per launch: a larger batch, more in each graph" in screen(of)
    assert "more in each graph" in of.verdict


def test_graph_nodes_are_no_launches() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(25):
                with b.op("aten::add", head=40):
                    b.launch("small", duration=4)
            b.launch(["a", "b", "c"], duration=4)
    of = explain(b.build())
    title = next(f.title for f in of.findings if f.code == "LAU101")
    assert title.startswith("25 launches per step for kernels of about 4.00 us")


def test_a_wait_for_work_from_before_the_recording_is_no_cost_of_the_readback() -> None:
    text = screen("a_leak_on_second_stream")
    assert "463.1 ms" not in text.split("MEA111")[1]


def test_readbacks_that_differ_much_are_not_given_by_a_typical_one() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for us in (10, 10, 10, 4_000):
                b.launch("gemm", duration=us)
                with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
                    b.copy("DtoH", destination="pageable", size=4, duration=2, delay=us + 10, call=us + 14)
    title = next(f.title for f in explain(b.build()).findings if f.code == "SYN101")
    assert "each time" not in title
    assert "of it once" in title


def test_a_wait_for_a_collective_gives_at_most_what_does_not_need_it() -> None:
    of = explain(TRACES / "f_sync_on_collective.json.gz")
    wait = next(f for f in of.findings if f.code == "SYN105")
    assert wait.bound
    assert "let the stream wait for the collective" in wait.fix


def test_a_replay_that_takes_longer_than_the_recording_is_not_believed() -> None:
    path = PUBLIC / "HTA/mtia_inference_trace/mtia_inference_rank_0.json.gz"
    if not path.exists():
        pytest.skip("a public trace")
    facts = facts_of(read(path))
    assert not facts.unprofiled.faithful
    of = report_of(facts)
    assert of.regime.shares["compute"] == pytest.approx(0.88, abs=0.01)
    idle = of.regime.step_us * (1 - of.regime.shares["compute"])
    assert [f.code for f in of.findings if f.kind == "problem"] == ["SYN105"]
    assert all(f.bound and f.recoverable_us_per_step <= idle for f in of.findings if f.kind == "problem")


def compiled(*, region: bool) -> TraceBuilder:
    """Pointwise chains and views, in compiled code or not."""
    b = TraceBuilder()
    half = "c10::Half"
    for _ in range(4):
        with b.step(), b.op("## Call CompiledFxGraph x ##" if region else "aten::mine"):
            for _ in range(6):
                for name in ("add", "mul", "add"):
                    with b.op(f"aten::{name}", dims=[[1 << 20]] * 2, types=[half] * 2, head=5):
                        b.launch("vectorized_elementwise_kernel", duration=40)
                for _ in range(5):
                    with b.op("aten::view", head=30):
                        pass
    return b


@pytest.mark.parametrize("region", [True, False])
def test_compiled_code_is_not_told_to_compile(region: bool) -> None:
    of = explain(compiled(region=region).build())
    fixes = {f.code: f.fix for f in of.findings if f.kind == "problem"}
    assert ("LAU102" in fixes) is not region
    assert any("`torch.compile`" in fix for fix in fixes.values()) is not region
    assert fixes["LAU105"].startswith("hoist" if region else "`torch.compile`")


def test_what_the_cpu_computes_comes_before_smaller_causes() -> None:
    problems = [f.code for f in explain(TRACES / "g_host_after_last_kernel.json.gz").findings if f.kind == "problem"]
    assert problems[0] == "LAU112"


def test_more_work_than_launches_is_no_share_of_the_launches() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.call("cudaLaunchKernel")
            for at in range(20):
                b.kernel(f"k{at}", b.now + 10 * at, 8)
            b.wait(300)
    told = next(f.title for f in explain(b.build()).findings if f.code == "MEA108")
    assert "of 3 launches (100 %)" not in told
    assert told.startswith("57 device ops have no launch in the trace")


# -- what was not seen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "part"), [("other-threads", "one of several threads"), ("child-processes", "one of several processes")]
)
def test_a_verdict_on_a_part_of_the_program_says_so(code: str, part: str) -> None:
    b = TraceBuilder(
        metadata={"lanewise": {"schema": 1, "faults": [{"code": code, "sentence": "others worked, too; see them so"}]}}
    )
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.wait(500)
    text = screen(b)
    assert f"What was recorded, {part}, ran on the CPU" in text
    assert "others worked, too; see them so" in text
    assert "Everything ran" not in text


def test_workers_of_a_data_loader_are_no_other_part_of_the_program() -> None:
    fault = {"code": "child-processes", "sentence": "2 child processes ran"}
    b = TraceBuilder(metadata={"lanewise": {"schema": 1, "faults": [fault]}})
    for _ in range(3):
        with b.step():
            b.slice("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", Kind.ANNOTATION, b.now, 300)
            b.wait(301)
            with b.op("aten::mm"):
                b.wait(500)
    assert "Everything ran on the CPU" in screen(b)
