"""How far results may be from the truth: where terms cancel, and where values are small by themselves."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from lanewise.fix.gate.tolerances import allowed, error_of

BF16 = 8 * 2.0**-8


def cancelling(dtype: torch.dtype) -> torch.Tensor:
    """Large and small values; the small ones are what is left of two large ones."""
    random = torch.Generator().manual_seed(0)
    a = torch.randn(512, generator=random, dtype=torch.float64)
    rest = torch.cat((torch.randn(256, generator=random, dtype=torch.float64), torch.full((256,), 1e-4)))
    return a.to(dtype).double() + (rest - a).to(dtype).double()


def test_what_is_left_where_terms_cancel_may_be_as_much_less_precise_as_the_arithmetic() -> None:
    truth = cancelling(torch.float64)
    single, half = (error_of(cancelling(dtype).float(), truth) for dtype in (torch.float32, torch.bfloat16))
    assert half.small > 2
    assert half.within(allowed(single, torch.float32, precision=BF16))
    assert not half.within(allowed(single, torch.float32))


def test_small_values_that_nothing_cancels_in_are_held_to_their_own_size_in_lower_precision_too() -> None:
    logits = torch.linspace(-25, 0, 2048, dtype=torch.float64)
    truth = torch.softmax(logits, dim=0)
    single = error_of(torch.softmax(logits.float(), dim=0), truth)
    cut = torch.where(truth < 1e-6 * truth.max(), 5e-6 * truth.max(), truth).float()
    limit = allowed(single, torch.float32, precision=BF16)
    assert error_of(truth.bfloat16().float(), truth).within(limit)
    assert not error_of(cut, truth).within(limit)


@pytest.mark.parametrize("seed", range(20))
def test_a_few_small_values_are_held_to_their_own_size_with_room_for_chance(seed: int) -> None:
    """A dozen values: what cancels in them differs by chance between two orders of adding, and passes; a limit does not."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.cat((torch.randn(100, generator=random), torch.linspace(-25, -16, 12))).double()
    truth = torch.sigmoid(logits)
    single = error_of(torch.sigmoid(logits.float()), truth)
    assert single.small == 0
    assert not error_of(truth.clamp(min=1e-7).float(), truth).within(allowed(single, torch.float32))
    terms = torch.randn(64, 2000, generator=random).double()
    terms[0] -= terms.sum(0) - torch.randn(2000, generator=random) * 0.05  # a few dozen sums are small
    sums, there = terms.sum(0), error_of(terms.float().cumsum(0)[-1], terms.sum(0))
    assert error_of(terms.float().flip(0).cumsum(0)[-1], sums).within(allowed(there, torch.float32))


def test_integers_have_no_roundoff() -> None:
    assert allowed(error_of(torch.ones(3), torch.ones(3)), torch.int64).small == 0
