"""The measurements in their order: who is asked for what, and for how long.

Every stage adds its answers to the results as they come, so that a run that is cut short keeps what it has.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from benchmarks.context.arms import KINETO, PROTON
from benchmarks.crew import Crew, Make

__all__ = ["PROGRAMS", "STAGES", "Run", "members", "packed"]

_LATE_S = 60.0
"""No answer takes longer than its time and this."""

PAIRS = "pairs"
WATCHERS = ("watch a", "watch b")
TRACER = "trace"

PROGRAMS = ("llama", "adds", "wide")
_SHARES = {"llama": 0.65, "adds": 0.25, "wide": 0.1}
"""Of the time in which arms are compared."""


class Run:
    """A run of the stages.

    Args:
        crew: the processes. seconds: what all stages take together. record: takes each answer by name.
        programs: of those that profilers are compared on.
    """

    def __init__(
        self,
        crew: Crew,
        device: str,
        seconds: float,
        record: Callable[[str, dict[str, Any]], None],
        programs: tuple[str, ...] = PROGRAMS,
    ) -> None:
        self.crew = crew
        self.programs = programs
        self.device = device
        self.seconds = seconds
        self.record = record

    def ask(self, name: str, lasting: float = 0.0, **request: Any) -> dict[str, Any]:
        """One answer, in time."""
        return self.crew.ask(name, late=lasting + _LATE_S, **request)


def arms_of(device: str) -> dict[str, str]:
    """Processes that compare arms, and the arm of each: two for what everything else is measured against."""
    arms = [
        "null",
        "watch",
        *KINETO,
        *(PROTON if device == "cuda" else ()),
        *(["watch_off"] if device == "cuda" else []),
    ]
    return {arm: arm for arm in arms} | {f"{arm} again": arm for arm in ("null", "watch")}


def members(device: str, stages: list[str]) -> dict[str, Make]:
    """Who is needed for these stages."""
    # Imports torch, which whoever only reads results does without.
    from benchmarks.context.member import make_member

    found: dict[str, Make] = {}
    if {"pairs", "parts", "turns"} & set(stages):
        found[PAIRS] = make_member((*PROGRAMS, "small_llama"), device)
    if {"arms", "left"} & set(stages):
        found |= {name: make_member(PROGRAMS, device) for name in arms_of(device)}
    if "windows" in stages and device == "cuda":
        found |= {name: make_member(("steady", "small_llama"), device) for name in (*WATCHERS, TRACER)}
    if "size" in stages:
        found |= {f"size {steps}": make_member(("mlp", "small_llama"), device) for steps in (200, 20000)}
    return found


def pairs(run: Run) -> None:
    """What watching costs: steps with and without in turn."""
    shares = {
        ("llama", "watch"): 0.36, ("llama", "null"): 0.14, ("adds", "watch"): 0.2, ("adds", "null"): 0.1,
        ("wide", "watch"): 0.12, ("wide", "null"): 0.08,
    }  # fmt: skip
    wanted = {key: share for key, share in shares.items() if key[0] in run.programs}
    for (program, arm), share in wanted.items():
        _pairs(run, program, arm, share / sum(wanted.values()) * run.seconds)


def parts(run: Run) -> None:
    """What parts of watching cost: torch's own calls of callbacks that do nothing, operators alone, all but the device."""
    arms = ("empty", "watch_operators", *(("watch_host",) if run.device == "cuda" else ()))
    for arm in arms:
        _pairs(run, "llama", arm, run.seconds / len(arms))


def _pairs(run: Run, program: str, arm: str, seconds: float) -> None:
    answer = run.ask(PAIRS, seconds, do="pairs", program=program, arm=arm, seconds=seconds)
    run.record(f"pairs {program} {arm}", answer)


def turns(run: Run) -> None:
    """What one watched step among others costs."""
    for arm, share in (("watch", 0.7), ("null", 0.3)):
        answer = run.ask(PAIRS, do="turns", program="small_llama", arm=arm, seconds=share * run.seconds)
        run.record(f"turns small_llama {arm}", answer)


def arms(run: Run) -> None:
    """Every profiler beside `watch`: steps before, during and after, the processes taking turns."""
    found: dict[str, Any] = {"arms": arms_of(run.device), "order": []}
    for phase, share in (("before", 0.25), ("during", 0.45), ("after", 0.3)):
        if phase == "during":
            for name in _present(run):
                run.ask(name, do="attach", arm=found["arms"][name])
                # What comes first only once does not count.
                for program in run.programs:
                    run.ask(name, do="run", program=program, count=1)
        found[phase] = _rounds(run, share * run.seconds)
        if phase == "during":
            run.crew.ask_all(_present(run), late=2 * _LATE_S, do="detach", export=False)
            for name in _present(run):
                for program in run.programs:
                    run.ask(name, do="run", program=program, count=1)
    run.record("arms", found | {"lost": run.crew.lost})


def _present(run: Run) -> list[str]:
    return [name for name in arms_of(run.device) if name in run.crew.names]


def _rounds(run: Run, seconds: float) -> list[dict[str, Any]]:
    """In each round, every process runs one step of one program; the times by process and program."""
    rounds: list[dict[str, Any]] = []
    whole = sum(_SHARES[program] for program in run.programs)
    for program in run.programs:
        until = time.monotonic() + _SHARES[program] / whole * seconds
        count = 0
        while count < 4 or time.monotonic() < until:
            count += 1
            one: dict[str, Any] = {}
            for name in random.sample(_present(run), len(_present(run))):
                one[name] = {program: run.ask(name, do="run", program=program, count=1).get("ns", [])}
            rounds.append(one)
    return rounds


def left(run: Run) -> None:
    """How long the end of each profiler takes after five steps of the Llama, and what it leaves on disk."""
    for name, arm in arms_of(run.device).items():
        if name not in run.crew.names or name != arm or arm in ("null", "watch_off"):
            continue
        run.ask(name, do="attach", arm=arm)
        run.ask(name, do="run", program="llama", count=5)
        run.record(f"left llama {arm}", run.ask(name, do="detach", export=True))


def windows(run: Run) -> None:
    """Device time of each kernel, by two watches and by torch's profiler in turn."""
    if run.device != "cuda":
        return
    for program, count, share in (("steady", 40, 0.65), ("small_llama", 4, 0.35)):
        until = time.monotonic() + share * run.seconds
        rounds: list[dict[str, Any]] = []
        while not run.crew.lost.keys() & {*WATCHERS, TRACER} and (len(rounds) < 5 or time.monotonic() < until):
            one: dict[str, Any] = {}
            for name in random.sample((*WATCHERS, TRACER), 3):
                source = "trace" if name == TRACER else "watch"
                one[name] = run.ask(name, do="window", program=program, source=source, count=count, warm_s=0.06)
            rounds.append(one)
        # Of the first, half is the first use of each profiler.
        run.record(f"windows {program}", {"lost": run.crew.lost, **packed(rounds[1:])})


def packed(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Windows with each name of a kernel written once: `rounds` hold how often and ns of all names in their order."""
    names = sorted({kernel for one in rounds for answer in one.values() for kernel in answer.get("kernels", {})})
    return {
        "names": names,
        "rounds": [
            {who: [answer["kernels"].get(kernel, [0, 0]) for kernel in names] for who, answer in one.items()}
            for one in rounds
            if all("kernels" in answer for answer in one.values())
        ],
    }


def size(run: Run) -> None:
    """Contexts, bytes and memory at few and at many steps."""
    for program, counts in (("mlp", (200, 20000)), ("small_llama", (200, 2000))):
        for count in counts:
            name = "size 200" if count == 200 else "size 20000"
            answer = run.ask(name, 2 * _LATE_S, do="size", program=program, arm="watch", steps=count)
            run.record(f"size {program} {count}", answer)


def agreement(run: Run) -> None:
    """Contexts and counts beside a full trace of the same steps, in a process of its own."""
    from benchmarks.fresh import call

    def work() -> dict[str, Any]:
        import torch
        from benchmarks.context.agreement import agreement as compared

        torch.set_num_threads(1)
        return compared(program, run.device, 3)

    for program in ("wide", "small_llama"):
        run.record(f"agreement {program}", call(work, seconds=2 * _LATE_S))


STAGES: dict[str, tuple[Callable[[Run], None], float]] = {
    "pairs": (pairs, 0.28),
    "arms": (arms, 0.42),
    "windows": (windows, 0.12),
    "turns": (turns, 0.1),
    "left": (left, 0.0),
    "parts": (parts, 0.08),
    "size": (size, 0.0),
    "agreement": (agreement, 0.0),
}
"""In order, with its share of the time; 0 for what takes as long as it takes."""
