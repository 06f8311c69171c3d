"""DIS103."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, host_cost, of_step, per
from lanewise.diagnose.what_if.remedies import batch
from lanewise.measure.distributed.ranks import collectives
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import BYTES, COUNT, HOST, NAME, headed
from lanewise.report.quantity import byte_size, share, time

_BUCKET = 25 << 20

# No model has so many buckets in a step.
_MANY = 64

_OF_UNKNOWN_SIZE = (
    "{collectives} {per}, each by itself: starting them costs the host {host}, {share} of the step (their sizes are not "
    "recorded)."
)


@rule(
    "DIS103",
    "small-collectives",
    title="{collectives} {per} of less than {limit} each ({bytes} in all): starting them costs the host {host}, "
    "{share} of the step.",
)
def small_collectives(
    facts: Facts, *, collectives_from: float = 10.0, below_bytes: int = 1 << 20, share_from: float = 0.03
) -> Outcome:
    """Many small messages, each with its own launch and its own latency.

    A collective costs the host some 50 to 100 us and the network several microseconds, whatever it carries. In one
    bucket the same data would pay that once.

    Costs: the host time of all but the needed buckets of 25 MiB.

    Fix: DDP instead of a loop over `all_reduce`, larger buckets, `all_reduce_coalesced`, one flat buffer.

    Verify: fewer collectives per step.

    Silent: for a few control messages per step.

    Source: HTA; 72 calls cost 5.6 ms per step of our H100 pair, DDP's four 0.9 ms.
    """
    if not facts.is_family("communication").any():
        return NotApplicable("the trace holds no collectives")
    found = collectives(facts)
    if len(found.event) == 0:
        return NotApplicable("no collective was launched in the recording")
    mine = np.isin(found.event, facts.steady_events(found.event)) & (found.call >= 0)
    event, size, call = found.event[mine], found.bytes[mine], found.call[mine]
    steps = facts.steady_count
    # Where no size is recorded, one that nobody put into a bucket goes without saying: they are too many.
    unknown = bool((size < 0).all()) and len(size) >= _MANY * steps
    if len(size) and (size < 0).all() and not unknown:
        return NeedsCapture(
            "sizes of the collectives: a build of torch that records their arguments, or `record_shapes=True`"
        )
    small = (size < 0) if unknown else (size >= 0) & (size < below_bytes)
    host = host_cost(facts, call)
    number = float(small.sum()) / steps
    if number < collectives_from or host < share_from * facts.steps.step_ns:
        return Clear(
            f"{number:g} small collectives per step; all calls cost the host {of_step(facts, host):.1%} of the step"
        )
    # As DDP would: of unknown size, in as many buckets as it makes at most of so many gradients.
    needed = math.ceil(number / _MANY) if unknown else math.ceil(float(np.maximum(size, 0).sum()) / steps / _BUCKET)
    owners = np.unique(facts.host.outermost_operator[call])
    owners = owners[owners >= 0]
    rows: list[dict[str, Any]] = []
    names = [found.key[row][1] for row in np.flatnonzero(mine).tolist()]
    for name, bytes_ in sorted({(n, int(s)) for n, s in zip(names, size.tolist(), strict=True)}):
        here = np.array([n == name for n in names]) & (size == bytes_)
        rows.append(
            {"name": name, "bytes": bytes_, "count": int(here.sum()) / steps, "host": host_cost(facts, call[here])}
        )
    rows.sort(key=lambda row: -row["host"])
    return Found(
        title=_OF_UNKNOWN_SIZE if unknown else None,
        bound=unknown,
        values={
            "collectives": counted(number, "collective", "collectives"),
            "per": per(facts),
            "limit": byte_size(below_bytes),
            "bytes": byte_size(max(0.0, float(size[small].sum()) / steps)),
            "host": time(host),
            "share": share(of_step(facts, host)),
        },
        change=batch(
            facts, owners, call, launches=needed, steps=steps, least_ns=float(facts.trace.duration[event].min())
        ),
        spread=0.3,
        evidence=[table("Collectives", [headed(NAME, "collective"), headed(BYTES, "message"), COUNT, HOST], rows)],
        location=locate(facts, int(call[0])),
        events=np.unique(call).tolist(),
    )
