"""Programs with the edits in them run, and compute and print what they did before."""

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
from lanewise.edit.rewrite import rewrite
from tests.edit.test_source import BAD, CASES
from tests.edit.test_traps import FILES, HEAD, SAFE, flat
from tests.support.command import lanewise

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("name", "case", "text"), flat(SAFE))
def test_an_edit_whose_ground_is_proven_changes_nothing(
    name: str, case: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = rewrite(HEAD + text, only=[name], safe_only=True)
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


@pytest.mark.parametrize("name", ["t06_import_as", "t08_empty_1d_cat", "t15_zero_grad_accum"])
def test_programs_that_broke_print_the_same_with_the_edits(name: str) -> None:
    source = (FILES / f"{name}.py").read_text()
    edited = rewrite(source, skip=["zero-grad"]).after
    assert edited != source
    said = [printed(text, name) for text in (source, edited)]
    assert said[0]
    assert compare_printed(said[:1], said[1:]).same, said


def test_the_rewritten_attention_computes_the_same() -> None:
    source = dedent(CASES["attention with a mask"][1])
    names: dict[str, object] = {}
    fixed: dict[str, object] = {}
    exec("import torch\nimport torch.nn.functional as F\n" + source, names)
    exec(rewrite("import torch\nimport torch.nn.functional as F\n" + source, only=["attention"]).after, fixed)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 64) for _ in range(3))
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert torch.allclose(names["f"](q, k, v, hidden), fixed["f"](q, k, v, hidden), atol=1e-5)  # type: ignore[operator]


def test_a_partition_keeps_the_order_of_the_rows() -> None:
    x, keep = torch.randn(50, 3), torch.rand(50) > 0.5
    assert torch.equal(x[torch.argsort(~keep, stable=True)], torch.cat([x[keep], x[~keep]]))


def test_a_tensor_that_grew_with_room_is_the_one_that_cat_makes() -> None:
    source = """
    import torch

    def grow(held, parts):
        for part in parts:
            held = torch.cat([held, part], dim=1)
        return held
    """
    result = rewrite(dedent(source), only=["growing-cat"])
    names: dict[str, Any] = {}
    exec(compile(result.after, "grown", "exec"), names)
    append, start = names["append_along"], torch.randn(2, 3, 4)
    parts = [torch.randn(2, size, 4) for size in (1, 1, 2, 5, 1)]
    assert torch.equal(names["grow"](start, parts), torch.cat([start, *parts], 1))
    # Two continuations of one tensor do not write into each other's room.
    stem = append(start, parts[0], 1)
    one, other = append(stem, parts[1], 1), append(stem, parts[2], 1)
    assert torch.equal(one, torch.cat([start, parts[0], parts[1]], 1))
    assert torch.equal(other, torch.cat([start, parts[0], parts[2]], 1))
    longer = append(append(one, parts[3], 1), parts[4], 1)
    assert torch.equal(longer, torch.cat([one, parts[3], parts[4]], 1))
    # A gradient goes through a copy.
    leaf = torch.randn(2, 1, 4, requires_grad=True)
    append(stem, leaf, 1).sum().backward()
    assert torch.equal(leaf.grad, torch.ones(2, 1, 4))
    assert append(stem, parts[1].double(), 1).dtype == torch.float64


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
    source = f"import torch\n\nfor x in parts:\n    held = torch.cat([held, x], dim={dim})\n"
    made = [torch.randn(new) for _ in range(4)]
    both: list[Any] = []
    for text in (source, rewrite(source, only=["growing-cat"]).after):
        names: dict[str, Any] = {"parts": made, "held": torch.ones(held)}
        exec(compile(text, "grown", "exec"), names)
        both.append(names["held"])
    assert torch.equal(both[0], both[1])


@pytest.mark.slow
def test_edits_are_proven_by_recordings_before_they_are_written(tmp_path: Path) -> None:
    script = tmp_path / "optimizer_loop.py"
    script.write_text((BAD / "optimizer_loop.py").read_text())
    done = lanewise("fix", "--apply", "--runs", 2, "--only", "optimizer-flags", script.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "recording before, run 1 of 2" in done.stderr
    assert "it prints the same" in done.stderr
    assert "Step time" in done.stdout
    assert '"fused": True' in script.read_text()
    assert not list(tmp_path.glob(".*lanewise-fix*")), "nothing is left beside the script"


@pytest.mark.slow
def test_a_program_that_fails_by_itself_is_named_with_its_own_error(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import torch\ntorch.ones(3).sum().item()\nraise ValueError('boom')\n")
    done = lanewise("fix", "--apply", "--runs", 1, script.name, cwd=tmp_path)
    assert done.returncode == 1
    assert "the program ends with exit code 1: ValueError: boom" in done.stderr
    assert "item" in script.read_text()
    assert list(tmp_path.glob("*")) == [script], "nothing is left beside the script"


@pytest.mark.slow
def test_edits_that_break_the_program_are_not_written(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    # The optimizer's parameters are integers as far as fused updates are concerned: they refuse.
    script.write_text(
        dedent("""
        import torch

        p = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
        optimizer = torch.optim.AdamW([p], lr=1e-3)
        for _ in range(40):
            optimizer.zero_grad()
            p.abs().sum().backward()
            optimizer.step()
        """)
    )
    before = script.read_text()
    done = lanewise("fix", "--apply", "--unsafe", "--runs", 1, "--only", "optimizer-flags", script.name, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "the edited program ends with exit code" in done.stderr
    assert script.read_text() == before
