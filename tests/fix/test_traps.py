"""An edit is safe only where the file proves what it relies on: programs where it does, and many where it does not."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

if find_spec("libcst") is None:
    pytest.skip("edits sources", allow_module_level=True)

from lanewise.edit.printed import compare_printed
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


@pytest.mark.parametrize(("name", "case", "text"), flat(SAFE))
def test_an_edit_whose_ground_is_proven_is_offered_and_changes_nothing(
    name: str, case: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = rewrite(HEAD + text, only=[name], safe_only=True)
    assert [one.safe for one in edited.suggestions], case
    torch = pytest.importorskip("torch")
    # What the default backend makes of it is not the question here, and takes seconds.
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f=None, **given: compiled(f, **{**given, "backend": "aot_eager"}))
    before, after = (printed(source, case) for source in (HEAD + text, edited.after))
    assert before, "it prints something to compare"
    assert compare_printed([before], [after]).same, f"{before} became {after}\n{edited.after}"


def printed(source: str, name: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
    return out.getvalue()


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


@pytest.mark.parametrize("name", ["t06_import_as", "t08_empty_1d_cat", "t15_zero_grad_accum"])
def test_programs_that_broke_print_the_same_with_the_edits(name: str) -> None:
    source = (FILES / f"{name}.py").read_text()
    edited = rewrite(source, skip=["zero-grad"]).after
    assert edited != source
    pytest.importorskip("torch")
    said = [printed(text, name) for text in (source, edited)]
    assert said[0]
    assert compare_printed(said[:1], said[1:]).same, said


@pytest.mark.parametrize(
    "source",
    [
        """
        class Cache:
            def __init__(self):
                self.k = torch.ones(1, 2, 0, 4)

            def update(self, k):
                self.k = torch.cat([self.k, k], dim=2)
                return self.k
        """,
        """
        class Cache:
            def __init__(self):
                self.k = torch.ones(1, 2, 0, 4)

            def update(self, k):
                k = torch.cat((self.k, k), dim=-2)
                self.k = k
                return k
        """,
        """
        class Cache:
            def __init__(self):
                self.k = None

            def update(self, k):
                self.k = k if self.k is None else torch.cat([self.k, k], dim=2)
                return self.k
        """,
        """
        class Cache:
            def __init__(self):
                self.layers = {0: torch.ones(1, 2, 0, 4)}

            def update(self, k):
                self.layers[0] = torch.cat([self.layers[0], k], -2)
                return self.layers[0]
        """,
    ],
)
def test_a_cache_in_a_class_grows_with_room_to_spare(source: str) -> None:
    torch = pytest.importorskip("torch")
    edited = rewrite("import torch\n" + dedent(source), only=["growing-cat"])
    assert [one.safe for one in edited.suggestions] == [False]
    caches: list[Any] = []
    for text in ("import torch\n" + dedent(source), edited.after):
        names: dict[str, Any] = {}
        exec(compile(text, "cache", "exec"), names)
        caches.append(names["Cache"]())
    torch.manual_seed(0)
    for size in (1, 1, 3, 1, 2):
        token = torch.randn(1, 2, size, 4)
        with torch.inference_mode(size == 3):
            expected, grown = (cache.update(token) for cache in caches)
        assert torch.equal(expected, grown)


@pytest.mark.parametrize(
    ("held", "new", "dim"),
    [((0,), (3, 4), 0), ((2, 3), (1, 3), 0), ((2, 3), (2, 1), -1), ((2, 3), (2, 1), 1), ((0, 3), (2, 3), 0)],
)
def test_what_is_appended_along_any_dimension_is_what_cat_makes(
    held: tuple[int, ...], new: tuple[int, ...], dim: int
) -> None:
    torch = pytest.importorskip("torch")
    source = f"import torch\n\nfor x in parts:\n    held = torch.cat([held, x], dim={dim})\n"
    made = [torch.randn(new) for _ in range(4)]
    both: list[Any] = []
    for text in (source, rewrite(source, only=["growing-cat"]).after):
        names: dict[str, Any] = {"parts": made, "held": torch.ones(held)}
        exec(compile(text, "grown", "exec"), names)
        both.append(names["held"])
    assert torch.equal(both[0], both[1])


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
