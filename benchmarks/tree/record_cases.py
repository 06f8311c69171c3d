"""Records small programs whose contexts are hard to tell, as traces for the tests of the tree.

    python benchmarks/tree/record_cases.py OUT_DIR [case ...]

Each case is one small program under torch.profiler with stacks and shapes, two recorded steps. `modules.json` holds
what `named_modules()` says of each model. Needs torch; a GPU where there is one.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODULES: dict[str, list[list[str]]] = {}


class Block(nn.Module):
    """Linear layers with a name each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One residual block."""
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    """Three blocks, the middle one repeated under checkpointing if asked for."""

    def __init__(self, width: int = 256, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first = Block(width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All blocks and the head."""
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant) if self.reentrant is not None else block(x)
        return self.head(x)


def record(name: str, step: Callable[[], None], model: nn.Module, out: Path) -> None:
    """Two recorded steps of a function."""
    MODULES[name] = [[path, type(module).__name__] for path, module in model.named_modules()]
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        with_stack=True,
        record_shapes=False,
        profile_memory=True,
    ) as profiler:
        for _ in range(3):
            step()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(out / f"{name}.json.gz"))


def training(model: nn.Module) -> Callable[[], None]:
    """A plain training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 256, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()

    return step


def plain(out: Path) -> None:
    """A training step."""
    model = Net().to(DEVICE)
    record("plain", training(model), model, out)


def checkpointed(out: Path) -> None:
    """Recomputation without re-entering the engine."""
    model = Net(reentrant=False).to(DEVICE)
    record("checkpoint", training(model), model, out)


def reentrant(out: Path) -> None:
    """Recomputation that re-enters the engine."""
    model = Net(reentrant=True).to(DEVICE)
    record("checkpoint_reentrant", training(model), model, out)


def retained(out: Path) -> None:
    """Two backward passes through one graph."""
    model = Net().to(DEVICE)
    data = torch.randn(64, 256, device=DEVICE)

    def step() -> None:
        model.zero_grad()
        result = model(data)
        result.square().mean().backward(retain_graph=True)
        result.abs().mean().backward()

    record("retain_graph", step, model, out)


def penalty(out: Path) -> None:
    """A gradient penalty: the backward pass is differentiated again."""
    model = Net().to(DEVICE)
    data = torch.randn(64, 256, device=DEVICE, requires_grad=True)

    def step() -> None:
        model.zero_grad()
        (gradient,) = torch.autograd.grad(model(data).square().mean(), data, create_graph=True)
        gradient.square().sum().backward()

    record("double_backward", step, model, out)


def threads(out: Path) -> None:
    """Two forward passes on threads of their own, then one backward pass each."""
    models = nn.ModuleList([Net(), Net()]).to(DEVICE)
    data = torch.randn(64, 256, device=DEVICE)

    def step() -> None:
        losses: list[torch.Tensor] = []
        lock = threading.Lock()

        def run(model: nn.Module) -> None:
            loss = model(data).square().mean()
            with lock:
                losses.append(loss)

        workers = [threading.Thread(target=run, args=(model,)) for model in models]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for loss in losses:
            loss.backward()

    record("two_threads", step, models, out)


def accumulated(out: Path) -> None:
    """Two micro-batches for one optimizer step: gradients are added up."""
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(64, 256, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        for part in data.chunk(2):
            model(part).square().mean().backward()
        optimizer.step()

    record("accumulate", step, model, out)


def compiled(out: Path) -> None:
    """A compiled training step."""
    model = Net().to(DEVICE)
    record("compile", training(torch.compile(model)), model, out)  # type: ignore[arg-type]


def loaded(out: Path) -> None:
    """Batches from a data loader, moved to the device in the loop."""
    model = Net().to(DEVICE)
    dataset = torch.utils.data.TensorDataset(torch.randn(640, 256))
    batches = iter(torch.utils.data.DataLoader(dataset, batch_size=64, num_workers=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        (data,) = next(batches)
        optimizer.zero_grad()
        model(data.to(DEVICE)).square().mean().backward()
        optimizer.step()

    record("data_loader", step, model, out)


CASES: dict[str, Callable[[Path], None]] = {
    "plain": plain, "checkpoint": checkpointed, "checkpoint_reentrant": reentrant, "retain_graph": retained,
    "double_backward": penalty, "two_threads": threads, "accumulate": accumulated, "data_loader": loaded,
    "compile": compiled,
}  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for case in options.cases:
        torch.manual_seed(0)
        CASES[case](options.out)
        print(case, flush=True)
    (options.out / "modules.json").write_text(json.dumps(MODULES, indent=1) + "\n")


if __name__ == "__main__":
    main()
