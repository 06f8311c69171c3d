"""Compiles ahead what a list of workloads will compile, all of them together, into the compilers' caches on disk.

A compiler that finds its work done gives back the same code sooner: with a short budget, more can be tried. The times
that a plan reports for preparing are then those of a warm cache, and the result says so. What `max-autotune` measures is
measured again when it is alone on the device: only the kernels that it chooses from are compiled ahead.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.fix.forked import run_all
from benchmarks.fix.workloads import WORKLOADS

from lanewise.fix.candidates.candidate import Candidate

__all__ = ["use_caches", "warm"]

_LEAST_TOGETHER = 2
_TOGETHER = (("compile", "compile-reduce-overhead", "kernel"), ("compile-max-autotune",))
"""What one process compiles, one after the other: modes share most of their kernels."""

_BELOW = "optimizer-fused"
"""Compilers come after it where there is an optimizer, so that they see another program."""

_LATER = 10
"""By how much what takes longest gives way to the rest."""


def use_caches(folder: Path) -> None:
    """Keep what is compiled in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


def warm(names: Sequence[str], device: str, folder: Path, seconds: float) -> dict[str, str]:
    """Compile for all workloads until done or the time is up; by job "" or why it did not end well."""
    wanted = [(kinds, name) for kinds in _TOGETHER for name in names]
    jobs = [
        (lambda name=name, kinds=kinds: _compile(name, kinds, device, folder), folder / f"warm-{name}-{kinds[0]}.log")
        for kinds, name in wanted
    ]
    together = max(_LEAST_TOGETHER, (os.cpu_count() or 1) - 1)
    said = run_all(jobs, together, seconds)
    return {f"{name} {kinds[0]}": text for (kinds, name), text in zip(wanted, said, strict=True)}


def _compile(name: str, kinds: Sequence[str], device: str, folder: Path) -> None:
    if "compile-max-autotune" in kinds:
        # Not where the measured process looks: what is chosen here, it chooses on a busy device.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "elsewhere")
        os.nice(_LATER)
    import torch
    import torch._inductor.config

    # There are many of these processes: each compiles by itself. Some versions read the one, some the other.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch._inductor.config.compile_threads = 1

    from lanewise.fix.candidates.catalogue import catalogue
    from lanewise.fix.state import State
    from lanewise.fix.subject import make_subject
    from lanewise.fix.work.worklist import work_of

    torch.manual_seed(0)
    subject = make_subject(*next(one for one in WORKLOADS if one.name == name).make(device))
    state = State(subject)
    bench: Any = SimpleNamespace(subject=subject, state=state)
    known = catalogue(subject, work_of(subject, state))
    for one in known:
        if one.name == _BELOW and "compile" in kinds:
            fused = one.build(subject)
            fused.enable()
            _first_calls(bench, next(other for other in known if other.name == "compile"))
            fused.disable()
    for kind in kinds:
        for candidate in [one for one in known if one.name == kind or (kind == "kernel" and one.family == "kernel")]:
            _first_calls(bench, candidate)


def _first_calls(bench: Any, candidate: Candidate) -> None:
    from lanewise.fix.trial.prepare import first_calls

    began = time.monotonic()
    try:
        first_calls(bench, candidate.build(bench.subject), compiles=candidate.compiles)
    except Exception as error:  # the measured process will say so
        print(f"{candidate.name}: {error}", file=sys.stderr)
    print(f"{candidate.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
