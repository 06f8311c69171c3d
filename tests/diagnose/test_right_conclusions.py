"""What a specialist would conclude from small traces in which it is easy to conclude something else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lanewise.diagnose.explain import explain
from lanewise.report.model import Finding, Report
from lanewise.show.report.terminal import render
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
