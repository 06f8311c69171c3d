"""The story of the fused MLP, in one command and with this machine's numbers:

    python -m benchmarks.fix.story [--hidden 64 --inner 256 --batch 65536] [--budget 2m] [-o story.md] [--json story.json]

Record a linear layer, then an MLP, then the MLP compiled; say what compiling changed; then let `optimize` try everything,
fused kernels included, and prove what is faster. Sizes are by default those of a narrow MLP over many rows, where the whole
of it fits into one kernel (docs/kernels.md); on the host there are fewer rows.

Every part runs in a process of its own. A part that this machine cannot do is left out with a sentence: no fused kernels
without a card, nothing compiled without a C++ compiler.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from benchmarks.fix.bad_programs import lanewise_command
from benchmarks.fix.forked import run_one, warm_imports

from lanewise.compare.diff import diff
from lanewise.diagnose.explain import explain
from lanewise.edit.prove import last_words
from lanewise.fix.model import PlanReport
from lanewise.fix.time_budget import seconds_of
from lanewise.show.plan.plan_text import plan_json, plan_markdown
from lanewise.trace.reader import read

ROOT = Path(__file__).parents[2]
_ROWS, _ROWS_HOST = 65536, 2048


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--batch", type=int, default=None, help=f"rows; else {_ROWS:,}, on the host {_ROWS_HOST:,}")
    parser.add_argument("--budget", default="2m")
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args()
    warm_imports()
    if asked.batch is None:
        # Asked through NVML: no driver is initialized, which the forks could not use then.
        asked.batch = _ROWS if sys.modules["torch"].cuda.is_available() else _ROWS_HOST
    sizes = ["--hidden", str(asked.hidden), "--inner", str(asked.inner), "--batch", str(asked.batch)]
    # No TemporaryDirectory: a fork that ends would clear it away.
    home = Path(tempfile.mkdtemp(prefix="lanewise-story-"))
    try:
        lines, plan = _told(asked, sizes, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if asked.json is not None:
        asked.json.write_text(plan_json(plan) + "\n")
    text = "\n".join(lines)
    if asked.output is not None:
        asked.output.write_text(text)
    print(text)


def _told(asked: argparse.Namespace, sizes: list[str], home: Path) -> tuple[list[str], PlanReport]:
    lines = [f"# The fused MLP: hidden {asked.hidden}, inner {asked.inner}, {asked.batch} rows", ""]
    for title, name, words in (
        ("1. A linear layer", "linear", ["examples/linear.py"]),
        ("2. The MLP, eager", "mlp", ["examples/mlp.py", *sizes]),
        ("3. The MLP, compiled", "compiled", ["examples/mlp.py", *sizes, "--compile"]),
    ):
        print(f"{title} ...", file=sys.stderr, flush=True)
        said = _record(home / f"{name}.json.gz", name, words, home)
        lines += [f"## {title}", "", f"`lanewise run {' '.join(words)}`", "", f"> {said}", ""]
    lines += ["## 4. What compiling changed", "", "`lanewise diff mlp.json.gz compiled.json.gz`", ""]
    lines += [f"> {_change(home / 'mlp.json.gz', home / 'compiled.json.gz', home)}", ""]
    print("5. Fuse, and prove ...", file=sys.stderr, flush=True)
    plan = _optimize(asked, home)
    lines += ["## 5. Everything tried, and proven", "", *_left_out(plan), plan_markdown(plan)]
    return lines, plan


def _record(target: Path, name: str, words: list[str], home: Path) -> str:
    """The verdict on a recording, which is kept as `target`; or why there is none."""
    out, log = home / name, home / f"{name}.log"
    problem = run_one(lambda: lanewise_command(["run", "--no-explain", "-o", str(out), *words]), log, 300)
    traces = sorted(out.glob("*.json.gz"))
    if problem or not traces:
        return f"This could not be recorded here: {last_words(log.read_text())}"
    traces[0].rename(target)
    return _said(lambda: explain(read(str(target), cache=False)).verdict, home)


def _change(before: Path, after: Path, home: Path) -> str:
    if not (before.exists() and after.exists()):
        return "There is nothing to compare: one of the two was not recorded."
    return _said(lambda: diff(before, after).differences[0].verdict, home)


def _said(what: Callable[[], str], home: Path) -> str:
    """What a function returns, called in a fork: tables computed here would leave threads that no later fork has."""
    output, log = home / "said.txt", home / "said.log"
    problem = run_one(lambda: output.write_text(what()), log, 300)
    return f"This could not be said: {last_words(log.read_text())}" if problem else output.read_text()


def _left_out(plan: PlanReport) -> list[str]:
    if plan.machine.get("device") != "cpu":
        return []
    return [
        "> There is no CUDA device here: fused kernels, CUDA graphs and the compile modes that use them were not tried. "
        "What follows is what the host can do.",
        "",
    ]


def _optimize(asked: argparse.Namespace, home: Path) -> PlanReport:
    output, log = home / "plan.json", home / "plan.log"

    def work() -> None:
        import torch

        from lanewise.fix.optimize import optimize

        sys.path.insert(0, str(ROOT / "examples"))
        build = importlib.import_module("mlp").build
        torch.manual_seed(0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        model = build("gelu", asked.hidden, asked.inner).to(device, dtype).eval().requires_grad_(False)
        x = torch.randn(asked.batch, asked.hidden, device=device, dtype=dtype)
        plan = optimize(model, x, goal="throughput", budget=asked.budget, progress=lambda line: print(line, flush=True))
        output.write_text(plan_json(plan.report))

    problem = run_one(work, log, 2 * seconds_of(asked.budget) + 120)
    print(log.read_text(), file=sys.stderr, flush=True)
    if problem:
        sys.exit(f"optimizing failed: {problem}")
    return msgspec.json.decode(output.read_bytes(), type=PlanReport)


if __name__ == "__main__":
    main()
