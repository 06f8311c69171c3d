"""What a tree that was collected by a running program says about its own collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lanewise.tree.slowing.slowdown import Period, Slowdown

__all__ = ["Distortion", "Watched", "joined", "one_step"]


@dataclass(frozen=True)
class Distortion:
    """What collecting did to the step time, measured in the same run on steps that took turns.

    Attributes:
        ratio: median step with the collector over median step without.
        low, high: 95 % bootstrap interval of the ratio.
        on, off: steps on either side.
        step_ns: median step without it, ns. notice_ns: what it takes to notice that a step began, ns, which is part of the
            ratio and not of `step_ns`, and which steps that are not watched pay, too. 0 if unknown.
    """

    ratio: float
    low: float
    high: float
    on: int
    off: int
    step_ns: float = 0.0
    notice_ns: float = 0.0

    @property
    def noisy(self) -> bool:
        """Whether the interval says nothing: wide, and around 1."""
        return self.low <= 1 <= self.high and self.high - self.low > _NOISY

    @property
    def telling(self) -> bool:
        """Whether the interval supports a single number."""
        return 0 < self.low <= self.high <= _RANGE * self.low and not self.noisy


_NOISY = 0.2
_RANGE = 1.5
"""From this ratio of its ends on an interval supports no single number."""


@dataclass(frozen=True)
class Watched:
    """How a tree was collected, and what is missing from it.

    Attributes:
        way: "native", or "windows" where short profiler windows were folded.
        reason: why not the native collector, one sentence; "" if it was.
        frames: how Python frames were read: "raw" (without the GIL), "public" (with it), "recorded" or "none".
        device: whether device work was collected: "collected", or one sentence why not.
        steps_seen, steps_watched: step boundaries that went by, and those with the collector on.
        start_up_steps: how many of the watched ones count as start-up: the first, which is known only when it has ended.
        every, steps: duty cycle: `steps` of `every` steps; 0, 0 for all.
        budget: share of the run's time that watching may cost, if that was asked for; else 0.
        sampling_error: by how much the share of a place in the watched steps differs from that in all steps at most, with
            95 % confidence for each place, steps that take long and come rarely included; -1 where all steps were watched,
            or too few to tell.
        seconds: wall time with the collector on.
        callbacks: operators, backward functions and scopes folded.
        callback_ns: what folding one costs on this machine, ns, measured at the start; 0 if unknown.
        losses: what was dropped, cut or guessed, by name (see docs/watch.md); only what is not zero.
        checks: what was verified at the start, by name: "" if all is well, else what is wrong.
        distortion: None if it was not measured.
        joules: what the device drew after the first step, by its own counter, J; 0.0 if it does not count.
        joule_steps, joule_seconds: over how many steps, and how long.
        slowdowns: places that became slower while it ran. history: the run in up to some hundred stretches, in their order;
            empty where it was not followed, and of several collections.
    """

    way: str = "native"
    reason: str = ""
    frames: str = "none"
    device: str = ""
    steps_seen: int = 0
    steps_watched: int = 0
    start_up_steps: int = 0
    every: int = 0
    steps: int = 0
    budget: float = 0.0
    sampling_error: float = -1.0
    seconds: float = 0.0
    callbacks: int = 0
    callback_ns: float = 0.0
    losses: dict[str, int] = field(default_factory=dict[str, int])
    checks: dict[str, str] = field(default_factory=dict[str, str])
    distortion: Distortion | None = None
    joules: float = 0.0
    joule_steps: int = 0
    joule_seconds: float = 0.0
    slowdowns: tuple[Slowdown, ...] = ()
    history: tuple[Period, ...] = ()


def _mean_error(parts: Sequence[Watched]) -> float:
    weights = [part.steps_watched / max(1, sum(one.steps_watched for one in parts)) for part in parts]
    if all(part.sampling_error < 0 for part in parts):
        return -1.0
    squares = (weight * max(0.0, part.sampling_error) for weight, part in zip(weights, parts, strict=True))
    return round(sum(square**2 for square in squares) ** 0.5, 5)


def _joined_distortion(parts: Sequence[Watched]) -> Distortion | None:
    """Of several collections: all that was watched over what it takes without. None unless all have measured it.

    The ends of the interval are those of all at once: what makes watching dear is often the same for all.
    """
    found = [part.distortion for part in parts if part.distortion is not None and part.distortion.low > 0]
    seconds = [part.seconds for part in parts]
    if len(parts) == 1 or len(found) < len(parts) or not sum(seconds) > 0:
        return parts[0].distortion if len(parts) == 1 else None

    def over(ratios: Sequence[float]) -> float:
        return sum(seconds) / sum(took / ratio for took, ratio in zip(seconds, ratios, strict=True))

    on, off = sum(one.on for one in found), sum(one.off for one in found)
    return Distortion(
        ratio=over([one.ratio for one in found]),
        low=over([one.low for one in found]),
        high=over([one.high for one in found]),
        on=on,
        off=off,
        step_ns=sum(one.off * one.step_ns for one in found) / max(1, off),
        notice_ns=sum(one.off * one.notice_ns for one in found) / max(1, off),
    )


_MOST_SLOWDOWNS = 64
"""Of several collections together: a sum is as small as one of them."""


def joined(parts: Sequence[Watched | None]) -> Watched | None:
    """Several collections as one: what can be counted is added up, the rest is that of the first.

    None unless all are collections: a tree that holds a trace as well has no cost or loss that could be stated.
    """
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    losses: dict[str, int] = {}
    for part in known:
        for name, number in part.losses.items():
            losses[name] = losses.get(name, 0) + number
    return replace(
        known[0],
        steps_seen=sum(part.steps_seen for part in known),
        steps_watched=sum(part.steps_watched for part in known),
        start_up_steps=sum(part.start_up_steps for part in known),
        seconds=sum(part.seconds for part in known),
        callbacks=sum(part.callbacks for part in known),
        losses=losses,
        joules=sum(part.joules for part in known),
        joule_steps=sum(part.joule_steps for part in known),
        joule_seconds=sum(part.joule_seconds for part in known),
        distortion=_joined_distortion(known),
        # Independent samples: what each is off by adds up as squares do.
        sampling_error=_mean_error(known),
        slowdowns=tuple(found for part in known for found in part.slowdowns)[:_MOST_SLOWDOWNS],
        history=known[0].history if len(known) == 1 else (),
    )


def one_step(watched: Watched | None) -> Watched | None:
    """As if only one step had been watched, for a tree whose costs were divided by their number."""
    return None if watched is None else replace(watched, steps_seen=1, steps_watched=min(watched.steps_watched, 1))
