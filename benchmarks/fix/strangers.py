"""Ten models that nothing was tuned on: what `optimize` finds in a short budget, against what one line of torch gives.

    python -m benchmarks.fix.strangers --budget 40s --device cuda -o strangers.json     about a minute a model

Each model is optimized in a process of its own, with empty compiler caches. Then, in the same process, everything that a
user could write in one line is made, however long that takes (compiled ahead, all models together, into other caches), and
timed in turns with the plan: eager, `torch.compile`, its mode `reduce-overhead`, and a CUDA graph that neither guards
nor copies its result.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fix.arms import bare_graph, in_turns
from benchmarks.fix.forked import run_all, run_one, warm_imports
from benchmarks.machine import described

Make = Callable[[str], tuple[Any, tuple[Any, ...]]]

_ROUNDS = 30


def _timm(name: str, batch: int, size: int = 224) -> Make:
    def make(device: str) -> tuple[Any, tuple[Any, ...]]:
        import torch

        model = importlib.import_module("timm").create_model(name, pretrained=False)
        return model.to(device).eval().requires_grad_(False), (torch.randn(batch, 3, size, size, device=device),)

    return make


def _torchvision(name: str, batch: int, size: int = 224) -> Make:
    def make(device: str) -> tuple[Any, tuple[Any, ...]]:
        import torch

        model = getattr(importlib.import_module("torchvision.models"), name)(weights=None)
        return model.to(device).eval().requires_grad_(False), (torch.randn(batch, 3, size, size, device=device),)

    return make


def _tokens(kind: str, config: str, batch: int, length: int, **sizes: Any) -> Make:
    def make(device: str) -> tuple[Any, tuple[Any, ...]]:
        import torch

        library = importlib.import_module("transformers")
        model = getattr(library, kind)(getattr(library, config)(**sizes))
        model = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)
        return model.eval().requires_grad_(False), (torch.randint(0, 1000, (batch, length), device=device),)

    return make


def _unet(device: str) -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    class UNet(nn.Module):
        def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
            super().__init__()
            before = (3, *widths[:-1])
            self.down = nn.ModuleList(_double(a, b) for a, b in zip(before, widths, strict=True))
            self.up = nn.ModuleList(
                nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
            )
            self.join = nn.ModuleList(_double(2 * a, a) for a in widths[-2::-1])
            self.last = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            kept: list[Any] = []
            for at, part in enumerate(self.down):
                x = part(x if at == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
                x = join(torch.cat([up(x), skip], dim=1))
            return self.last(x)

    def _double(a: int, b: int) -> Any:
        one, two = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
        return nn.Sequential(one, nn.BatchNorm2d(b), nn.ReLU(), two, nn.BatchNorm2d(b), nn.ReLU())

    return UNet().to(device).eval().requires_grad_(False), (torch.randn(4, 3, 128, 128, device=device),)


def _recommender(device: str) -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(10_000, 64) for _ in range(26))
            self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(64 + 27 * 13, 512), nn.ReLU(), nn.Linear(512, 1))
            rows, columns = torch.tril_indices(27, 27, -1)
            self.register_buffer("pairs", rows * 27 + columns)

        def forward(self, dense: Any, sparse: Any) -> Any:
            bottom = self.dense(dense)
            found = [table(sparse[:, at]) for at, table in enumerate(self.tables)]
            features = torch.stack([bottom, *found], dim=1)
            crossed = torch.bmm(features, features.transpose(1, 2)).flatten(1)[:, self.pairs]
            return torch.sigmoid(self.top(torch.cat([bottom, crossed], dim=1)))

    inputs = torch.randn(2048, 13, device=device), torch.randint(0, 10_000, (2048, 26), device=device)
    return Recommender().to(device).eval().requires_grad_(False), inputs


MODELS: dict[str, tuple[str, Make]] = {
    "convnext_tiny": ("timm", _timm("convnext_tiny", 8)),
    "distilbert": ("transformers", _tokens("DistilBertModel", "DistilBertConfig", 8, 128)),
    "swin_t": ("torchvision", _torchvision("swin_t", 8)),
    "unet": ("", _unet),
    "efficientnet_b0": ("timm", _timm("efficientnet_b0", 16)),
    "t5_encoder": ("transformers", _tokens("T5EncoderModel", "T5Config", 8, 128)),
    "recommender": ("", _recommender),
    "regnet_y_400mf": ("torchvision", _torchvision("regnet_y_400mf", 16)),
    "mixer_s16": ("timm", _timm("mixer_s16_224", 16)),
    "electra": ("transformers", _tokens("ElectraModel", "ElectraConfig", 8, 128)),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    parser.add_argument(
        "--warm", type=float, default=120.0, help="seconds for compiling ahead what plans are held against"
    )
    parser.add_argument(
        "--theirs", type=Path, help="folder of what was compiled ahead: made if it is not there, used again if it is"
    )
    parser.add_argument("--seconds", type=float, default=36000.0, help="no model is begun after that")
    parser.add_argument("-o", "--output", type=Path, default=Path("strangers.json"))
    asked = parser.parse_args()
    began = time.monotonic()
    warm_imports(("transformers", "torchvision", "timm"))
    folder = Path(tempfile.mkdtemp(prefix="lanewise-strangers-"))
    theirs = asked.theirs or folder / "theirs"
    names = [name for name in asked.only if not MODELS[name][0] or importlib.util.find_spec(MODELS[name][0])]
    jobs = [
        (
            lambda name=name, mode=mode: _ahead(name, mode, asked.device, theirs),
            folder / f"{name}-{mode}.log",
        )
        for mode in ("reduce-overhead", "default")
        for name in names
    ]
    if not theirs.exists():
        run_all(jobs, max(2, (os.cpu_count() or 2) - 2), asked.warm)
    result: dict[str, Any] = {
        "budget": asked.budget,
        "command": f"python -m benchmarks.fix.strangers --budget {asked.budget}",
    }
    result["compiled_ahead_s"] = round(time.monotonic() - began, 1)
    models: dict[str, Any] = {}
    for name in names:
        if time.monotonic() - began > asked.seconds:
            break
        output, log = folder / f"{name}.json", folder / f"{name}.log"
        problem = run_one(lambda name=name, output=output: _one(name, asked, output, folder, theirs), log, 600)
        models[name] = {"failed": problem} if problem else json.loads(output.read_text())
        print(log.read_text()[-6000:] if problem or os.environ.get("SAID") else "", file=sys.stderr)
        print(f"{name}: {told(models[name])}", flush=True)
        result["machine"] = models[name].pop("machine", result.get("machine"))
        asked.output.write_text(json.dumps(result | {"totals": totals(models), "models": models}, indent=1) + "\n")
    print(json.dumps(totals(models)))


def _ahead(name: str, mode: str, device: str, caches: Path) -> None:
    """One line of torch, for its compiler's caches."""
    _use(caches)
    import torch

    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch._inductor.config.compile_threads = 1
    torch.manual_seed(0)
    model, inputs = MODELS[name][1](device)
    with torch.no_grad():
        compiled = torch.compile(model, mode=mode)
        compiled(*inputs)
        compiled(*inputs)


def _use(caches: Path) -> None:
    caches.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(caches / "triton")


def _one(name: str, asked: argparse.Namespace, output: Path, folder: Path, theirs: Path) -> None:
    """Optimize a model, then time the plan against what is made in one line."""
    _use(folder / "ours" / name)
    import torch

    from lanewise.fix.optimize import optimize

    torch.manual_seed(0)
    model, inputs = MODELS[name][1](asked.device)
    began = time.monotonic()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with torch.no_grad():
        plan = optimize(model, inputs, goal="throughput", budget=asked.budget, trace=False, progress=say)
        spent = time.monotonic() - began
        torch._dynamo.reset()
        arms: dict[str, Callable[..., Any]] = {"eager": model}
        _use(theirs)
        for arm, mode in (("compile", "default"), ("reduce-overhead", "reduce-overhead")):
            began = time.monotonic()
            compiled = torch.compile(model, mode=mode)
            compiled(*inputs)
            compiled(*inputs)
            arms[arm] = compiled
            say(f"{arm}: made in {time.monotonic() - began:.1f} s")
        if asked.device == "cuda" and (graph := bare_graph(model, inputs)) is not None:
            arms["graph"] = graph
        times = in_turns(model, plan, arms, inputs, _ROUNDS)
    others = {arm: median(one) for arm, one in times.items() if arm != "plan"}
    best = min(others, key=others.__getitem__)
    pairs = sorted(b / p for b, p in zip(times[best], times["plan"], strict=True))
    cut = max(0, int(len(pairs) / 2 - 0.98 * math.sqrt(len(pairs))))
    attempts = {one.name: f"{one.outcome}: {one.reason}"[:160] for one in plan.report.attempts}
    output.write_text(
        json.dumps(
            {
                "plan": list(plan.report.winner),
                "seconds": round(spent, 1),
                "plan_us": round(median(times["plan"]), 2),
                "others_us": {arm: round(us, 2) for arm, us in others.items()},
                "best_other": best,
                "against_best": round(median(pairs), 4),
                "interval": [round(pairs[cut], 4), round(pairs[-1 - cut], 4)],
                "against_eager": round(others["eager"] / median(times["plan"]), 3),
                "rounds": _ROUNDS,
                "attempts": attempts,
                "machine": described(),
            }
        )
    )


def totals(models: dict[str, Any]) -> dict[str, Any]:
    """Over the models that ended."""
    ratios = [one["against_best"] for one in models.values() if "against_best" in one]
    if not ratios:
        return {"models": 0}
    return {
        "models": len(ratios),
        "failed": len(models) - len(ratios),
        "geometric mean against the best other": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
        "least": min(ratios),
        "below 0.98": [name for name, one in models.items() if one.get("against_best", 1.0) < 0.98],
    }


def told(one: dict[str, Any]) -> str:
    if "failed" in one:
        return f"failed: {one['failed']}"
    return (
        f"{' + '.join(one['plan']) or 'nothing'} {one['plan_us']} us, {one['best_other']} "
        f"{one['others_us'][one['best_other']]} us: {one['against_best']} of it, {one['seconds']} s"
    )


if __name__ == "__main__":
    main()
