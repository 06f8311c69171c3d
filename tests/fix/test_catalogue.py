"""Which candidates a program gets, on the host and on a card; on the card only what is generated, not what it does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

import lanewise
from lanewise.fix.bounds import Known, bound_of, why_pruned
from lanewise.fix.candidates import fused
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.optimize import ALLOWABLE
from lanewise.fix.state import State
from lanewise.fix.subject import Subject, make_subject
from lanewise.fix.work.worklist import WorkList, work_of


class Attends(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def names(subject: Subject) -> list[str]:
    return [candidate.name for candidate in catalogue(subject, work_of(subject, State(subject)))]


def test_what_a_program_on_the_host_gets() -> None:
    threads = {f"threads-{n}" for n in range(1, 1000)}
    image = make_subject(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8))
    assert set(names(image)) - threads == {"no-grad", "channels-last", "bf16-autocast", "compile"}
    attention = make_subject(Attends().eval(), tuple(torch.randn(1, 2, 16, 8) for _ in range(3)))
    assert [name for name in names(attention) if name.startswith("sdpa")] == ["sdpa-math"]
    repeated = make_subject(nn.Sequential(Block(), Block()).eval(), torch.randn(4, 8))
    assert "compile-blocks" in names(repeated)
    assert names(repeated)[-1].startswith("compile"), "the compiler comes last: it sees through all below it"
    half = make_subject(nn.Linear(4, 4).bfloat16().eval(), torch.randn(2, 4).bfloat16())
    assert "bf16-autocast" not in names(half)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    training = make_subject(step, torch.randn(2, 4))
    assert training.kind == "step"
    assert training.found.modules == [model]
    assert {"optimizer-fused", "optimizer-foreach"} <= set(names(training))
    assert "no-grad" not in names(training)


def test_what_a_program_on_a_card_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = make_subject(nn.Sequential(Block(), Block()).eval(), torch.randn(4, 8))
    subject.device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else object())
    found = {candidate.name: candidate for candidate in catalogue(subject, WorkList())}
    assert {
        "no-grad", "tf32", "bf16-autocast", "cuda-graph", "kernel-layer_norm",
        "compile", "compile-blocks", "compile-reduce-overhead", "compile-max-autotune",
    } <= set(found)  # fmt: skip
    assert not any(name.startswith("threads") for name in found)
    assert found["kernel-layer_norm"].region == "2 times LayerNorm"
    assert {name for name, one in found.items() if one.refused_unless_allowed} == set(ALLOWABLE)
    assert {name for name, one in found.items() if one.alternative} == {
        "cuda-graph", "compile", "compile-reduce-overhead", "compile-max-autotune",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "half", "rewritten"),
    [
        ({"addmm": 2}, False, True),
        ({"convolution": 1}, False, True),
        ({"addmm": 2}, True, False),
        ({"_scaled_dot_product_flash_attention": 1}, True, True),
        ({"add": 9}, False, False),
    ],
)
def test_the_compilers_graph_is_rewritten_where_the_rewrites_have_something_to_look_at(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], half: bool, rewritten: bool
) -> None:
    model, x = nn.Linear(8, 8).eval().requires_grad_(False), torch.randn(4, 8)
    subject = make_subject(*((model.half(), x.half()) if half else (model, x)))
    subject.device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else object())
    found = {candidate.name: candidate for candidate in catalogue(subject, WorkList(counts=Counter(counts)))}
    assert ("compile-rewritten" in found, "compile-rewritten-cuda-graph" in found) == (rewritten, rewritten)
    assert {name for name, one in found.items() if one.owed} == {"compile", "compile-cuda-graph"}
    if rewritten:
        single = WorkList(counts=Counter(counts), operators=1)
        assert bound_of(found["compile-rewritten"], single) == float("inf"), "it replaces single operators, too"


@pytest.mark.parametrize(("rows", "pays"), [(32, False), (4096, False), (8192, True), (65536, True)])
def test_a_whole_mlp_in_one_kernel_is_tried_where_it_has_rows_for_the_card(
    monkeypatch: pytest.MonkeyPatch, rows: int, pays: bool
) -> None:
    """Seen on a card of 132 multiprocessors: 0.2x with 32 rows, 1.9x with 8192."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).eval().requires_grad_(False)
    subject = make_subject(model, torch.randn(rows // 4, 4, 8))
    subject.device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else object())
    found = {candidate.name: candidate for candidate in catalogue(subject, WorkList())}
    in_turn = list(found)
    assert in_turn.index("cuda-graph+kernel-mlp") < in_turn.index("kernel-mlp")
    assert in_turn.index("kernel-mlp") < in_turn.index("compile-max-autotune")
    assert found["kernel-mlp"].engine
    for name in ("kernel-mlp", "cuda-graph+kernel-mlp"):
        reason = why_pruned(found[name], 0.0, None)
        assert (reason == "") == pays
        assert pays or f"{rows:,} rows" in reason
    assert not model._forward_pre_hooks


def test_the_kernels_that_a_trace_must_show_exist() -> None:
    """Their names are those of the Triton functions: renaming one must not make every gain uncredited."""
    sources = "".join(path.read_text() for path in (Path(lanewise.__file__).parent / "kernels").rglob("*.py"))
    for kernel, names in fused._KERNELS.items():
        if kernel != "liger":
            assert all(f"def {name}(" in sources or f"{name}(" in sources for name in names), kernel


def test_a_small_card_is_not_autotuned(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = make_subject(nn.Linear(4, 4).eval(), torch.randn(4, 4))
    subject.device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=58))
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: None)
    assert "compile-max-autotune" not in [candidate.name for candidate in catalogue(subject, WorkList())]


def test_the_work_of_a_call_is_counted_by_hand() -> None:
    """addmm of [4, 8] x [8, 16], then relu: 2 * 4 * 8 * 16 FLOP; each operator reads and writes what it must."""
    subject = make_subject(nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval().requires_grad_(False), torch.randn(4, 8))
    work = work_of(subject, State(subject))
    assert work.flop == 2 * 4 * 8 * 16
    assert work.operators == 2
    assert work.by_kind["product"] == 4 * (4 * 8 + 8 * 16 + 16 + 4 * 16)
    assert work.by_kind["pointwise"] == 4 * (4 * 16 + 4 * 16)


def test_bounds_prune_what_cannot_pay() -> None:
    subject = make_subject(Attends().eval(), tuple(torch.randn(1, 2, 16, 8) for _ in range(3)))
    work = work_of(subject, State(subject))
    (sdpa,) = [candidate for candidate in catalogue(subject, work) if candidate.name == "sdpa-math"]
    assert bound_of(sdpa, work) > 100 or bound_of(sdpa, work) == 0.0, "attention is all it does"
    from dataclasses import replace

    small = replace(sdpa, saves=0.005)
    assert why_pruned(small, bound_of(small, work), None) == "it can save at most 0.5 % of the time"
    known = Known({"KER108": 0.2}, set(), 100.0)
    assert "would save 0.2 of 100 us" in why_pruned(replace(sdpa, saves=1.0), 0.0, known)
    assert why_pruned(replace(sdpa, saves=1.0), 0.0, Known({"KER108": 50.0}, set(), 100.0)) == ""
    (compiled,) = [candidate for candidate in catalogue(subject, work) if candidate.name == "compile"]
    single: Any = WorkList(operators=1)
    assert why_pruned(replace(compiled, owed=False), bound_of(compiled, single), None)
    assert not why_pruned(compiled, bound_of(compiled, single), None), "one line of torch is tried"
