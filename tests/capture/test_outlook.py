from __future__ import annotations

import textwrap

import pytest

from lanewise.capture.outlook import Outlook, look, look_at_cell


def outlook(source: str) -> Outlook:
    return look(textwrap.dedent(source))


def test_a_script_of_operators_steps_where_its_loop_calls_a_function() -> None:
    found = outlook("""
        import torch
        def matmul_add(x, w, b):
            return torch.add(torch.matmul(x, w), b)
        x = torch.randn(64, 64)
        for _ in range(5):
            matmul_add(x, x, x)
    """)
    assert found == Outlook(plain=True, step="matmul_add", iterations=5)


def test_warm_up_loops_of_the_same_function_count_too() -> None:
    found = outlook("""
        import torch
        def f(x): return x + x
        def main(n):
            for _ in range(3): f(x)
            for _ in range(40): f(x)
    """)
    assert found.iterations == 43


def test_the_outermost_loop_counts() -> None:
    found = outlook("""
        import torch
        def part(x): return x * 2
        def step(x):
            for _ in range(30): x = part(x)
            return x
        while True:
            step(torch.ones(3))
    """)
    assert found == Outlook(plain=True, step="step", iterations=None)


def test_operators_without_a_function_are_recorded_whole() -> None:
    assert outlook("import torch\ntorch.ones(3) + 1") == Outlook(plain=True)
    assert outlook("import torch\nfor _ in range(9): torch.ones(3) + 1") == Outlook(plain=True)


@pytest.mark.parametrize(
    "source",
    [
        "import torch.nn as nn\nm = nn.Linear(3, 3)",
        "import torch\nm = torch.nn.Linear(3, 3)",
        "import torch\nfrom torch import optim",
        "import torch\nloss.backward()",
        "import torch, transformers",
        "from . import model\nimport torch",
        "from torch import nn\nclass Net(nn.Module): pass",
        "import math",
        "this is not python",
        "",
        "\0",
    ],
)
def test_where_steps_may_come_by_themselves_nothing_is_decided(source: str) -> None:
    assert look(source) == Outlook()


def test_functional_operators_are_operators() -> None:
    assert look("import torch\nimport torch.nn.functional as F\nF.relu(torch.ones(3))").plain


class Sized:
    """Counts to anything, and must not be asked."""

    def __len__(self) -> int:
        raise AssertionError


def test_a_cell_is_seen_with_the_values_of_its_names() -> None:
    def function(_: object) -> None: ...

    function.__module__ = "__main__"
    names = {"step": function, "batches": [1] * 25, "n": 12, "lazy": Sized(), "trainer": Sized()}

    def cell(source: str) -> Outlook:
        return look_at_cell(textwrap.dedent(source), names)

    assert cell("for b in batches: step(b)") == Outlook(plain=True, step="step", iterations=25)
    assert cell("for i, b in enumerate(batches): step(b)").iterations == 25
    assert cell("for _ in range(n): step(1)").iterations == 12
    assert cell("for e in range(2):\n  for b in batches:\n    step(b)").iterations == 50
    assert cell("for e in range(6):\n  for b in range(9): b + 1\n  step(b)").iterations == 6
    assert cell("for b in lazy: step(b)") == Outlook(plain=True, step="step")
    assert cell("for _ in range(3): step(1)").whole
    assert cell("for _ in range(30): 1 + 1").whole
    assert cell("1 + 1").whole
    assert cell("def one(x): return x\nfor _ in range(30): one(1)") == Outlook(plain=True, step="one", iterations=30)
    # What runs elsewhere cannot be seen: what happens decides.
    for unsure in ("step(1)", "trainer.fit()", "this is no Python", "for _ in batches: trainer.fit(loss.backward())"):
        assert not cell(unsure).plain


def test_forward_calls_that_do_not_count_are_not_counted_on() -> None:
    torch = pytest.importorskip("torch")
    names = {"model": torch.nn.Linear(2, 2), "x": torch.ones(2, 2)}
    assert look_at_cell("for _ in range(30): model(x)", names) == Outlook(iterations=22)
    assert look_at_cell("for _ in range(10): model(x)", names).whole
    assert look_at_cell("for _ in range(10): model(x).sum().backward()", names) == Outlook(iterations=10)
    assert look_at_cell("model(x)", names).whole
