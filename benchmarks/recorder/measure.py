"""The three measurements. Each returns plain data with its raw samples, and profiles in fresh processes only."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 15

MANY_OPERATORS = """
import sys, time
import torch
torch.set_num_threads(1)
operators, steps = int(sys.argv[1]), int(sys.argv[2])
x = torch.ones(8, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.0)
begin = time.perf_counter()
for _ in range(steps):
    y = x
    for _ in range(operators):
        y = torch.add(y, x)
    optimizer.zero_grad()
    x.grad = torch.ones_like(x)
    optimizer.step()
print(time.perf_counter() - begin)
"""


def step_finder() -> dict[str, Any]:
    """Microseconds per step that each source of boundaries adds while nothing is recorded, and after it was removed."""
    import torch

    sys.path.insert(0, str(ROOT))
    from tests.capture.fakes import Bench

    from lanewise.capture.boundaries.finder import StepFinder
    from lanewise.capture.boundaries.functions import FunctionSteps
    from lanewise.capture.schedule import Plan

    torch.set_num_threads(1)
    module, value = torch.nn.Identity().eval(), torch.ones(1)
    parameter = torch.ones(1, requires_grad=True)
    parameter.grad = torch.zeros(1)

    class Nothing(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            """Steps do nothing, so that only the hooks are timed."""

    optimizer = Nothing([parameter], {})

    def call_module() -> None:
        module(value)

    def call_optimizer() -> None:
        optimizer.step()

    # As in a script: looked up by name at every call.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def step(): pass\ndef call(): step()", namespace)
    cases: dict[str, tuple[Callable[[], None], list[Any]]] = {
        "forward": (call_module, []),
        "optimizer": (call_optimizer, []),
        "function": (namespace["call"], [lambda found: FunctionSteps(found, "step")]),
    }
    result: dict[str, Any] = {}
    for name, (call, extra) in cases.items():
        samples: dict[str, list[float]] = {"without": [], "with": [], "afterwards": []}
        for _ in range(ROUNDS):
            finder = StepFinder(Bench(Plan(skip=10**9)).window, lambda error: None)
            with torch.no_grad():
                samples["without"].append(_per_call_us(call))
                finder.install(extra)
                for _ in range(20):
                    call()
                samples["with"].append(_per_call_us(call))
                assert finder.source == name, finder.source
                finder.uninstall()
                finder.remove_late()
                samples["afterwards"].append(_per_call_us(call))
        low = {arm: min(values) for arm, values in samples.items()}
        result[name] = {
            "added_us": round(low["with"] - low["without"], 3),
            "share_of_a_1_ms_step": round((low["with"] - low["without"]) / 1000, 5),
            "left_afterwards_us": round(low["afterwards"] - low["without"], 3),
            "samples_us": samples,
        }
    return result


def _per_call_us(call: Callable[[], None], count: int = 2000) -> float:
    begin = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - begin) / 1000 / count


def large_steps(operators: int = 100_000, steps: int = 30) -> dict[str, Any]:
    """Delay of the program and size of the trace with many operators per step, default window."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "many.py"
        script.write_text(MANY_OPERATORS)
        words = [str(script), str(operators), str(steps)]
        plain = [float(_python(folder, *words).stdout) for _ in range(2)]
        done = _python(folder, "-m", "lanewise", "run", "--no-explain", *words)
        recorded = float(done.stdout)
        trace = next(Path(folder).glob("lanewise-out/*.json.gz"))
        facts = _facts(trace)
    return {
        "operators_per_step": operators,
        "program_steps": steps,
        "plain_s": plain,
        "recorded_s": recorded,
        "delay_s": round(recorded - min(plain), 2),
        "trace_bytes": facts["bytes"],
        "compressed_bytes": facts["compressed"],
        "active": facts["active"],
        "stopped_by": facts["stopped_by"],
        "costs_ms": facts["costs_ms"],
    }


def time_to_report(megabytes: int = 50) -> dict[str, Any]:
    """Seconds from the last recorded step to the printed report, split into its parts, for a trace of a given size."""
    code = r"""
import json, subprocess, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from lanewise.capture.recording import Options, Recording
from lanewise.capture.schedule import Plan
from lanewise.capture.profiling.profiler import Flags
megabytes, folder = int(sys.argv[1]), Path(sys.argv[2])
per_step = int(megabytes * 1e6 / 445 / 10)
plan = Plan(skip=1, timed_min=1, timed_max=1, active_min=10, active_max=10)
recording = Recording(Options(plan=plan, out=folder))
recording.start()
x = torch.ones(8)
last = 0
while recording.trace is None:
    for _ in range(per_step):
        torch.add(x, x)
    last = time.perf_counter()
    recording.step()
saved = time.perf_counter()
recording.finish()
words = [sys.executable, "-m", "lanewise.cli.recording.after_run", str(recording.trace), "text", str(folder)]
done = subprocess.run(words, capture_output=True, text=True, check=True)
assert "Can you trust it?" in done.stdout
explained = time.perf_counter()
costs = recording.facts.costs_ms
spent = {"save_s": saved - last, "explain_s": explained - saved, "costs_ms": costs}
print(json.dumps(spent | {"trace": str(recording.trace)}))
"""
    samples: list[dict[str, Any]] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            found = json.loads(_python(folder, "-c", code, str(megabytes), folder).stdout.splitlines()[-1])
            found |= {"trace_bytes": _facts(Path(found.pop("trace")))["bytes"]}
            samples.append(found)
    totals = [sample["save_s"] + sample["explain_s"] for sample in samples]
    ours = [
        sample["save_s"] + sample["explain_s"] - (sample["costs_ms"]["stop"] + sample["costs_ms"]["export"]) / 1000
        for sample in samples
    ]
    return {
        "total_s": round(statistics.median(totals), 2),
        "without_torchs_stop_and_export_s": round(statistics.median(ours), 2),
        "samples": samples,
    }


def _python(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )


def _facts(trace: Path) -> dict[str, Any]:
    """The recorder's facts, with the size of the trace before and after compression."""
    import gzip

    size = 0
    head = b""
    with gzip.open(trace) as source:
        while chunk := source.read(1 << 22):
            size += len(chunk)
            if len(head) < 4 << 20:
                head += chunk
    at = head.index(b'"lanewise": ') + len(b'"lanewise": ')
    facts, _ = json.JSONDecoder().raw_decode(head[at:].decode(errors="replace"))
    return {**facts, "bytes": size, "compressed": trace.stat().st_size}
