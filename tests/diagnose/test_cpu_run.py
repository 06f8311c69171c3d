"""A run on the CPU: what its time goes to, and nothing about a device that it does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.diagnose.explain import explain, facts_of
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.report.markdown import report_markdown
from lanewise.show.report.terminal import print_report
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder

FLOAT = ["float", "float"]
DEVICE_WORDS = ("device busy", "kernels", "launches", "launch to start", "undetermined", "device total", "a GPU or")


def training(
    steps: int = 4, *, steps_marked: bool = True, dtype: str = "float", recorded: dict[str, Any] | None = None
) -> Trace:
    """Steps of 1000 us: a product of 600, a pointwise operator of 200, the rest Python."""
    b = TraceBuilder(metadata={"lanewise": recorded} if recorded else {})

    def body() -> None:
        with b.frame("train.py(7): step"):
            b.wait(99)
            with b.op("aten::mm", dims=[[100, 200], [200, 300]], types=[dtype, dtype], head=0, tail=0):
                b.wait(500)
                with b.op("aten::as_strided", dims=[[100, 200]], types=[dtype], head=0, tail=0):
                    b.wait(20)
                b.wait(80)
            with b.op("aten::add", dims=[[100, 300], [100, 300]], types=[dtype, dtype], head=0, tail=0):
                b.wait(200)
            b.wait(100)

    for _ in range(steps):
        if steps_marked:
            with b.step(head=0, tail=0):
                body()
        else:
            body()
    return b.build()


def sleeping(*, stacks: bool, loader: str = "") -> Trace:
    """Steps of 1000 us: 850 in a function of the program that sleeps (or in a data loader), 100 in a product."""
    b = TraceBuilder(metadata={})

    @contextmanager
    def frame(name: str) -> Iterator[None]:
        if not stacks:
            yield
            return
        with b.frame(name):
            yield

    with frame("train.py(1): <module>"):
        for _ in range(4):
            with b.step(head=0, tail=0):
                fetch = b.span(f"enumerate(DataLoader)#{loader}.__next__", head=0, tail=0) if loader else nullcontext()
                with frame("data.py(4): data_slow"), frame("<built-in function sleep>"), fetch:
                    b.wait(850)
                with frame("train.py(7): step"):
                    with b.op("aten::mm", head=0, tail=0):
                        b.wait(100)
                    b.wait(50)
    return b.build()


def test_functions_count_beside_operators_where_stacks_show_them() -> None:
    trace = sleeping(stacks=True)
    report = explain(trace)
    assert "sleep in data_slow (data.py:4)" in report.verdict
    assert report.verdict.index("data_slow") < report.verdict.index("aten::mm")
    first, second = facts_of(trace).functions.rows(2)
    assert (first["function"], first["inside"]) == ("data.py(4): data_slow", "<built-in function sleep>")
    assert first["share"] == pytest.approx(0.85, abs=0.01)
    assert (second["function"], second["inside"]) == ("train.py(7): step", "")
    assert second["share"] == pytest.approx(0.05, abs=0.01)  # without the operator in it
    assert "data_slow (data.py:4)" in text_of(report)


def test_functions_of_other_threads_and_of_before_the_steps_do_not_count() -> None:
    b = TraceBuilder(metadata={})
    with b.frame("train.py(1): <module>"):
        b.wait(5000)  # before the first step
        for _ in range(4):
            with b.step(head=0, tail=0), b.op("aten::mm", head=0, tail=0):
                b.wait(900)
    idle = b.slice("threading.py(9): wait", Kind.PYTHON, 0, 9000, lane=b.lane("host", "1", "77"))
    trace = b.build()
    assert trace.name_of(idle) == "threading.py(9): wait"
    rows = facts_of(trace).functions.rows(5)
    assert not [row for row in rows if row["share"] > 0.02], rows
    assert "aten::mm" in explain(trace).verdict
    assert "wait" not in explain(trace).verdict


def test_time_outside_of_operators_is_said_with_how_to_see_it_where_stacks_are_missing() -> None:
    verdict = explain(sleeping(stacks=False)).verdict
    assert "90 % of the step is spent outside operators" in verdict
    assert "`lanewise run --stacks` names the functions" in verdict


@pytest.mark.parametrize(
    ("loader", "how"),
    [
        ("_SingleProcessDataLoaderIter", "makes them itself (num_workers=0)"),
        ("_MultiProcessingDataLoaderIter", "waits for its workers"),
    ],
)
def test_time_in_a_data_loader_is_called_so(loader: str, how: str) -> None:
    report = explain(sleeping(stacks=False, loader=loader))
    assert "(85 % in the data loader)" in report.verdict
    told = " ".join(str(statement) for statement in report.statements)
    assert "in another 85 % the program fetches its next batch from the data loader" in told
    assert how in told
    assert "the rest (5.0 %) is Python" in told


def text_of(report: Report) -> str:
    import io

    from rich.console import Console

    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=110, highlight=False, markup=False))
    return buffer.getvalue()


def test_time_is_that_of_operators_with_their_arguments() -> None:
    cpu = facts_of(training()).cpu
    first, second, third = cpu.operators.rows()
    assert (first["operator"], first["calls"], first["time"], first["dtype"]) == ("aten::mm", 3, 1_740_000, "float32")
    assert (second["operator"], second["time"]) == ("aten::add", 600_000)
    assert (third["operator"], third["time"]) == ("aten::as_strided", 60_000)
    assert first["share"] == pytest.approx(1740 / 2400)
    # A view inside of it does none of its work.
    assert first["flops"] == 2 * 100 * 200 * 300
    assert first["flop_rate"] == pytest.approx(2 * 100 * 200 * 300 / 580e-6)
    assert cpu.inside == pytest.approx(0.8)
    assert cpu.steps["operators"].tolist() == [3] * 4
    assert cpu.steps["inside"].tolist() == [800_000] * 4


def test_an_operator_that_leaves_the_work_to_others_has_no_rate() -> None:
    b = TraceBuilder(metadata={})
    for _ in range(3):
        with (
            b.step(),
            b.op("aten::linear", dims=[[10, 20], [30, 20]], types=FLOAT),
            b.op("aten::mm", dims=[[10, 20], [20, 30]], types=FLOAT),
        ):
            b.wait(100)
    rows = {row["operator"]: row["flop_rate"] for row in Facts(b.build()).cpu.operators.rows()}
    assert rows["aten::mm"] > 0
    assert rows["aten::linear"] != rows["aten::linear"]


@pytest.mark.parametrize("render", [text_of, report_markdown], ids=["terminal", "markdown"])
def test_the_report_says_nothing_about_a_device(render: Callable[[Report], str]) -> None:
    text = render(explain(training()))
    assert [word for word in DEVICE_WORDS if word in text] == []
    assert "aten::mm" in text
    assert "[100,200] x [200,300]" in text.replace("\\", "")
    assert "train.py:7" in text.replace("\\", "")
    assert "Operators run in 80 % of the steps; the rest (20 %)" in " ".join(text.split())
    assert "20.7 GFLOP/s" in text


def test_advice_is_not_about_gpus() -> None:
    text = " ".join(text_of(explain(training())).split())
    assert "lanewise.optimize tries other numbers of threads" in text
    assert "No single fix would" not in text
    assert "further checks speak of a GPU's time" in text


def test_the_steps_show_what_is_inside_and_outside_of_operators() -> None:
    report = explain(training())
    assert [column.key for column in report.steps.table.columns] == [
        "number",
        "period",
        "operators",
        "inside",
        "outside",
    ]
    row = report.steps.table.rows[1]
    assert (row["number"], row["period"], row["inside"], row["outside"]) == ("#3", 1_000_000, 800_000, 200_000)
    assert report.steps.gaps is None
    assert set(report.tables) == {"cpu", "functions", "operators"}
    assert not any(column.key.startswith("device") for column in report.tables["operators"].columns)


def test_threads_and_cores_are_told_where_they_were_recorded() -> None:
    environment = {"torch": {"threads": 2}, "host": {"cores_allowed": 8, "processor": "A CPU"}}
    report = explain(training(recorded={"schema": 1, "environment": environment}))
    assert "Each operator may use 2 threads on 8 cores (A CPU)." in [str(one) for one in report.statements]
    for odd in ({"torch": {"threads": "many"}}, {"torch": 3, "host": []}, {}):
        report = explain(training(recorded={"schema": 1, "environment": odd}))
        assert not any("thread" in str(one) for one in report.statements)


@pytest.mark.parametrize(
    ("dtype", "said", "hint"),
    [("float", "float32", False), ("double", "float64", True), ("c10::BFloat16", "bfloat16", False)],
)
def test_the_type_of_the_matrix_work_is_named(dtype: str, said: str, hint: bool) -> None:
    (told,) = [str(one) for one in explain(training(dtype=dtype)).statements if "Matrix work" in str(one)]
    assert f"all of it in {said}" in told
    assert ("Single precision moves half of the bytes" in told) == hint


def test_equal_calls_that_take_unequal_time_are_told() -> None:
    def program(*times: float) -> Trace:
        b = TraceBuilder(metadata={})
        for duration in (10.0, *times):
            with b.step(), b.op("aten::mm", dims=[[8, 8], [8, 8]], types=FLOAT, head=0, tail=0):
                b.wait(duration)
        return b.build()

    cpu = facts_of(program(10, 20, 30)).cpu
    assert cpu.operators["best"].tolist() == [10_000]
    assert cpu.above_best == pytest.approx(30 / 60)
    (told,) = [str(one) for one in explain(program(10, 20, 30)).statements if "Equal calls" in str(one)]
    assert "50 % of the operators' self time" in told
    assert "aten::mm: 10.0 us at best, 20.0 us in the mean" in told
    for steady in (program(10, 12, 14), program(50)):
        assert not any("Equal calls" in str(one) for one in explain(steady).statements)


def test_a_recording_without_steps_is_one_region() -> None:
    report = explain(training(steps_marked=False))
    assert "of the recording" in str(report.statements[0])
    assert report.tables["cpu"].rows[0]["calls"] == 4
    assert "per step" not in report.tables["cpu"].title


def test_the_time_of_a_step_is_not_held_against_a_recording_without_steps() -> None:
    recorded = {"schema": 1, "unprofiled_step_us": 100.0, "step_source": "function"}
    assert explain(training(recorded=recorded)).regime.step_us == 100.0
    whole = explain(training(steps_marked=False, recorded=recorded))
    assert whole.regime.step_us == pytest.approx(4000, rel=0.1)
    assert "MEA105" not in {finding.code for finding in whole.findings}


def test_a_run_on_a_device_is_not_told_by_its_operators() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm", dims=[[8, 8], [8, 8]], types=FLOAT):
            b.launch("gemm")
    report = explain(b.build())
    assert "cpu" not in report.tables
    assert not any("Operators run in" in str(one) for one in report.statements)


def test_a_recording_that_lost_its_device_is_no_run_on_the_cpu() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm", dims=[[8, 8], [8, 8]], types=FLOAT):
            b.call("cudaLaunchKernel")
    lost = explain(b.build())
    cut_off = training()
    cut_off.reading.truncated = True
    for report in (lost, explain(cut_off)):
        assert "cpu" not in report.tables
        assert not any("Operators run in" in str(one) for one in report.statements)
        assert "lanewise.optimize" not in text_of(report)
    assert "api" in lost.tables


def test_a_trace_without_operators_has_nothing_to_say() -> None:
    b = TraceBuilder(metadata={})
    with b.step(), b.frame("train.py(1): main"):
        b.wait(10)
    report = explain(b.build())
    assert report.statements == []
    assert "cpu" not in report.tables


def test_a_recorded_cpu_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from lanewise.capture.demo import record_demo

    monkeypatch.chdir(tmp_path)
    report = record_demo()
    text = text_of(report)
    assert [word for word in DEVICE_WORDS if word in text] == []
    assert report.tables["cpu"].rows[0]["dtype"] == "float32"
    assert sum(row["share"] for row in report.tables["cpu"].rows) > 0.5
    assert any("Each operator may use" in str(one) for one in report.statements)
    trace = next((tmp_path / "lanewise-out").glob("*.json.gz"))
    shown = CliRunner().invoke(cli, ["table", str(trace), "operators"], catch_exceptions=False).stdout
    assert "device" not in shown
    table = json.loads(CliRunner().invoke(cli, ["table", str(trace), "cpu", "--json"], catch_exceptions=False).stdout)
    assert table["tables"]["cpu"]["rows"][0]["operator"] == report.tables["cpu"].rows[0]["operator"]
