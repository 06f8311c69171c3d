from __future__ import annotations

import numpy as np
import pytest

from lanewise.diagnose.explain import report_of
from lanewise.measure.facts import Facts
from lanewise.report.model import TableBlock
from lanewise.trace.frames import is_user_frame
from tests.support.builder import TraceBuilder
from tests.support.corpus import facts_of


def two_lines(steps: int = 4, small: int = 30, short: float = 2) -> Facts:
    """A loop whose `noisy` starts many short kernels and whose `solid` starts one long one."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step(), b.frame("train.py(3): main"):
            with b.frame("model.py(10): noisy"), b.frame("site-packages/torch/nn/functional.py(5): relu"):
                for _ in range(small):
                    with b.op("aten::relu"):
                        b.launch(kernel="vectorized_relu", duration=short)
            with b.frame("model.py(20): solid"), b.op("aten::mm"):
                b.launch(kernel="sm90_gemm", duration=50)
    return Facts(b.build())


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("train.py(3): main", True),
        ("/home/me/model/layers.py(7): forward", True),
        ("site-packages/torch/nn/functional.py(5): relu", False),
        ("torch/nn/modules/module.py(1): _call_impl", False),
        ("<built-in method relu of type object>", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_frames_of_libraries_are_not_the_programs(name: str, users: bool) -> None:
    assert is_user_frame(name) == users


def test_work_goes_to_the_innermost_frame_of_the_program() -> None:
    rows = {row["line"]: row for row in two_lines().lines.rows()}
    assert set(rows) == {"model.py(10): noisy", "model.py(20): solid"}
    noisy, solid = rows["model.py(10): noisy"], rows["model.py(20): solid"]
    assert (noisy["launches"], noisy["kernels"], noisy["short"], noisy["device"]) == (30, 30, 30, 60_000)
    assert (solid["launches"], solid["kernels"], solid["short"], solid["device"]) == (1, 1, 0, 50_000)
    assert noisy["host"] > solid["host"] > 0


def test_nothing_without_stacks() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::relu"):
            b.launch(kernel="vectorized_relu", duration=2)
    assert Facts(b.build()).lines.height == 0


def test_backward_work_goes_to_the_line_of_its_forward() -> None:
    facts = facts_of("03_mnist_train_stack")
    steady = facts.steps.steady
    launches = facts.steps.table["launches"][steady].mean()
    assert facts.lines["launches"].sum() == launches
    threads = np.unique(facts.trace.lane[facts.launches.call])
    assert len(threads) > 1, "part of the launches come from autograd's thread, which has no frames"


def test_the_host_bound_report_names_the_lines() -> None:
    report = report_of(two_lines(small=160, short=1))
    tables = {
        block.title: block.rows
        for finding in report.findings
        for block in finding.evidence
        if isinstance(block, TableBlock)
    }
    assert tables["Who keeps the host busy, per step"][0]["line"] == "model.py(10): noisy"
    assert [row["line"] for row in tables["Who starts short kernels, per step"]] == ["model.py(10): noisy"]
