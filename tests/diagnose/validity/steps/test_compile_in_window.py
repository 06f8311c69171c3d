from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, title
from tests.support.builder import TraceBuilder


def run(
    compiling: set[int],
    *,
    steps: int = 4,
    name: str = "_compile.compile_inner (dynamo_timed)",
    kind: int = Kind.OPERATOR,
) -> TraceBuilder:
    b = TraceBuilder()
    for step in range(steps):
        with b.step(), b.op("Torch-Compiled Region: 0/0"):
            if step in compiling:
                with b.span(name, kind, head=500, tail=499), b.op("aten::empty", head=0.5, tail=0.5):
                    pass
            b.launch("triton_poi_fused_add_0")
    return b


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_compile.compile_inner (dynamo_timed)", Kind.OPERATOR),
        ("backend_compile_data: fn_name=x, compile_id=0/0", Kind.ANNOTATION),
        ("CUDAGraphNode.record", Kind.OPERATOR),
        ("cudaStreamBeginCapture", Kind.RUNTIME),
    ],
)
def test_compiling_in_one_step_of_four(name: str, kind: int) -> None:
    result = found("MEA106", run({1}, name=name, kind=kind).build())
    assert "1.00 ms of compilation or graph capture runs inside the recording, in step #3" in title("MEA106", result)
    assert (result.gain_ns, list(result.steps)) == (0, [1])


def test_the_threshold_is_half_of_the_steps_which_is_the_normal_state() -> None:
    assert "2 of 4 steps compile" in cleared("MEA106", run({1, 2}).build())
    found("MEA106", run({1, 2}, steps=5).build())


def test_nothing_compiles() -> None:
    assert "no compile" in cleared("MEA106", run(set()).build())


def test_without_steps_it_is_part_of_every_number() -> None:
    b = TraceBuilder()
    with b.span("compile_inner (dynamo_timed)", Kind.OPERATOR, head=50):
        pass
    assert "part of every number" in title("MEA106", found("MEA106", b.build()))
