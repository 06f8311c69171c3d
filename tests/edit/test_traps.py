"""An edit is safe only where the file proves what it relies on: programs where it does, and many where it does not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

if find_spec("libcst") is None:
    pytest.skip("edits sources", allow_module_level=True)

from lanewise.edit.rewrite import EDITS, rewrite

FILES = Path(__file__).parents[1] / "data" / "fix_traps"
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

"""


def programs(kind: str) -> dict[str, dict[str, str]]:
    """Per edit the programs on which it changes nothing ("safe"), breaks or changes a result ("trap"), or is not meant
    at all ("none")."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FILES.glob("*.txt")):
        for text in path.read_text().split("=== ")[1:]:
            title, _, program = text.partition("\n")
            if title.startswith(kind):
                found.setdefault(path.stem, {})[title.partition(": ")[2]] = program
    return found


def flat(table: dict[str, dict[str, str]]) -> list[Any]:
    return [
        pytest.param(name, case, text, id=f"{name}: {case}")
        for name, cases in table.items()
        for case, text in cases.items()
    ]


SAFE, TRAPS, NONE = programs("safe"), programs("trap"), programs("none")


@pytest.mark.parametrize(("name", "case", "text"), flat(TRAPS))
def test_an_edit_that_would_break_it_is_not_called_safe(name: str, case: str, text: str) -> None:
    compile(HEAD + text, case, "exec")
    found = rewrite(HEAD + text, only=[name])
    assert not any(one.safe for one in found.suggestions), case
    compile(found.after, case, "exec")


@pytest.mark.parametrize(("name", "case", "text"), flat(NONE))
def test_what_is_spelled_alike_or_certainly_breaks_is_not_offered(name: str, case: str, text: str) -> None:
    compile(HEAD + text, case, "exec")
    assert not rewrite(HEAD + text, only=[name]).changed, case


@pytest.mark.parametrize(("name", "case", "text"), flat(SAFE))
def test_an_edit_whose_ground_is_proven_is_safe(name: str, case: str, text: str) -> None:
    assert [one.safe for one in rewrite(HEAD + text, only=[name], safe_only=True).suggestions], case


NEVER = {
    "background-call", "cast-around", "growing-cat", "item-in-loop", "loader", "matmul-precision", "moved-back", "no-grad",
    "pinned-copy",
}  # fmt: skip
"""Edits whose ground no source proves."""


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_has_twenty_traps(name: str) -> None:
    assert len(TRAPS.get(name, {})) + len(NONE.get(name, {})) >= 20
    assert (name in SAFE) == (name not in NEVER)


def test_the_documents_say_how_many_programs_there_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "appendix" / "fix-measured.md").read_text()
    said = [line for line in text.splitlines() if line.startswith("| `") and line.strip("| ").split("`")[1] in EDITS]
    kinds = (TRAPS, NONE, SAFE)
    assert said == [f"| `{name}` | {' | '.join(str(len(kind.get(name, {}))) for kind in kinds)} |" for name in EDITS]


EXPECTED = {
    "t01_lenet_view": [("channels-last", False)],
    "t02_learned_temperature": [],
    "t03_full_masked_row": [("attention", False)],
    "t05_bf16_bias": [("attention", False)],
    "t06_import_as": [("channels-last", True)],
    "t08_empty_1d_cat": [("growing-cat", False)],
    "t10_gradient_penalty": [],
    "t14_unused_item": [],
    "t15_zero_grad_accum": [("optimizer-flags", True), ("zero-grad", False)],
    "t16_fused_refuses": [("optimizer-flags", False)],
    "t19_sparse_gradients": [("optimizer-flags", False)],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_suggested_for_programs_that_broke(name: str) -> None:
    result = rewrite((FILES / f"{name}.py").read_text())
    assert [(one.name, one.safe) for one in result.suggestions] == EXPECTED[name]


def test_norms_and_activations_in_classes_are_found_and_left_to_the_user() -> None:
    source = """
    import math
    import torch
    from torch import nn

    class Norm(nn.Module):
        def forward(self, x):
            return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight

    class Gelu(nn.Module):
        def forward(self, x):
            return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    """
    found = rewrite(dedent(source), only=["compile-region"])
    assert [(one.what.partition(" ")[0], one.safe) for one in found.suggestions] == [("Norm", False), ("Gelu", False)]
    assert found.after.count("@torch.compile\n    def forward") == 2
