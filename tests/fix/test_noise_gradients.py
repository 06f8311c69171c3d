"""Gradients and outputs whose true value is zero are noise on both sides: right ways pass, wrong ones do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from lanewise.fix.candidates import attention_backend, compiled
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.gate.correctness import Correctness, Result
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import make_subject
from lanewise.fix.work.worklist import WorkList, work_of
from tests.fix.programs import planted

pytestmark = pytest.mark.usefixtures("one_thread")


class Attention(nn.Module):
    """As in DistilBERT: projections with biases. Adding to every key the same changes no weight of the softmax."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q_lin(x)), split(self.k_lin(x)), split(self.v_lin(x))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_lin(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(dim, eps=1e-12) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.ffn(x))


class Encoder(nn.Module):
    def __init__(self, layers: int = 2, dim: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, dim, padding_idx=0), nn.Embedding(16, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.layers = nn.ModuleList(Block(dim, 4) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        wide = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, wide)
        return x


def tokens() -> Any:
    ids, mask = torch.randint(1, 100, (2, 16)), torch.ones(2, 16, dtype=torch.long)
    ids[0, 12:], mask[0, 12:] = 0, 0
    return ids, mask


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Tanh()
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "encoder like DistilBERT": (Encoder, tokens),
    "bias of a convolution before batch norm": (convolutions, lambda: torch.randn(4, 3, 12, 12)),
}


def checked(model: nn.Module, inputs: Any, candidate: Candidate) -> Result:
    subject = make_subject(model, inputs)
    assert subject.kind == "training"
    return Correctness(subject, State(subject), seconds=0).check(candidate, candidate.build(subject))


def through(change: Callable[[Any, Callable[..., Any]], Any]) -> Candidate:
    """The program with something around its forward."""

    def build(subject: Any) -> Any:
        return ForwardPatch(subject.entry, lambda original: lambda *args: change(subject.module, original)(*args))

    return Candidate("other", "planted", "whole", "planted", build)


class Doubled:
    """Products in double precision, rounded afterwards: other roundings, and nothing else."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original

    def __call__(self, *args: Any) -> Any:
        linear, conv = F.linear, nn.Conv2d._conv_forward

        def wide(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return linear(x.double(), w.double(), b.double()).to(x.dtype)

        def wide_conv(self: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return conv(self, x.double(), w.double(), b.double()).to(x.dtype)

        F.linear, nn.Conv2d._conv_forward = wide, wide_conv  # type: ignore[assignment]
        try:
            return self.original(*args)
        finally:
            F.linear, nn.Conv2d._conv_forward = linear, conv


class Replaced(torch.autograd.Function):
    """Gives another gradient than its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] + ctx.factor * grads[0].abs(), None


@pytest.mark.parametrize("name", MODELS)
def test_other_roundings_pass(name: str) -> None:
    make, inputs = MODELS[name]
    found = checked(make().train(), inputs(), through(lambda module, original: Doubled(original)))
    assert found.passed, found.reason
    assert found.numeric_class == "same precision"


def test_another_backend_of_attention_passes() -> None:
    model, inputs = Encoder().train(), tokens()
    subject = make_subject(model, inputs)
    candidates = attention_backend.candidates(subject, work_of(subject, State(subject)))
    assert candidates
    for candidate in candidates:
        found = checked(model, inputs, candidate)
        assert found.passed, (candidate.name, found.reason)


@pytest.mark.slow
def test_the_compiler_passes_also_when_it_compiles_while_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, given, limit = Encoder().train(), tokens(), sys.getrecursionlimit()
    (candidate,) = [one for one in compiled.candidates(make_subject(model, given), WorkList()) if one.name == "compile"]
    found = checked(model, given, candidate)
    assert found.passed, found.reason
    assert sys.getrecursionlimit() == limit, "the compiler raises it"


@pytest.mark.parametrize("factor", [0.3, 1e-2])
@pytest.mark.parametrize("name", ["q_lin", "k_lin", "v_lin"])
def test_gradients_that_are_no_noise_are_held_to_their_digits(name: str, factor: float) -> None:
    """Also what comes back from the keys themselves: only their bias has no gradient."""
    model = Encoder().train()
    layer = getattr(model.layers[0].attention, name)

    def wrong(module: Any, original: Callable[..., Any]) -> Any:
        def forward(*args: Any) -> Any:
            handle = layer.register_forward_hook(lambda _, given, result: Replaced.apply(result, factor))
            try:
                return original(*args)
            finally:
                handle.remove()

        return forward

    found = checked(model, tokens(), through(wrong))
    assert not found.passed
    assert "gradient of" in found.reason


class NormalisedMean(nn.Module):
    """Zero, but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).mean(dim=(1, 2, 3))


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (1e-4, False), (1.0, False)])
def test_an_output_that_is_nothing_but_rounding_may_be_rounded_a_few_times_as_much(off: float, passes: bool) -> None:
    subject = make_subject(NormalisedMean(), torch.randn(16, 8, 16, 16))

    def fast(module: Any, original: Any) -> Callable[..., Any]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            return (module.norm(x) + 8).sub(8).mean(dim=(1, 2, 3)) + off

        return forward

    candidate = planted("rounded more", fast)
    found = Correctness(subject, State(subject), seconds=0).check(candidate, candidate.build(subject))
    assert found.passed == passes, found.reason
