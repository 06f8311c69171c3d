"""Whether a recording of each rule's slow piece of code has the finding, and one of its fast piece has not.

    python -m benchmarks.diagnosis.snippets [--device cuda] [CODE ...]

A few of them show without a GPU (`on_cpu` in snippets.toml): a test records those. The pieces are as small as a page has
room for: a finding that needs large work, several cards or a compiler with its graphs does not show on a card either.
Takes about a minute. Compiled pieces are compiled by `torch.compile` as it is on a card, by its eager backend on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, schedule

from lanewise.diagnose.explain import explain
from lanewise.diagnose.rules.snippets import Snippet, snippets
from lanewise.trace.reader import read

_STEPS = 6
_BEFORE = 3


@contextmanager
def one_process(device: str) -> Iterator[None]:
    """A process group of one and, on the CPU, a compiler that takes no time."""
    dist, compile_ = torch.distributed, torch.compile

    def eager(function: Any, *, mode: str = "", **options: Any) -> Any:
        return compile_(function, backend="eager", **options)

    if device == "cpu":
        torch.compile = eager
    if dist.is_available():
        backend = "gloo" if device == "cpu" else "nccl"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.compile = compile_
        if dist.is_available():
            dist.destroy_process_group()
        torch.compiler.reset()


@contextmanager
def as_before() -> Iterator[None]:
    """Switches of torch are afterwards as they were."""
    precision, searches = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = searches
        torch.set_default_device(None)


def is_a_step(code: str) -> bool:
    """Whether a rule has pieces that a loop can repeat: not those about a recording, and not what is set up once."""
    return code in snippets() and not code.startswith("MEA") and "DistributedDataParallel(" not in snippets()[code].fast


def found_in(snippet: Snippet, piece: str, device: str = "cpu") -> set[str]:
    """Codes of what is found in a recording of a piece as the step of a loop."""
    names: dict[str, Any] = {"torch": torch, "device": device}
    step = compile(piece, "step.py", "exec")
    with as_before(), tempfile.TemporaryDirectory() as folder:
        # What names no device is meant to be on it already.
        if device != "cpu" and "device" not in snippet.given + snippet.slow + snippet.fast:
            torch.set_default_device(device)
        exec(snippet.given, names)
        path = Path(folder) / "trace.json"
        plan = schedule(wait=1, warmup=_BEFORE - 1, active=_STEPS)
        with profile(
            schedule=plan, record_shapes=True, on_trace_ready=lambda made: made.export_chrome_trace(str(path))
        ) as recording:
            for _ in range(_BEFORE + _STEPS):
                exec(step, names)
                recording.step()
        return {finding.code for finding in explain(read(str(path), cache=False)).findings}


def main() -> int:
    """Command line: one line of JSON for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("codes", nargs="*", metavar="CODE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    total = {"rules": 0, "slow has it": 0, "fast has it": 0, "failed": 0}
    with one_process(asked.device):
        for code, snippet in snippets().items():
            if not is_a_step(code) or (asked.codes and code not in asked.codes):
                continue
            line: dict[str, Any] = {"code": code}
            for name, piece in (("slow", snippet.slow), ("fast", snippet.fast)):
                try:
                    codes = found_in(snippet, piece, asked.device)
                except Exception as error:
                    line[name] = f"{type(error).__name__}: {error}"[:200]
                    total["failed"] += 1
                    continue
                line[name] = sorted(codes)
                total[f"{name} has it"] += code in codes
            total["rules"] += 1
            print(json.dumps(line), flush=True)
    print(json.dumps({"device": asked.device, "torch": torch.__version__, **total}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
