"""One rank of a training job in which one rank may do more than the others; started by torchrun.

    torchrun --nproc-per-node 2 benchmarks/ranks/job.py --plant sleep --late 1 --ms 6

With `--times FILE` each rank writes what its steps took without a profiler, in ms, and what the plant took by itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLANTS = ("none", "sleep", "python", "kernel", "copy", "loader", "gc")


def burn(rounds: int) -> int:
    """Plain Python that calls no operator: so much of it, and not for so long, as a profiler makes it slower."""
    total = 0
    for _ in range(rounds):
        total += sum(range(20))
    return total


def rounds_for(ms: float) -> int:
    """Rounds of `burn` that take so long."""
    burn(20_000)
    begun = time.perf_counter()
    burn(20_000)
    return round(20_000 * ms / 1e3 / (time.perf_counter() - begun))


class Samples(Dataset[torch.Tensor]):
    """Samples made beforehand; a slow source takes `ms` for a batch."""

    def __init__(self, batch: int, width: int, ms: float) -> None:
        self.data, self.batch, self.ms = torch.randn(batch * 4, width), batch, ms

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.ms and index % self.batch == 0:
            time.sleep(self.ms / 1e3)
        return self.data[index % len(self.data)]


class Collection:
    """A full collection of garbage over as many objects as take about so long."""

    def __init__(self, ms: float) -> None:
        self.ms, self.kept = ms, list[list[int]]()

    def __call__(self) -> None:
        if not self.kept:
            gc.freeze()  # what the libraries hold is not looked at
            self.kept = [[index] for index in range(20_000)]
            begun = time.perf_counter()
            gc.collect()
            spent = (time.perf_counter() - begun) * 1e3
            self.kept += [[index] for index in range(round(20_000 * max(self.ms / spent - 1, 0.0)))]
        gc.collect()


class Noted:
    """A plant, and how long it kept the host each time, ms."""

    def __init__(self, plant: Callable[[], object]) -> None:
        self.plant, self.lengths = plant, list[float]()

    def __call__(self) -> None:
        begun = time.perf_counter()
        self.plant()
        self.lengths.append((time.perf_counter() - begun) * 1e3)


_WARM, _TIMED = 5, 15
"""Steps before the plant counts, and before a recording begins at the earliest."""


def plant_of(cause: str, ms: float, device: torch.device) -> Callable[[], object]:
    """What the late rank does more at the start of each step."""
    if cause == "sleep":
        return lambda: time.sleep(ms / 1e3)
    if cause == "python":
        rounds = rounds_for(ms)
        return lambda: burn(rounds)
    if cause == "gc":
        return Collection(ms)
    if cause == "kernel":
        size = 4096 if device.type == "cuda" else 256
        a = torch.randn(size, size, device=device)
        return repeated(lambda: torch.mm(a, a), ms, device)
    if cause == "copy":
        source = torch.randn((16 if device.type == "cuda" else 1) * 262_144)
        target = torch.empty_like(source, device=device)
        return repeated(lambda: target.copy_(source), ms, device)
    return lambda: None


def repeated(work: Callable[[], object], ms: float, device: torch.device) -> Callable[[], object]:
    """The work, as often as takes about so long."""
    times = max(1, round(ms / taken(work, device)))
    return lambda: [work() for _ in range(times)]


def taken(work: Callable[[], object], device: torch.device, runs: int = 9) -> float:
    """What work takes by itself, ms, the median of several runs."""

    def once() -> float:
        finish(device)
        begun = time.perf_counter()
        work()
        finish(device)
        return (time.perf_counter() - begun) * 1e3

    once()
    return median(once() for _ in range(runs))


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def data_parallel(args: argparse.Namespace, device: torch.device, plant: Callable[[], object]) -> Iterator[None]:
    """DDP or FSDP2 over a few Transformer layers."""
    late = dist.get_rank() == args.late
    width, batch, length, layers = (512, 16, 128, 6) if device.type == "cuda" else (64, 4, 32, 3)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    if args.kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for one in model.layers:
            fully_shard(one)
        fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    slow = args.ms if late and args.plant == "loader" else 0.0
    batches = iter(DataLoader(Samples(batch, length * width, slow), batch_size=batch))
    while True:
        inputs = next(batches).reshape(batch, length, width).to(device)
        if late:
            plant()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        optimizer.zero_grad()
        yield


def pipeline(args: argparse.Namespace, device: torch.device, plant: Callable[[], object]) -> Iterator[None]:
    """GPipe: every rank holds a stage of equal size."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    width, batch, micro = (2048, 4096, 4) if device.type == "cuda" else (256, 64, 4)
    torch.manual_seed(rank)
    layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.GELU())]
    stage_model = nn.Sequential(*layers).to(device)
    example = torch.randn(batch // micro, width, device=device, requires_grad=True)
    stage = PipelineStage(stage_model, rank, world, device, input_args=example, output_args=stage_model(example))
    schedule = ScheduleGPipe(stage, micro, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stage_model.parameters(), 1e-3)
    inputs, target = (torch.randn(batch, width, device=device) for _ in range(2))
    while True:
        if rank == args.late:
            plant()
        if rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            schedule.step(target=target)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        yield


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("ddp", "fsdp", "pipeline"), default="ddp")
    parser.add_argument("--plant", choices=PLANTS, default="none")
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--ms", type=float, default=0.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--times", type=Path)
    parser.add_argument("--plants", type=Path, help="for what the late rank does more, before it is recorded")
    args = parser.parse_args()
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    plant = Noted(plant_of(args.plant, args.ms, device))
    steps = (pipeline if args.kind == "pipeline" else data_parallel)(args, device, plant)
    lengths: list[float] = []
    for _ in range(args.steps):
        begun = time.perf_counter()
        next(steps)
        if args.times:
            finish(device)
        lengths.append((time.perf_counter() - begun) * 1e3)
    if args.plants and dist.get_rank() == args.late:
        # What keeps the host is known by then; what it launches is timed once more, by itself.
        alone = taken(plant, device) if args.plant == "kernel" else median(plant.lengths[_WARM:_TIMED])
        args.plants.write_text(json.dumps({"plant_ms": alone}))
    if args.times:
        alone = taken(plant, device) if dist.get_rank() == args.late else 0.0
        answer = {"step_ms": median(lengths[len(lengths) // 3 :]), "plant_ms": alone}
        args.times.with_name(f"{args.times.name}-{dist.get_rank()}.json").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
