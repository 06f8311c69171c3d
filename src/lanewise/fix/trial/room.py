"""Memory for a candidate that does not find enough of it: what is only kept for later is given back."""

from __future__ import annotations

import gc

from lanewise.fix.trial.ledger import Ledger
from lanewise.fix.trial.workbench import Bench
from lanewise.fix.typed_torch import torch

__all__ = ["make_room"]


def make_room(bench: Bench, ledger: Ledger) -> None:
    """Give back what the gate keeps from one candidate to the next, and the ways that were slower at first sight.

    A graph of calls with gigabytes of tensors holds as much again. What was slower cannot become the plan; it is no longer
    in the final comparison, and the notes say so.
    """
    gone = [one.candidate.name for one in ledger.alternatives if not one.proven]
    ledger.alternatives = [one for one in ledger.alternatives if one.proven]
    ledger.made_room.update(gone)
    if gone:
        ledger.notes.append(f"{', '.join(gone)}, slower at first sight, had to make room: not in the final comparison")
    bench.gate.give_back()
    gc.collect()
    if bench.subject.cuda:
        torch.cuda.empty_cache()
