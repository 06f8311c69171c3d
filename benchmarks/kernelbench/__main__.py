"""KernelBench's problems through `optimize`, under the same gates as any program.

    python -m benchmarks.kernelbench FOLDER --level 1 2 --budget 60s -o kernelbench.json     a minute and more a problem

FOLDER holds the problems (`level1/1_....py`); they are not ours to ship. Each runs in a process of its own, with `--gpus 4`
four at a time, each on a GPU of its own. The model as the problem makes it is optimized; then eager, the modes of
torch.compile that end in time, and the plan are timed in turns, and the plan's results are held against eager's on inputs
that it has not seen, by the benchmark's own tolerance. Problems whose own check passes zeros, or the result of other
inputs, are named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fix.arms import in_turns
from benchmarks.fix.forked import run_each, warm_imports
from benchmarks.kernelbench.problems import Problem, fooled_by, found_in, loaded, passes
from benchmarks.kernelbench.table import markdown, totals
from benchmarks.machine import described

_ROUNDS, _UNSEEN = 15, (11, 12, 13, 14, 15)
_MODES = ("default", "reduce-overhead", "max-autotune")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", type=int, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[], help="numbers of problems")
    parser.add_argument("--sample", type=int, default=0, help="this many of them, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpus", type=int, default=1, help="problems at a time, each on a GPU of its own")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--modes", nargs="*", default=list(_MODES), help="of torch.compile, to hold plans against")
    parser.add_argument("--mode-seconds", type=float, default=180.0, help="in which a mode has to end")
    parser.add_argument("--seconds", type=float, default=1e9, help="no problem is begun after that")
    parser.add_argument("-o", "--output", type=Path, default=Path("kernelbench.json"))
    asked = parser.parse_args()
    try:
        problems = found_in(asked.folder, tuple(asked.level))
    except OSError as error:
        sys.exit(f"{error}")
    began = time.monotonic()
    warm_imports()
    result: dict[str, Any] = {"budget": asked.budget, "modes": asked.modes, "device": asked.device}
    rows: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="lanewise-kernelbench-"))  # which a fork does not take away when it ends
    wanted = _asked(problems, asked)
    outputs = [folder / f"{at}.json" for at in range(len(wanted))]
    jobs = [
        (partial(_one, problem, asked, output), output.with_suffix(".log"))
        for problem, output in zip(wanted, outputs, strict=True)
    ]
    limit = 600 + len(asked.modes) * asked.mode_seconds
    try:
        for at, said in run_each(jobs, asked.gpus, limit, began + asked.seconds):
            problem = wanted[at]
            rows[problem.name] = _answer(outputs[at], said)
            result["machine"] = rows[problem.name].pop("machine", result.get("machine"))
            whole = result | {"totals": totals(rows), "problems": rows}
            asked.output.write_text(json.dumps(whole, indent=1) + "\n")
            asked.output.with_suffix(".md").write_text(markdown(whole))
            print(
                f"{problem.name}: {json.dumps({k: v for k, v in rows[problem.name].items() if k != 'attempts'})}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(totals(rows)))


def _asked(problems: list[Problem], asked: argparse.Namespace) -> list[Problem]:
    """Those asked for; a sample is in random order, so that one that the time cuts short is a sample, too."""
    wanted = [one for one in problems if not asked.only or str(one.number) in asked.only]
    return random.Random(asked.seed).sample(wanted, min(asked.sample, len(wanted))) if asked.sample else wanted


def _answer(output: Path, said: str) -> dict[str, Any]:
    """What one has written, or why it has not, with the last places of its own that it was at."""
    if output.exists():
        return json.loads(output.read_text())
    log = output.with_suffix(".log")
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    places = [line.strip().split("/")[-1] for line in lines if line.lstrip().startswith("File ")]
    return {"failed": said[:300], "at": places[-8:]}


def _one(problem: Problem, asked: argparse.Namespace, output: Path, place: int) -> None:
    """Optimize one, check it, and time it, on the GPU of that place."""
    if asked.gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(asked.gpus)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[place]
    import torch

    from lanewise.fix.candidates.capturing import put_right
    from lanewise.fix.optimize import optimize

    model, inputs = loaded(problem, asked.device)
    fooled = fooled_by(model, inputs)
    given = inputs(0)
    with torch.no_grad():
        began = time.monotonic()
        plan = optimize(model, given, goal="throughput", budget=asked.budget, trace=False)
        seconds = time.monotonic() - began
        right = all(_right(model, plan, inputs(seed)) for seed in _UNSEEN)
        torch._dynamo.reset()
        arms: dict[str, Callable[..., Any]] = {"eager": model}
        late: list[str] = []
        for mode in asked.modes:
            compiled = torch.compile(model, mode=mode)
            try:
                with put_right(torch.device(asked.device)), _within(asked.mode_seconds):
                    compiled(*given)
                    compiled(*given)
                arms[mode] = compiled
            except Exception as error:
                late.append(f"{mode}: {type(error).__name__}")
        times = in_turns(model, plan, arms, given, _ROUNDS)
    us = {arm: median(values) for arm, values in times.items()}
    best = min((arm for arm in arms if arm != "eager"), key=us.__getitem__, default=None)
    answer = {
        "plan": list(plan.report.winner),
        "right": right,
        "fooled_by": fooled,
        "seconds": round(seconds, 1),
        "us": {arm: round(value, 2) for arm, value in us.items()},
        "not made": late,
        "best_mode": best,
        "against_eager": _ratio(times, "eager"),
        "against_best": None if best is None else _ratio(times, best),
        "attempts": {one.name: f"{one.outcome}: {one.reason}"[:160] for one in plan.report.attempts},
        "machine": described(),
    }
    output.write_text(json.dumps(answer))


def _right(model: Any, plan: Any, given: tuple[Any, ...]) -> bool:
    """Whether the plan's results are eager's, on inputs that neither has seen; what the model draws, both draw alike."""
    import torch

    state = {name: one.clone() for name, one in model.state_dict().items()}

    def results() -> Any:
        torch.manual_seed(1)
        model.load_state_dict(state)
        return model(*[one.clone() if isinstance(one, torch.Tensor) else one for one in given])

    truth = results()
    plan.apply()
    try:
        return passes(results(), truth)
    finally:
        plan.undo()
        model.load_state_dict(state)


def _ratio(times: dict[str, list[float]], arm: str) -> float:
    return round(median(a / b for a, b in zip(times[arm], times["plan"], strict=True)), 4)


@contextmanager
def _within(seconds: float) -> Generator[None]:
    """TimeoutError inside, after so many seconds."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
