"""Functions that torch has, spelled out."""

from __future__ import annotations

import pytest

from lanewise.diagnose.what_if.spelled_out import function_of


@pytest.mark.parametrize(
    ("operators", "function"),
    [
        ("mul pow mul add mul tanh add mul", 'F.gelu(x, approximate="tanh")'),
        ("mul mul mul add mul tanh add mul mul", 'F.gelu(x, approximate="tanh")'),
        ("div erf add mul mul", "F.gelu(x)"),
        ("sigmoid mul_", "F.silu(x)"),
        ("softplus tanh mul", "F.mish(x)"),
        ("amax sub exp sum div", "torch.softmax(x, dim)"),
        ("exp sum div", "torch.softmax(x, dim)"),
        # What merely holds one of them, or is another function, is left to a compiler.
        ("sigmoid mul add", ""),
        ("tanh mul", ""),
        ("mul mul", ""),
        ("erf", ""),
        ("", ""),
    ],
)
def test_what_operators_compute_together(operators: str, function: str) -> None:
    assert function_of(f"aten::{name}" for name in operators.split()) == function
