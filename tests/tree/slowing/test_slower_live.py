"""What the benchmark of live programs counts as a right alert."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.slower_live import is_of_layer


@pytest.mark.parametrize(
    ("place", "path", "right"),
    [
        ("tail", ("step", "Net", "tail", "forward", "aten::tanh"), True),
        ("tail", ("step", "autograd::engine::evaluate_function: TanhBackward0"), True),
        ("tail", ("step", "aten::tanh_backward"), True),
        ("tail", ("step", "Net", "loop", "forward"), False),
        ("loop", ("step", "Net", "loop", "forward"), True),
        ("loop", ("step", "TanhBackward0"), False),
        ("product", ("step", "Net", "model", "aten::mm"), False),
    ],
)
def test_a_layer_its_inside_and_its_backward_pass_are_right(place: str, path: tuple[str, ...], right: bool) -> None:
    assert is_of_layer(path, place) == right
