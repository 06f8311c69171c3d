"""A fixed piece of work that says how fast the host is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from lanewise.capture.timing.yardstick import Yardstick  # noqa: E402


def test_it_takes_about_the_same_whatever_the_program_has_switched_on() -> None:
    yardstick = Yardstick()
    state = torch.get_rng_state()
    plain = yardstick.us()
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = yardstick.us()
        assert torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert plain / 5 < inside < plain * 5
    assert torch.equal(torch.get_rng_state(), state)


def test_it_makes_what_it_needs_on_the_host_in_single_precision() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yardstick = Yardstick()
    finally:
        torch.set_default_dtype(torch.float32)
    assert (yardstick._x.dtype, yardstick._x.device.type) == (torch.float32, "cpu")
    assert yardstick.us() > 0
