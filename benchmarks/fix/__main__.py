"""Measures what optimizing gives back and writes `benchmarks/results/fix-<device>-<date>.json` and a table beside it.

    python -m benchmarks.fix [--device cuda] [--budget 2m] [--only NAME ...] [--bad [NAME ...]] [--runs 4] [--warm 60]

Every workload is optimized in a process of its own. `--bad` measures the bad programs instead. `--warm` first compiles
for all workloads together, for so many seconds at most, into caches that the measured processes find. `--seconds` starts
nothing after that time. Earlier results of the same day are kept and only the measured parts replaced; `--table FILE` only
prints the table of a result.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.fix.forked import run_one, warm_imports
from benchmarks.fix.one import optimize_one
from benchmarks.fix.warm import use_caches, warm
from benchmarks.fix.workloads import WORKLOADS, missing
from benchmarks.machine import described

from lanewise.fix.time_budget import seconds_of

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Command line."""
    parser = _parser()
    asked = parser.parse_args()
    if asked.table is not None:
        print(table(json.loads(asked.table.read_text())))
        return
    began = time.monotonic()
    warm_imports(("transformers", "torchvision", "timm"))
    device = asked.device or _device()
    today = datetime.datetime.now(datetime.UTC)
    output = asked.output or RESULTS / f"fix-{device.split(':')[0]}-{today:%Y-%m-%d}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(prefix="lanewise-fix-"))
    result: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"schema": 1, "id": "fix"}
    result["command"] = "python -m benchmarks.fix"

    def keep() -> None:
        output.write_text(json.dumps(result, indent=1) + "\n")
        output.with_suffix(".md").write_text(table(result))

    if asked.bad is not None:
        from benchmarks.fix import bad_programs

        machine = _machine(logs)

        def keep_row(row: dict[str, Any]) -> None:
            rows = {one["program"]: one for one in result.get("bad", {}).get("programs", [])} | {row["program"]: row}
            programs = [rows[name] for name in sorted(rows)]
            fixed = sum(one["fixed"] for one in programs)
            result["bad"] = {"within": bad_programs.WITHIN, "fixed": fixed, "of": len(programs), "programs": programs}
            result["bad"]["machine"] = machine
            keep()

        bad_programs.measure(device, asked.runs, asked.bad, keep_row, asked.seconds)
        return
    known = {one.name: one for one in WORKLOADS}
    if unknown := [name for name in asked.only if name not in known]:
        parser.error(f"no workload called {', '.join(unknown)}; there are: {', '.join(known)}")
    wanted = [known[name] for name in asked.only] or WORKLOADS
    chosen = [one.name for one in wanted if not missing(one)]
    caches = (asked.caches or logs / "caches").absolute()
    if asked.warm or asked.caches:
        use_caches(caches)
    if asked.warm:
        began_warm = time.monotonic()
        result["warm"] = {"jobs": warm(chosen, device, caches, asked.warm)}
        result["warm"]["seconds"] = round(time.monotonic() - began_warm, 1)
        print(f"compiled ahead in {result['warm']['seconds']} s", file=sys.stderr, flush=True)
    for workload in wanted:
        if lacking := missing(workload):
            result.setdefault("workloads", {})[workload.name] = {"skipped": f"{lacking} is not installed"}
            continue
        if time.monotonic() - began > asked.seconds:
            print(f"no time is left for {workload.name}", file=sys.stderr, flush=True)
            break
        print(f"{workload.name} ...", file=sys.stderr, flush=True)
        result.setdefault("workloads", {})[workload.name] = _one(workload.name, device, asked.budget, logs)
        keep()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--bad", nargs="*", default=None)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--warm", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--caches", type=Path, default=None, help="where compilers keep their work; else a new folder")
    parser.add_argument("--seconds", type=float, default=36000.0)
    parser.add_argument("--table", type=Path, default=None)
    parser.add_argument("-o", "--output", type=Path, default=None)
    return parser


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _machine(logs: Path) -> dict[str, Any]:
    """Asked in a fork: describing the device initializes it."""
    output = logs / "machine.json"

    def describe() -> None:
        output.write_text(json.dumps(described(), default=str))

    problem = run_one(describe, logs / "machine.log", 120)
    return {"unknown": problem} if problem else json.loads(output.read_text())


def _one(name: str, device: str, budget: str, logs: Path) -> dict[str, Any]:
    """Optimize a workload in a fork of this process."""
    output, log = logs / f"{name}.json", logs / f"{name}.log"
    began = time.monotonic()
    longest = 2 * seconds_of(budget) + 120
    problem = run_one(lambda: optimize_one(name, device, budget, output), log, longest)
    if problem:
        print(log.read_text(), file=sys.stderr, flush=True)
        return {"failed": problem, "said": log.read_text().strip()[-500:]}
    print(log.read_text(), file=sys.stderr, flush=True)
    return {"wall_s": round(time.monotonic() - began, 1), "plan": json.loads(output.read_text())}


def table(result: dict[str, Any]) -> str:
    """The result as Markdown: one row per workload, then the geometric means, then the bad programs."""
    lines: list[str] = []
    plans = {name: one["plan"] for name, one in result.get("workloads", {}).items() if "plan" in one}
    if plans:
        machine = next(iter(plans.values()))["machine"]
        lines += [", ".join(f"{key} {value}" for key, value in machine.items()), ""]
        lines += [
            "| workload | plan | eager us | against eager | best other way | against it | against the best "
            "| not timed | s |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_row(name, plan) for name, plan in plans.items()]
        lines += ["", _means(plans), ""]
    skipped = [
        f"{name} ({(one.get('skipped') or one.get('failed')).splitlines()[0]})"
        for name, one in result.get("workloads", {}).items()
        if "plan" not in one
    ]
    if skipped:
        lines += [f"Not measured: {', '.join(skipped)}.", ""]
    if bad := result.get("bad"):
        lines += [
            f"Bad programs within 10 % of their good twins: {bad['fixed']} of {bad['of']}.",
            "",
        ]
        lines += [
            "| program | edits | bad us | fixed us | good us | good / fixed | within 10 % |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_bad_row(row) for row in bad["programs"]]
    lines += ["", *result["notes"]] if result.get("notes") else []
    return "\n".join(lines) + "\n"


OTHERS = ("compile", "compile-reduce-overhead", "compile-max-autotune", "cuda-graph")
"""Besides eager: the ways to run a program that everybody has. A plan is held against the best of them that was timed."""


def _row(name: str, plan: dict[str, Any]) -> str:
    eager = next((arm["median_us"] for arm in plan["final"] if arm["name"] == "eager"), None)
    timed = _timed_alone(plan)
    possible = {one["name"] for one in plan["attempts"]}
    cells = [
        name,
        " + ".join(plan["winner"]) or "nothing",
        f"{eager:.1f}" if eager else "–",
        _ratio(plan["against_eager"]),
        plan["best_alternative"],
        _ratio(plan["against_best"]),
        f"{_against_best(plan):.2f}",
        ", ".join(other for other in OTHERS if other in possible and other not in timed) or "–",
        f"{plan['seconds']:.0f} of {plan['budget_s']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(timing: dict[str, Any] | None) -> str:
    return "–" if timing is None else f"{timing['ratio']:.2f} ({timing['low']:.2f} to {timing['high']:.2f})"


def _timed_alone(plan: dict[str, Any]) -> set[str]:
    """The ways of `OTHERS` that were timed on the program as it was, in turns with the plan, or are the plan."""
    alone = plan["winner"] if len(plan["winner"]) == 1 else []
    return {*(arm["name"] for arm in plan["final"]), *alone} & set(OTHERS)


def _against_best(plan: dict[str, Any]) -> float:
    """Time of the best of eager and the ways of `OTHERS` over that of the plan; a plan that is one of them is no better
    than the best, and one that keeps nothing runs as eager."""
    medians = {arm["name"]: arm["median_us"] for arm in plan["final"] if arm["name"] in ("eager", *OTHERS)}
    if not plan["against_best"]:
        return min(medians.values(), default=1.0) / medians.get("eager", 1.0) if medians else 1.0
    ratio = float(plan["against_best"]["ratio"])
    return min(1.0, ratio) if len(plan["winner"]) == 1 and plan["winner"][0] in OTHERS else ratio


def _means(plans: dict[str, Any]) -> str:
    """Geometric means, a plan that keeps nothing running the program as it is; a plan that was held against nothing but
    eager counts only for the first."""
    eager = [plan["against_eager"]["ratio"] if plan["against_eager"] else 1.0 for plan in plans.values()]
    held = {name: plan for name, plan in plans.items() if _timed_alone(plan)}
    best = [_against_best(plan) for plan in held.values()]
    means = [math.exp(sum(map(math.log, ratios)) / max(1, len(ratios))) for ratios in (eager, best)]
    slower = sum(
        bool(plan["against_eager"]) and plan["against_eager"]["verdict"] == "slower" for plan in plans.values()
    )
    of_eager = f"Geometric mean over {len(plans)} workloads: {means[0]:.2f}x of eager ({slower} slower)"
    if not held:
        return f"{of_eager}."
    only = [name for name in plans if name not in held]
    without = f" over the others than {', '.join(only)}, of which none of these was timed" if only else ""
    return (
        f"{of_eager}, {means[1]:.2f}x of the best of eager, the compiler's modes and the CUDA graph, as far as they were "
        f"timed (least {min(best):.2f}){without}."
    )


def _bad_row(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['program']} | {', '.join(row['edits'])} | | | | | {row['error']} |"
    ratio, low, high = row["good_over_fixed"]
    cells = [
        row["program"],
        ", ".join(dict.fromkeys(row["edits"])) or "none",
        *(f"{row[f'{side}_us']:.1f}" for side in ("bad", "fixed", "good")),
    ]
    interval = f" ({low:.2f} to {high:.2f})" if low is not None else ""
    return f"| {' | '.join(cells)} | {ratio:.2f}{interval} | {'yes' if row['fixed'] else 'no'} |"


if __name__ == "__main__":
    main()
