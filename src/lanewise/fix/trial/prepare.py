"""The first calls of a variant, which compile, capture and warm up; no later one does."""

from __future__ import annotations

from contextlib import nullcontext

from lanewise.fix.budget import uninterrupted
from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.correctness import patches_of
from lanewise.fix.tensors import copy_call
from lanewise.fix.trial.bench import Bench

__all__ = ["first_calls"]


def first_calls(bench: Bench, variant: Variant) -> None:
    """Call it with every recorded call, twice. Its patches learn meanwhile which kinds of calls are theirs."""
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
