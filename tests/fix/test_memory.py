"""What checking holds of a call's size at a time is bounded, whatever the number of cases; and the verdict is the same."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.gate import correctness, kept, tolerances
from lanewise.fix.gate.correctness import Correctness, Result
from lanewise.fix.gate.kept import Kept as KeptValues
from lanewise.fix.gate.tolerances import error_of
from lanewise.fix.model import Attempt, Timing
from lanewise.fix.optimize import optimize
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.state import State
from lanewise.fix.subject import Subject, make_subject
from lanewise.fix.time_budget import Budget
from lanewise.fix.trial import alternatives
from lanewise.fix.trial.ledger import Kept, Ledger
from lanewise.fix.trial.room import make_room
from lanewise.fix.trial.workbench import make_bench
from tests.fix import programs
from tests.fix.conftest import WorkClock
from tests.fix.programs import planted

X = (32, 64)


def checked(forward: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, room: int) -> Result:
    """What the gate says of a linear layer's stand-in, twice: the second time is another candidate's."""
    monkeypatch.setattr(correctness, "room_on", lambda device: room)
    torch.manual_seed(0)
    subject = make_subject(nn.Linear(64, 64).requires_grad_(False), torch.randn(X))
    gate = Correctness(subject, State(subject), seconds=0)
    candidate = planted("other", forward)
    first, again = (gate.check(candidate, candidate.build(subject)) for _ in range(2))
    assert first.checks == again.checks
    return first


def right(module: Any, original: Any) -> Callable[..., Any]:
    return lambda x: x @ module.weight.t() + module.bias


NO_CASE, A_FEW, ALL = 0, 60_000, 1 << 30


@pytest.mark.parametrize("wrong", [programs.zeros, programs.half_the_rows, programs.nan_swallowed])
def test_a_wrong_result_is_found_with_room_for_no_case_or_a_few(
    wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [checked(wrong, monkeypatch, room) for room in (NO_CASE, A_FEW, ALL)]
    assert [one.passed for one in found] == [False] * 3
    assert len({one.reason for one in found}) == 1


def test_a_right_result_passes_with_room_for_no_case_or_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [checked(right, monkeypatch, room) for room in (NO_CASE, A_FEW, ALL)]
    assert [one.reason for one in found if not one.passed] == []
    assert len({tuple(check.rule for check in one.checks) for one in found}) == 1


def live_bytes(above: int) -> int:
    """Of all tensors that are larger than so many bytes."""
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return sum({id(one.untyped_storage()): one.nbytes for one in tensors if one.nbytes > above}.values())


def test_cases_are_not_all_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    observe = correctness.observe

    def watched(*args: Any, **options: Any) -> Any:
        nonlocal most
        most = max(most, live_bytes(above=4_000) - before)
        return observe(*args, **options)

    before = live_bytes(above=4_000)
    monkeypatch.setattr(correctness, "observe", watched)
    checked(right, monkeypatch, room=0)
    one_call = 32 * 64 * 4
    assert 0 < most < 16 * one_call, most / one_call


def test_what_fits_is_kept_and_what_does_not_is_made_again() -> None:
    made: list[str] = []

    def make(name: str) -> Callable[[], torch.Tensor]:
        return lambda: (made.append(name), torch.zeros(10))[1]

    values = KeptValues(room=100)
    for name in ("a", "b", "c", "a", "b", "c"):
        values.get(name, make(name))
    assert made == ["a", "b", "c", "c"]


def test_room_is_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "free_memory", lambda: 4_000)
    assert kept.room_on(torch.device("cpu")) == 1_000
    monkeypatch.setattr(kept, "free_memory", lambda: None)
    assert kept.room_on(torch.device("cpu")) == 1 << 30


@pytest.mark.parametrize("shape", [(7, 40), (40, 7), (3, 5, 9), (200,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_errors_in_pieces_are_those_of_the_whole(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = torch.randn(shape, dtype=torch.float64)
    found = (truth * (1 + 0.01 * torch.randn(shape))).to(dtype)
    found.flatten()[3] = torch.nan
    truth.flatten()[5] = torch.inf
    whole = error_of(found.mT if found.dim() > 1 else found, truth.mT if truth.dim() > 1 else truth)
    monkeypatch.setattr(tolerances, "_MOST_AT_ONCE", 16)
    assert error_of(found, truth) == pytest.approx(whole, rel=1e-12)
    assert error_of(torch.zeros(shape), torch.zeros(shape)).largest == 0
    assert error_of(found, torch.zeros(shape)).norm == torch.inf


class Small(nn.Module):
    """Runs out of memory in double precision, or with values of some size."""

    def __init__(self, most: float = torch.inf, *, doubles: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self._most, self._doubles, self._calls = most, doubles, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x.dtype == torch.float64 and not self._doubles) or float(x.detach().abs().max()) > self._most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.layer(x)


def test_a_program_that_does_not_fit_in_double_precision_is_its_own_reference() -> None:
    subject = make_subject(Small().requires_grad_(False), torch.randn(X))
    gate = Correctness(subject, State(subject), seconds=0)
    assert "itself" in gate.what
    candidate = planted("other", lambda module, original: right(module.layer, original))
    assert gate.check(candidate, candidate.build(subject)).passed


def test_memory_that_ends_later_takes_the_reference_and_not_the_verdict() -> None:
    module = Small(doubles=True).requires_grad_(False)
    subject = make_subject(module, torch.randn(X))
    gate = Correctness(subject, State(subject), seconds=0)
    assert gate.reference is not None
    twin: Any = gate.reference._twin
    twin._doubles = False
    good, bad = (planted("other", one) for one in (lambda m, original: right(m.layer, original), programs.zeros))
    assert gate.check(good, good.build(subject)).passed
    assert gate.what == "the program itself: double precision does not fit into memory"
    assert not gate.check(bad, bad.build(subject)).passed


def test_running_out_of_memory_is_no_refusal_of_values() -> None:
    """A candidate that computes what did not fit is right, not one that gives a result where the original raises."""
    subject = make_subject(Small(most=500, doubles=True).requires_grad_(False), torch.randn(X))
    gate = Correctness(subject, State(subject), seconds=0)
    candidate = planted("other", lambda module, original: right(module.layer, original))
    found = gate.check(candidate, candidate.build(subject))
    assert found.passed, found.reason


def test_a_program_that_cannot_be_verified_for_lack_of_memory_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(correctness, "observe", full)
    module = nn.Linear(64, 64)
    plan = optimize(module, torch.randn(X), budget="20s", only=["compile"])
    assert not plan
    assert any("memory of cpu does not hold" in note for note in plan.report.notes)


def test_threads_that_do_not_fit_at_the_same_time_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = make_subject(nn.Linear(64, 64).requires_grad_(False), torch.randn(X))
    gate = Correctness(subject, State(subject), seconds=0)
    main = threading.get_ident()

    def alone(module: Any, original: Any) -> Callable[..., Any]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            if threading.get_ident() != main:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return x @ module.weight.t() + module.bias

        return forward

    candidate = planted("other", alone)
    found = gate.check(candidate, candidate.build(subject))
    assert found.passed, found.reason
    assert not any("threads" in check.rule for check in found.checks)


def test_what_was_only_kept_for_later_makes_room_for_a_candidate(work_clock: WorkClock) -> None:
    """A graph of large calls that was slower would otherwise leave no memory for the compiler, which is faster."""
    module = programs.Repeats(work_clock).eval()
    held: list[weakref.ref[object]] = []

    class Held(ForwardPatch):
        """Stands for a graph: its memory is held for as long as it is."""

    def graph(subject: Subject) -> ForwardPatch:
        made = Held(subject.entry, lambda original: lambda x: (original(x), original(x))[1])
        held.append(weakref.ref(made))
        return made

    def needs_the_memory(module: Any, original: Any) -> Callable[..., Any]:
        once = programs.done_once(module, original)

        def forward(x: torch.Tensor) -> torch.Tensor:
            if any(one() is not None for one in held):
                raise torch.OutOfMemoryError("Tried to allocate 14.00 GiB")
            return once(x)

        return forward

    slower = Candidate("graph", "planted", "whole", "planted", graph, alternative=True)
    plan = optimize(
        module,
        torch.randn(64, 64),
        budget="40s",
        only=["graph", "fast"],
        extra=[slower, planted("fast", needs_the_memory)],
        trace=False,
    )
    assert {one.name: one.outcome for one in plan.report.attempts} == {"graph": "not faster", "fast": "kept"}
    assert any("graph" in note and "make room" in note for note in plan.report.notes)


def test_a_candidate_that_no_memory_is_enough_for_fails_for_that_reason() -> None:
    def too_large(module: Any, original: Any) -> Callable[..., Any]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("Tried to allocate 14.00 GiB")

        return forward

    plan = optimize(
        nn.Linear(8, 8), torch.randn(8, 8), budget="40s", only=["bad"], extra=[planted("bad", too_large)], trace=False
    )
    (attempt,) = plan.report.attempts
    assert attempt.outcome == "failed"
    assert attempt.reason.startswith("OutOfMemoryError: Tried to allocate")


@pytest.mark.parametrize("crowded", [False, True])
def test_what_made_room_is_not_built_again_for_the_final_comparison(
    crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = make_subject(nn.Linear(8, 8).eval().requires_grad_(False), torch.randn(4, 8))
    bench = make_bench(subject, State(subject), Budget(60), goal="latency", allow=[])
    slower = replace(planted("graph", lambda module, original: original), alternative=True)
    monkeypatch.setattr(alternatives, "catalogue", lambda *_: [slower])
    timing = Timing(0.5, 0.4, 0.6, 0.1, 0.01, "slower", 10.0, 20.0, 5)
    ledger = Ledger()
    ledger.attempts = [Attempt("graph", "planted", "whole", "graph", "not faster", "", timing=timing)]
    if crowded:
        ledger.alternatives = [Kept(slower, slower.build(subject), proven=False)]
        make_room(bench, ledger)
    alternatives.build_alternatives(bench, ledger)
    assert [one.candidate.name for one in ledger.alternatives] == ([] if crowded else ["graph"])
