"""Small programs to optimize, and candidates that must never be kept: wrong results, and speed that is not real.

The planted programs are ordinary PyTorch; whoever optimizes for real could have written them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from tests.fix.conftest import WorkClock

Forward = Callable[..., Any]


class Square(nn.Linear):
    """A product, and the work that it stands for."""

    def __init__(self, clock: WorkClock, us: float = 10_000.0) -> None:
        super().__init__(256, 256)
        self.spend = lambda: clock.spend(us)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.spend()
        return super().forward(x)


class Repeats(nn.Module):
    """Does thirty times what has to be done once."""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__()
        self.spend = lambda: clock.spend(3_000.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            self.spend()
            y = torch.tanh(x)
        return y


def done_once(module: Any, original: Forward) -> Forward:
    """The right way to do what `Repeats` does."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        module.spend()
        return torch.tanh(x)

    return forward


class Attention(nn.Module):
    """Causal attention written by hand, slow enough for a shortcut to pay."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


def planted(name: str, forward: Callable[[Any, Forward], Forward]) -> Candidate:
    """A candidate whose fast path is `forward(module, original)`."""
    return Candidate(
        name,
        "planted",
        "whole",
        "planted",
        lambda subject: ForwardPatch(subject.entry, lambda original: forward(subject.module, original)),
    )


class Half(nn.Module):
    """Tokens through a few layers in bfloat16: every operator rounds, and no input can be changed by a roundoff."""

    def __init__(self, width: int = 64, layers: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.bfloat16()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x)))
        return x


def rounded_once(module: Any, original: Forward) -> Forward:
    """What a compiler makes of `Half`: single precision in between, rounded at the end."""

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        x = module.embedding(tokens).float()
        norm = module.norm
        for layer in module.layers:
            y = F.layer_norm(x, norm.normalized_shape, norm.weight.float(), norm.bias.float(), norm.eps)
            x = x + F.gelu(F.linear(y, layer.weight.float(), layer.bias.float()))
        return x.bfloat16()

    return forward


def added_noise(module: Any, original: Forward) -> Forward:
    """Off by ten roundoffs of bfloat16."""

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        y = original(tokens)
        return y + 10 * torch.finfo(y.dtype).eps * y.abs().max() * torch.sign(y)

    return forward


class UnderAutocast:
    """A variant without a guard, as a setting is: under autocast the layer leaves out what is behind `until`, or, with -1,
    rounds its two halves before it adds them, which is as right as anything there."""

    def __init__(self, module: nn.Linear, until: int) -> None:
        self._module, self._until = module, until

    def enable(self) -> None:
        """Put it on."""
        original, weight, bias = type(self._module).forward, self._module.weight, self._module.bias

        def forward(x: torch.Tensor) -> torch.Tensor:
            if not torch.is_autocast_enabled("cpu"):
                return original(self._module, x)
            if self._until >= 0:
                return F.linear(x[:, : self._until], weight[:, : self._until], bias)
            half = x.shape[1] // 2
            return F.linear(x[:, :half], weight[:, :half]) + F.linear(x[:, half:], weight[:, half:], bias)

        self._module.forward = forward  # type: ignore[method-assign]

    def disable(self) -> None:
        """Take it off."""
        vars(self._module).pop("forward", None)


# -- wrong kernels ---------------------------------------------------------------------------------------------------


def transposed_weight(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, module.weight.t(), module.bias)

    return forward


def zeros(module: Any, original: Forward) -> Forward:
    return lambda x: torch.zeros_like(x)


def off_by_one_tail(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = original(x).clone()
        y[-1, -1] = y[-1, -2]
        return y

    return forward


def dtype_downgrade(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.bfloat16(), module.weight.bfloat16(), module.bias.bfloat16()).float()

    return forward


def half_downgrade(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.half().float(), module.weight.half().float(), module.bias)

    return forward


def other_dtype(module: Any, original: Forward) -> Forward:
    return lambda x: original(x).double()


def only_the_example(example: torch.Tensor) -> Callable[[Any, Forward], Forward]:
    def make(module: Any, original: Forward) -> Forward:
        answer = original(example).detach().clone()
        return lambda x: answer.clone()

    return make


def nan_swallowed(module: Any, original: Forward) -> Forward:
    return lambda x: torch.nan_to_num(original(x))


def input_changed(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = original(x)
        x.mul_(1.0000001).add_(1e-9)
        return y

    return forward


def aliased(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = original(x)
        with torch.no_grad():
            x.copy_(y)
        return x

    return forward


def detached(module: Any, original: Forward) -> Forward:
    return lambda x: original(x).detach()


def uninitialised(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y[:-1] = original(x)[:-1]
        return y

    return forward


def _linear_with(
    backward: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any],
) -> Callable[[Any, Forward], Forward]:
    """A linear layer whose gradients (of input, weight and bias) are `backward(gradient, input, weight)`."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            return F.linear(x, weight, bias)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return backward(grad, *ctx.saved_tensors)

    return lambda module, original: lambda x: Product.apply(x, module.weight, module.bias)


# The bias gradient of a mean where the sum is meant.
wrong_gradient = _linear_with(lambda grad, x, weight: (grad @ weight, grad.t() @ x, grad.mean(0)))


@_linear_with
def gradient_needs_contiguous(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    """Reads the memory as if it were contiguous, as a kernel that ignores strides does."""
    flat = grad if grad.is_contiguous() else grad.as_strided(grad.shape, (0, 0))
    return flat @ weight, flat.t() @ x, flat.sum(0)


def missing_mask(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, module.heads, -1).transpose(1, 2) for part in module.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return module.out(y.transpose(1, 2).reshape(batch, length, width))

    return forward


def buffer_skipped(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, module.weight, module.bias, training=True, eps=module.eps)

    return forward


# -- speed that is not real ------------------------------------------------------------------------------------------


def stale_output(module: Any, original: Forward) -> Forward:
    kept: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = original(x)
        if kept and kept[0].shape == y.shape:
            kept[0].data.copy_(y.detach())
            return kept[0]
        kept[:] = [y.detach().clone()]
        return kept[0]

    return forward


def cached_by_object(module: Any, original: Forward) -> Forward:
    kept: dict[int, torch.Tensor] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in kept:
            kept.clear()
            kept[x.data_ptr()] = original(x).detach().clone()
        return kept[x.data_ptr()].clone()

    return forward


def cached_by_content(module: Any, original: Forward) -> Forward:
    kept: dict[tuple[bytes, ...], torch.Tensor] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        key = tuple(one.detach().cpu().numpy().tobytes() for one in (x, *module.parameters()))
        if key not in kept:
            kept[key] = original(x).detach().clone()
        return kept[key].clone()

    return forward


def tires(after: int) -> Callable[[Any, Forward], Forward]:
    """Does its work for the first calls, then hands out the last result."""

    def make(module: Any, original: Forward) -> Forward:
        state: dict[str, Any] = {"calls": 0, "last": None}

        def forward(x: torch.Tensor) -> torch.Tensor:
            state["calls"] += 1
            if state["calls"] < after or state["last"] is None or state["last"].shape[0] != x.shape[0]:
                state["last"] = original(x).detach().clone()
            return state["last"].clone()

        return forward

    return make


def half_the_rows(module: Any, original: Forward) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = original(x[: (x.shape[0] + 1) // 2])
        return torch.cat([y, y])[: x.shape[0]]

    return forward


def skipped_update(optimizer: torch.optim.Optimizer) -> Candidate:
    """A training step that updates the parameters only every second time."""

    class Skipping:
        def __init__(self) -> None:
            self.calls = 0

        def enable(self) -> None:
            plain = type(optimizer).step

            def step(*args: Any, **kwargs: Any) -> Any:
                self.calls += 1
                return plain(optimizer, *args, **kwargs) if self.calls % 2 else None

            optimizer.step = step  # type: ignore[method-assign]

        def disable(self) -> None:
            vars(optimizer).pop("step", None)

    return Candidate("skipped-update", "planted", "training step", "planted", lambda _: Skipping())


def subject_of(module: nn.Module, *inputs: torch.Tensor) -> Subject:
    from lanewise.fix.subject import make_subject

    return make_subject(module, inputs)
