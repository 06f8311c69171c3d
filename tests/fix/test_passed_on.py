"""Calls that a patch hands over to the original are known to be right without computing them; all others are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lanewise.fix.candidates.candidate import Setting, Several, Variant  # noqa: E402
from lanewise.fix.gate.passed_on import passed_on  # noqa: E402
from lanewise.fix.patch import ForwardPatch  # noqa: E402
from lanewise.fix.subject import Subject, make_subject  # noqa: E402


class Counts(torch.nn.Module):
    """Counts how often it really computes, where nobody puts it back."""

    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        Counts.runs += 1
        return self.part(x)


RECORDED, OTHER = ((torch.ones(2, 4),), {}), ((torch.ones(3, 4),), {})


def _learnt(subject: Subject, *patches: ForwardPatch) -> Several:
    """Patches that know the recorded call."""
    whole = Several(list(patches))
    whole.enable()
    for patch in patches:
        patch.dispatch.learning = True
    subject.entry(*RECORDED[0])
    for patch in patches:
        patch.dispatch.learning = False
    return whole


def _fast(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: torch.zeros_like(x)


@pytest.fixture
def subject() -> Subject:
    return make_subject(Counts().eval().requires_grad_(False), torch.ones(2, 4))


def test_a_call_of_another_kind_ends_in_the_original_which_is_not_run(subject: Subject) -> None:
    whole = _learnt(subject, ForwardPatch(subject.entry, _fast), ForwardPatch(subject.entry, _fast))
    Counts.runs = 0
    assert passed_on(subject, whole, OTHER)
    assert not passed_on(subject, whole, RECORDED)
    assert Counts.runs == 0
    assert torch.equal(subject.entry(*OTHER[0]), subject.module.part(*OTHER[0])), "the original is back in its place"


def test_a_fast_path_that_takes_what_it_does_not_know_is_found_out(subject: Subject) -> None:
    def greedy(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: original(x) * 0

    patch = ForwardPatch(subject.entry, greedy)
    whole = _learnt(subject, patch)
    patch.dispatch.learning = True  # it takes every call
    assert not passed_on(subject, whole, OTHER)


@pytest.mark.parametrize(
    "variant",
    [
        lambda subject: ForwardPatch(subject.module.part, _fast),
        lambda subject: Several([ForwardPatch(subject.entry, _fast), Setting(lambda: 0, lambda _: None, 1)]),
        lambda subject: Several([]),
    ],
)
def test_more_than_patches_of_the_whole_is_compared(subject: Subject, variant: Callable[[Subject], Variant]) -> None:
    made = variant(subject)
    made.enable()
    assert not passed_on(subject, made, OTHER)


def test_an_error_on_the_way_is_no_proof(subject: Subject) -> None:
    whole = _learnt(subject, ForwardPatch(subject.entry, _fast))
    subject.module.register_forward_pre_hook(lambda module, args: 1 / 0)
    assert not passed_on(subject, whole, OTHER)


def test_original_is_asked_about_threads_only_if_a_candidate_fails_in_them(subject: Subject) -> None:
    from lanewise.fix.gate.around import Around
    from lanewise.fix.state import State

    whole = _learnt(subject, ForwardPatch(subject.entry, lambda original: original))
    whole.disable()
    around = Around(subject, State(subject), lambda a, b: all(map(torch.equal, a, b)))
    whole.enable()
    Counts.runs = 0
    checks = around.check(whole)
    assert all(check.passed for check in checks)
    fast = Counts.runs

    def in_one_thread(original: Callable[..., Any]) -> Callable[..., Any]:
        import threading

        thread = threading.get_ident()
        return lambda x: original(x) if threading.get_ident() == thread else original(x) + 1

    whole.disable()
    bad = _learnt(subject, ForwardPatch(subject.entry, in_one_thread))
    Counts.runs = 0
    checks = around.check(bad)
    assert [check.rule for check in checks if not check.passed] == ["C2 from several threads"]
    assert Counts.runs > fast, "the original was asked, too"
