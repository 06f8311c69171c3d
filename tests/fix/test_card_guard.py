"""On a card: the final gate over graphs, kernels and compiled candidates, and what changes after they were applied."""

from __future__ import annotations

import threading
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Several
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.gate.correctness import Correctness, patches_of
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.work.worklist import work_of
from tests.fix.changed_after import Block, learn, what_is_wrong_after_changes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

KERNELS = ["kernel-layer_norm", "kernel-rms_norm", "kernel-mlp", "kernels"]
NAMES = [*KERNELS, *(f"cuda-graph+{name}" for name in KERNELS), "cuda-graph", "sdpa-math"]
NAMES += ["compile", "compile-reduce-overhead", "compile-cuda-graph"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_what_changes_after_apply_is_followed_or_sent_to_the_original_and_kept_results_stay(name: str) -> None:
    """One candidate through the gate; then each change, held against the module without it."""
    torch.manual_seed(0)
    net, x = Block().cuda().eval().requires_grad_(False), torch.randn(8, 32, 64, device="cuda")
    variant = passed(net, x, name)
    kept_results_stay(net, x, variant)
    variant.enable()
    wrong = what_is_wrong_after_changes(net, x, variant)
    variant.disable()
    assert not wrong, "\n".join(wrong)


def passed(net: Block, x: torch.Tensor, name: str) -> Any:
    """A candidate that has passed the gate."""
    subject = make_subject(net, x)
    state = State(subject)
    found = {one.name: one for one in catalogue(subject, work_of(subject, state))}
    if name not in found:
        pytest.skip("does not apply here")
    variant = found[name].build(subject)
    learn(net, x, variant)
    variant.disable()
    state.restore()
    result = Correctness(subject, state, seconds=0).check(found[name], variant)
    assert result.passed, result.reason
    return variant


def kept_results_stay(net: nn.Module, x: torch.Tensor, variant: Any) -> None:
    """Also on other streams and in threads."""
    inputs = [x * scale for scale in (1.0, 2.0, -3.0)]
    expected = [net(one) for one in inputs]
    variant.enable()
    kept = [net(one) for one in inputs for _ in range(20)]
    torch.cuda.synchronize()
    assert all(torch.allclose(kept[20 * at], one, atol=1e-4) for at, one in enumerate(expected))
    assert all(torch.allclose(kept[20 * at + 19], one, atol=1e-4) for at, one in enumerate(expected))
    wrong: list[int] = []

    def work(at: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                if not torch.allclose(net(inputs[at]), expected[at], atol=1e-4):
                    wrong.append(at)
            torch.cuda.synchronize()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    variant.disable()


class Mode(Enum):
    ADD = 1
    TIMES = 2


@pytest.mark.parametrize("values", [(Mode.ADD, Mode.TIMES), (1.0, 2.0), (True, False)])
def test_a_graph_is_not_replayed_for_another_value_in_an_object(values: tuple[Any, Any]) -> None:
    class Net(nn.Module):
        def forward(self, given: Any) -> torch.Tensor:
            x = given.tensor
            if given.how is Mode.ADD:
                return x + 1
            return x * 2 if given.how is Mode.TIMES else x * float(given.how)

    net, x = Net().cuda().eval(), torch.randn(4, 4, device="cuda")
    first, other = (SimpleNamespace(tensor=x, how=how) for how in values)
    subject = make_subject(net, (first,))
    (candidate,) = [one for one in catalogue(subject, work_of(subject, State(subject))) if one.name == "cuda-graph"]
    variant: Any = Several([candidate.build(subject)])
    expected = [net(first), net(other)]
    variant.enable()
    for patch in patches_of(variant):
        patch.dispatch.learning = True
    net(first)
    for patch in patches_of(variant):
        patch.dispatch.learning = False
    assert [torch.equal(a, net(b)) for a, b in zip(expected, (first, other), strict=True)] == [True, True]
    variant.disable()
