"""The first calls of a variant, which compile, capture and warm up, so that no later one does; and what follows them."""

from __future__ import annotations

from contextlib import nullcontext

from lanewise.fix.bounded_compilation import compiling, ended_within
from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.correctness import patches_of
from lanewise.fix.tensors import copy_call
from lanewise.fix.time_budget import uninterrupted
from lanewise.fix.trial.ledger import Ledger
from lanewise.fix.trial.workbench import Bench

__all__ = ["first_calls", "wait_after_compiling"]

_LONGEST_WAIT_S, _WAIT_SHARE = 10.0, 0.25
"""For threads that compile a last kernel: seconds, and the share of the time left."""


def first_calls(bench: Bench, variant: Variant, *, compiles: bool = False) -> None:
    """Call it with every recorded call, twice. Its patches learn meanwhile which kinds of calls are theirs.

    Args:
        compiles: whether a compiler runs in them.
    """
    with compiling() if compiles else nullcontext():
        _first_calls(bench, variant)


def _first_calls(bench: Bench, variant: Variant) -> None:
    variant.enable()
    try:
        for patch in patches_of(variant):
            patch.dispatch.learning = True
        for call in bench.subject.calls:
            bench.subject.run(copy_call(call))
        # What is compiled is compiled by now; the second calls may capture, which must not be left half done.
        with uninterrupted() if bench.subject.cuda else nullcontext():
            for call in bench.subject.calls:
                bench.subject.run(copy_call(call))
            bench.subject.wait()
    finally:
        variant.disable()
        bench.state.restore()
        # What is timed next is to cost what it will cost: a patch that learns asks about everything in every call.
        for patch in patches_of(variant):
            patch.dispatch.ground.allow_own()  # what was put back may be another object with the same in it
            patch.dispatch.learning = False


def wait_after_compiling(bench: Bench, ledger: Ledger, name: str) -> None:
    """What is timed next must not run beside a compiler that was stopped: it is waited for, or noted if it takes long."""
    if not ended_within(min(_LONGEST_WAIT_S, _WAIT_SHARE * bench.clock.left)):
        ledger.notes.append(f"kernels of {name} were still being compiled beside what was timed next")
