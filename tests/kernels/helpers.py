"""What the kernel tests share: the rule by which a result counts as right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

FLOORS = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}
if not torch.cuda.is_available():
    # Triton's interpreter truncates to bf16 instead of rounding: a whole step, twice where a sum is rounded first.
    FLOORS[torch.bfloat16] = 1.6e-2
    # It adds up one element after the other where the device adds in a tree.
    FLOORS[torch.float32] = 2e-6


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """max |got - want| / max |want|; the non-finite entries must be the same ones, of the same kind."""
    assert got.shape == want.shape
    a, b = got.double(), want.double()
    assert torch.equal(a.isnan(), b.isnan()), "NaN in other places"
    assert torch.equal(a.isposinf(), b.isposinf()), "+inf in other places"
    assert torch.equal(a.isneginf(), b.isneginf()), "-inf in other places"
    a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() if a.numel() else 0.0


def same(
    ours: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    inputs: Sequence[torch.Tensor | None],
) -> None:
    """Ours is at most twice as far from the exact (fp64) result as eager in the inputs' dtype, or within the floor.

    The inputs must be unchanged afterwards and a second run must give the same bits.
    """
    before = [None if t is None else t.clone() for t in inputs]
    got = ours(*inputs)
    again = ours(*inputs)
    for tensor, kept in zip(inputs, before, strict=True):
        assert tensor is None or torch.equal(tensor.nan_to_num(), kept.nan_to_num()), "an input was modified"
    eager = reference(*inputs)
    exact = reference(*[t.double() if t is not None and t.is_floating_point() else t for t in inputs])
    gots, agains = _as_tuple(got), _as_tuple(again)
    for mine, twice, plain, true in zip(gots, agains, _as_tuple(eager), _as_tuple(exact), strict=True):
        assert mine.dtype == plain.dtype
        assert torch.equal(mine.nan_to_num(), twice.nan_to_num()), "two runs differ"
        floor = FLOORS[mine.dtype]
        assert error(mine, true) <= max(2 * error(plain, true), floor)


def _as_tuple(value: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def gradients(
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    inputs: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    wanted: Sequence[int],
) -> list[torch.Tensor]:
    """Gradients of the inputs numbered `wanted`, from those of the outputs."""
    leaves = [t.detach().clone().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
    out = _as_tuple(function(*leaves))
    pairs = [(value, grad) for value, grad in zip(out, grads, strict=False) if value.requires_grad]
    torch.autograd.backward([value for value, _ in pairs], [grad for _, grad in pairs])
    found = []
    for i in wanted:
        grad = leaves[i].grad
        assert grad is not None
        found.append(grad)
    return found
