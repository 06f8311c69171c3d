"""Credit by trace: the program is recorded before and after, and what the trace does not show is not kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lanewise.compare.diff import diff
from lanewise.compare.outcome.verdict import step_sentence
from lanewise.errors import LanewiseError
from lanewise.fix.candidates.candidate import Several, Variant
from lanewise.fix.model import Shown
from lanewise.fix.trial.ledger import Ledger
from lanewise.fix.trial.workbench import Bench
from lanewise.fix.work.trace_counts import Seen, record_calls, see

__all__ = ["credit"]


def credit(bench: Bench, ledger: Ledger) -> str:
    """Hold the predictions of what is kept against traces, and drop what they do not show.

    Returns:
        What the traces differ in, as `lanewise diff` says it; "" if none could be recorded, which is noted.
    """
    verdict = ""
    while ledger.kept:
        # What is left after something was dropped is recorded by itself: what held may have been the other's doing.
        proven = ledger.names
        verdict = _credit_once(bench, ledger)
        if ledger.names == proven:
            break
    return verdict


def _credit_once(bench: Bench, ledger: Ledger) -> str:
    bench.clock.tell("recording before and after")
    with tempfile.TemporaryDirectory(prefix="lanewise-") as folder:
        try:
            before = _recorded(bench, Path(folder), "before", None)
            after = _recorded(bench, Path(folder), "after", ledger.plan)
            # What a graph replays, or a compiler made, has no operators any more: parts are shown without the engine.
            parts = [one.variant for one in ledger.kept if not one.candidate.engine]
            hidden = 0 < len(parts) < len(ledger.kept)
            without = _recorded(bench, Path(folder), "parts", Several(parts)) if hidden else after
            comparison = diff(before.path, after.path, labels=("before", "after"), anyway=True)
        except LanewiseError as error:
            ledger.notes.append(f"no trace could be recorded, so nothing is confirmed by one: {error}")
            return ""
    for one in list(ledger.kept):
        name = one.candidate.name
        seen = after if one.candidate.engine else without
        shown = [Shown(p.what, *p.holds(before, seen)) for p in one.candidate.predictions]
        ledger.change(name, shown=shown)
        missing = [s for s in shown if not s.seen]
        if missing and name in ledger.names:
            told = "; ".join(f"{s.prediction}: {s.detail}" for s in missing)
            ledger.drop(name, "not credited", f"the trace does not show it ({told})")
    (difference,) = comparison.differences
    # Of a few steps under the profiler, the time says less than what was timed in turns.
    return difference.verdict.removesuffix(step_sentence(difference.step)).strip()


def _recorded(bench: Bench, folder: Path, name: str, variant: Variant | None) -> Seen:
    from lanewise.trace.reader import read

    if variant is not None:
        variant.enable()
    try:
        path = str(record_calls(bench.subject, bench.state, folder, name))
        return see(read(path, cache=False), path)
    finally:
        if variant is not None:
            variant.disable()
        bench.state.restore()
