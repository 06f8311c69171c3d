"""Operators are timed by themselves, as they would be at other batch sizes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

pytest.importorskip("torch")

from lanewise.measure.signatures import Tensor
from lanewise.sweep import operator_timing
from lanewise.sweep.operator_arguments import Given
from lanewise.sweep.operator_timing import WHOLE, YARDSTICK, Call, OperatorTiming, Order, main


def given(*shape: int, strides: tuple[int, ...] | None = None, dtype: str = "float") -> Given:
    return Given([Tensor(shape, dtype, strides)], False, "")


def value(text: str) -> Given:
    return Given([], False, text)


X, W, BIAS, NONE = given(1, 64), given(256, 64), given(256), value("")
CALLS = [
    Call("autograd::engine::evaluate_function: X", None, -1),
    Call("aten::linear", [X, W, BIAS], 0),
    Call("aten::addmm", [BIAS, X, given(64, 256, strides=(1, 64)), value("1"), value("1")], 1),
    Call("aten::expand", [BIAS, value("[1, 256]"), value("False")], 2),
    Call("aten::mul", [given(1, 4096), given(1, 4096)], -1),
    Call("aten::zeros", [value("[1, 4096]"), NONE, NONE, NONE, NONE], -1),
    Call("aten::nll_loss_forward", [given(1, 10), given(1, dtype="long int"), NONE, value("1"), value("-100")], -1),
    Call("mine::unknown", [X], -1),
    Call("aten::relu", [given(1, 8, dtype="of_another_world")], -1),
]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    order = Order(CALLS, [], 1, [1, 256], [(256, 64), (256,)], "cpu", 0)
    out = io.BytesIO()
    monkeypatch.setattr(operator_timing, "_set_up", lambda *_: None)  # of this process, for good
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(msgspec.json.encode(order))))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    main()
    monkeypatch.undo()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return {line["call"]: line["seconds"] for line in lines if line["seconds"]}


def test_the_outermost_with_a_kernel_is_timed_and_the_rest_left_out(timed: dict[int, list[float]]) -> None:
    # `linear` only calls `addmm`, of which `expand` is a part; what cannot be made is left out.
    assert set(timed) == {2, 4, 5, 6, WHOLE, YARDSTICK}
    assert 0 < timed[YARDSTICK][0] < 0.1


def test_together_they_take_longer_with_more_to_do(timed: dict[int, list[float]]) -> None:
    small, large = timed[WHOLE]
    assert large > 4 * small > 0


_FAULTS = """
import resource
import torch
from lanewise.sweep import operator_timing
if {kept}:
    operator_timing._keep_memory()
def faults(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = torch.zeros(size)
    for _ in range(3):
        made = made + 1
    del made
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print([sum(faults(size) for size in (1_000, 100_000, 1_000_000, 2_000_000)) for _ in range(6)][1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="speaks of glibc's malloc")
def test_what_a_step_frees_is_kept_for_the_next() -> None:
    def faults(*, kept: bool) -> list[int]:
        run = [sys.executable, "-c", _FAULTS.format(kept=kept)]
        return json.loads(subprocess.run(run, capture_output=True, text=True, check=True, timeout=120).stdout)

    # Of five steps; without it, memory may come to be kept after the first two.
    given_back, kept = (sum(faults(kept=kept)) for kept in (False, True))
    assert given_back > 2_500
    assert kept < given_back / 3


def timing(calls: list[Call], *, device: str = "cpu") -> OperatorTiming:
    import torch

    found = OperatorTiming(torch, Order(calls, [], 4, [4, 64], [(8, 8)], device, 1))
    found.known = {place: found._arguments.find(call.name, call.arguments or []) for place, call in enumerate(calls)}
    return found


def test_a_backward_call_reads_what_the_forward_pass_made_the_last_first() -> None:
    act = given(4, 8)
    calls = [
        Call("aten::tanh", [act], -1, turn=0, kept=True),
        Call("aten::mm", [act, given(8, 8)], -1, turn=1, kept=True),
        Call("aten::tanh", [act], -1, turn=2, kept=True),
        Call("aten::tanh_backward", [act, act], -1, turn=3),
        Call("aten::mm", [act, given(8, 8)], -1, turn=4),
        Call("aten::tanh_backward", [act, act], -1, turn=5),
    ]
    found = timing(calls)
    for growth in found._growth:
        step = found._step(growth)
        read = [[(place, turn) for place, turn, *_ in call.sources] for call in step]
        # The weight, second of `mm`, is nobody's result; and nothing is read twice by one call.
        assert read == [[], [(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)], [(0, 4), (1, 1)]]
        assert [sorted(call.over) for call in step] == [[], [0], [], [2], [3], [1, 4]]
    assert all(turn() > 0 for turn in found.turns())


def test_what_is_read_need_not_have_its_shape_and_is_read_once() -> None:
    calls = [
        Call("aten::tanh", [given(4, 8)], -1, turn=0),
        Call("aten::mul_", [given(8, 4, strides=(1, 8)), given(8, 4)], -1, turn=1),
    ]
    found = timing(calls)
    assert [turn() > 0 for turn in found.turns()] == [True, True]
    other = ((8, 4), (1, 8))
    assert [call.sources for call in found._step(found._growth[0])] == [[], [(0, 0, 0, other)]]


def test_masks_are_half_true_and_no_branch_guesses_them() -> None:
    mask, values = given(256, 256, dtype="bool"), given(256, 256)
    where = Call("aten::where", [mask, values, values], -1)
    found = timing([where])
    (made, *_), _ = found._arguments.make(found.known[0], where.arguments or [], found._growth[0])
    assert 0.45 < made.float().mean().item() < 0.55
    assert 0.4 < (made[:, 1:] != made[:, :-1]).float().mean().item() < 0.6


def test_what_makes_a_tensor_makes_it_on_the_device() -> None:
    zeros = Call("aten::zeros", [value("[4, 8]"), NONE, NONE, NONE, NONE], -1)
    found = timing([zeros], device="meta")
    args, named = found._arguments.make(found.known[0], zeros.arguments or [], found._growth[1])
    made = found.known[0](*args, **named)
    assert made.device.type == "meta"
    assert tuple(made.shape) == (64, 8)


def test_tensors_of_a_list_are_of_the_type_of_most_others() -> None:
    listed = Given([Tensor((4, 8), "", (8, 1)), Tensor((4, 8), "", (8, 1))], True, "")
    cat = Call("aten::cat", [listed, value("1")], -1)
    found = timing([cat, Call("aten::tanh", [given(4, 8, dtype="c10::BFloat16")], -1, turn=1)])
    (parts, _), _ = found._arguments.make(found.known[0], cat.arguments or [], found._growth[1])
    assert [(str(part.dtype), tuple(part.shape)) for part in parts] == [("torch.bfloat16", (64, 8))] * 2


def test_gaps_between_rows_stay() -> None:
    part = given(4, 16, strides=(128, 1))
    found = timing([Call("aten::tanh", [part], -1)])
    (made,), _ = found._arguments.make(found.known[0], [part], found._growth[1])
    assert (tuple(made.shape), made.stride()) == ((64, 16), (128, 1))
    column = given(4, strides=(8,))
    (made,), _ = found._arguments.make(found.known[0], [column], found._growth[1])
    assert (tuple(made.shape), made.stride()) == ((64,), (8,))
