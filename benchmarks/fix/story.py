"""The story of the fused MLP, in one command and with this machine's numbers:

    python -m benchmarks.fix.story [--hidden 256 --inner 1024 --batch 32] [--budget 2m] [-o story.md]

Record a linear layer, then an MLP, then the MLP compiled; say what compiling changed; then let `optimize` try everything,
fused kernels included, and prove what is faster. Recordings are made in processes of their own. A part that this machine
cannot do is left out with a sentence: no fused kernels without a card, nothing compiled without a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from lanewise.compare.diff import diff
from lanewise.diagnose.explain import explain
from lanewise.fix.model import PlanReport
from lanewise.fix.source.prove import last_words
from lanewise.show.plan_text import plan_markdown
from lanewise.trace.reader import read

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("-o", "--output", type=Path, default=None)
    asked = parser.parse_args()
    sizes = ["--hidden", str(asked.hidden), "--inner", str(asked.inner), "--batch", str(asked.batch)]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
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
        lines += [f"> {_change(home / 'mlp.json.gz', home / 'compiled.json.gz')}", ""]
        print("5. Fuse, and prove ...", file=sys.stderr, flush=True)
        plan = _optimize(asked)
        lines += ["## 5. Everything tried, and proven", "", *_left_out(plan), plan_markdown(plan)]
    text = "\n".join(lines)
    if asked.output is not None:
        asked.output.write_text(text)
    print(text)


def _record(target: Path, name: str, words: list[str], home: Path) -> str:
    """The verdict on a recording, which is kept as `target`; or why there is none."""
    out = home / name
    command = [sys.executable, "-m", "lanewise", "run", "--no-explain", "-o", str(out), *words]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    traces = sorted(out.glob("*.json.gz"))
    if done.returncode or not traces:
        return f"This could not be recorded here: {last_words(done.stderr)}"
    traces[0].rename(target)
    return explain(read(str(target), cache=False)).verdict


def _change(before: Path, after: Path) -> str:
    if not (before.exists() and after.exists()):
        return "There is nothing to compare: one of the two was not recorded."
    return diff(before, after).differences[0].verdict


def _left_out(plan: PlanReport) -> list[str]:
    if plan.machine.get("device") != "cpu":
        return []
    return [
        "> There is no CUDA device here: fused kernels, CUDA graphs and the compile modes that use them were not tried. "
        "What follows is what the host can do.",
        "",
    ]


def _optimize(asked: argparse.Namespace) -> PlanReport:
    """In a process of its own: this one is not to be timed in, and a script's models are made fresh."""
    code = (
        "import json, sys, torch, msgspec\n"
        f"sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        "import mlp, lanewise\n"
        "torch.manual_seed(0)\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "dtype = torch.bfloat16 if device == 'cuda' else torch.float32\n"
        f"model = mlp.build('gelu', {asked.hidden}, {asked.inner}).to(device, dtype).eval().requires_grad_(False)\n"
        f"x = torch.randn({asked.batch}, {asked.hidden}, device=device, dtype=dtype)\n"
        f"plan = lanewise.optimize(model, x, budget={asked.budget!r})\n"
        "print(json.dumps(msgspec.to_builtins(plan.report)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), PlanReport)


if __name__ == "__main__":
    main()
