"""One rank of a training job in which one rank may do more than the others; started by torchrun.

    torchrun --nproc-per-node 2 benchmarks/ranks/job.py --plant sleep --late 1 --ms 6

With `--truth FILE` the plant is switched off and on in turns, before a recording is to begin and once more after it, and
each rank writes what the job's steps took with it and without it, and how long it kept the host in each step between. All
in the same processes: from one start of a job to the next a host may be half as fast again.
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
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.utils.data import DataLoader, Dataset

PLANTS = ("none", "sleep", "python", "spin", "kernel", "copy", "loader", "gc", "calls")


def burn(rounds: int) -> int:
    """Plain Python that calls no operator: so much of it, and not for so long, as a profiler makes it slower."""
    total = 0
    for _ in range(rounds):
        total += sum(range(20))
    return total


def spin(ms: float) -> None:
    """Plain Python that calls no operator, for so long by the clock: how fast the host is makes no difference."""
    until = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until:
        burn(10)


def rounds_for(ms: float) -> int:
    """Rounds of `burn` that take so long."""
    burn(20_000)
    begun = time.thread_time()  # others may use the machine, too
    burn(20_000)
    return round(20_000 * ms / 1e3 / (time.thread_time() - begun))


class Samples(Dataset[torch.Tensor]):
    """Samples made beforehand; a slow source does something more for each batch."""

    def __init__(self, batch: int, width: int, more: Callable[[], object] | None) -> None:
        self.data, self.batch, self.more = torch.randn(batch * 4, width), batch, more

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.more is not None and index % self.batch == 0:
            self.more()
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
    """A plant, which can be switched off, how long it kept the host each time, and how long each step then waited, ms."""

    def __init__(self, plant: Callable[[], object]) -> None:
        self.plant, self.lengths, self.waits, self.on = plant, list[float](), list[float](), True

    def __call__(self) -> None:
        if not self.on:
            return
        begun = time.perf_counter()
        self.plant()
        self.lengths.append((time.perf_counter() - begun) * 1e3)

    def taken(self) -> list[float]:
        """The lengths since this was called last."""
        lengths, self.lengths = self.lengths, []
        return lengths

    def wait_for(self, loss: torch.Tensor) -> None:
        """Until the loss is there: what is left of the step is what this rank's host does by itself."""
        begun = time.perf_counter()
        loss.item()
        self.waits.append((time.perf_counter() - begun) * 1e3)


WARM, TURNS = 10, 96
"""Steps until all is warm, and steps with the plant and without it in turns, before the recording and after it."""
_WAITING, AHEAD = 2, 8
"""Steps at a time with the plant or without it: as few as can be, as hosts are slower or faster for a second at a time;
more where the host does not wait at the end of each, and each turn begins with an idle device."""
BEFORE = WARM + TURNS
"""Steps before a recording may begin."""


def plant_of(cause: str, ms: float, device: torch.device) -> Callable[[], object]:
    """What the late rank does more at the start of each step."""
    if cause in ("sleep", "loader"):
        return lambda: time.sleep(ms / 1e3)
    if cause == "python":
        rounds = rounds_for(ms)
        return lambda: burn(rounds)
    if cause == "spin":
        return lambda: spin(ms)
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
    if cause == "calls":
        total = torch.zeros(8)
        return repeated(lambda: total.add_(1.0), ms, torch.device("cpu"))
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


def data_parallel(args: argparse.Namespace, device: torch.device, plant: Noted) -> Iterator[None]:
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
    loads = args.plant == "loader"
    batches = iter(DataLoader(Samples(batch, length * width, plant if late and loads else None), batch_size=batch))
    while True:
        inputs = next(batches).reshape(batch, length, width).to(device)
        if late and not loads:
            plant()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        plant.wait_for(loss)
        optimizer.zero_grad()
        yield


def pipeline(args: argparse.Namespace, device: torch.device, plant: Noted) -> Iterator[None]:
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


def train(model: nn.Module, inputs: torch.Tensor, late: int, plant: Noted) -> Iterator[None]:
    """Steps on the same inputs; the late rank does something more at the begin of each."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    while True:
        if dist.get_rank() == late:
            plant()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        plant.wait_for(loss)
        optimizer.zero_grad()
        yield


def tensor_parallel(args: argparse.Namespace, device: torch.device, plant: Noted) -> Iterator[None]:
    """Linear layers divided over two ranks or all; in a mixed job their parts are sharded over the pairs (FSDP2), too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    world = dist.get_world_size()
    across = 2 if args.kind == "mixed" else world
    mesh = init_device_mesh(device.type, (world // across, across), mesh_dim_names=("data", "tensor"))
    width, batch, layers = (2048, 2048, 6) if device.type == "cuda" else (128, 64, 4)
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)]
    model = nn.Sequential(*parts).to(device)
    for part in parts:
        parallelize_module(part, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        if args.kind == "mixed":
            fully_shard(part, mesh=mesh["data"])
    return train(model, torch.randn(batch, width, device=device), args.late, plant)


class Experts(nn.Module):
    """Tokens go to the rank that holds their expert, and come back: as many to each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.parallel.DistributedDataParallel(nn.Linear(width, width))
        self.mine = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        gate, group = self.gate(tokens), dist.group.WORLD
        assert group is not None
        there = all_to_all_single_autograd(gate, None, None, group)
        return tokens + all_to_all_single_autograd(self.mine(there), None, None, group)


def expert_parallel(args: argparse.Namespace, device: torch.device, plant: Noted) -> Iterator[None]:
    """Layers of experts, one on each rank; what is not an expert is on all of them (DDP)."""
    width, batch, layers = (1024, 4096, 4) if device.type == "cuda" else (96, 96, 3)
    with device:
        torch.manual_seed(0)
        model = nn.Sequential(*(Experts(width) for _ in range(layers)))
    return train(model, torch.randn(batch, width, device=device), args.late, plant)


JOBS = {
    "ddp": data_parallel,
    "fsdp": data_parallel,
    "pipeline": pipeline,
    "tensor": tensor_parallel,
    "mixed": tensor_parallel,
    "expert": expert_parallel,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=tuple(JOBS), default="ddp")
    parser.add_argument("--plant", choices=PLANTS, default="none")
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--ms", type=float, default=0.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=36, help="between the turns, for a recorder")
    parser.add_argument(
        "--truth", type=Path, help="for what the plant takes and what the steps take with and without it"
    )
    parser.add_argument("--turns", type=int, default=TURNS, help="steps with the plant and without it")
    parser.add_argument("--gate", type=Path, help="a file without which nothing begins")
    args = parser.parse_args()
    while args.gate and not args.gate.exists():
        time.sleep(0.05)
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    plant = Noted(plant_of(args.plant, args.ms, device))
    steps = JOBS[args.kind](args, device, plant)
    before = turns(steps, plant, device, args.turns) if args.truth else {}
    alone = [one_step(steps, plant) for _ in range(args.steps)]
    if args.truth:
        between = plant.taken()
        after = turns(steps, plant, device, args.turns)
        truth: dict[str, Any] = {name: before[name] + after[name] for name in before}
        truth |= {"plant_ms": between, "after_ms": alone}
        if args.plant == "kernel" and dist.get_rank() == args.late:
            truth["plant_ms"] = truth["in_turns_ms"] = [taken(plant, device)]  # its calls end long before its work does
        name = f"{args.truth.stem}-{dist.get_rank()}.json"
        args.truth.with_name(name).write_text(json.dumps(truth))
    dist.barrier()
    dist.destroy_process_group()


def turns(steps: Iterator[None], plant: Noted, device: torch.device, count: int) -> dict[str, list[Any]]:
    """Steps with the plant and without it in turns, once all is warm: what a step takes in each turn, the host without its
    waits, and the plant each time, ms."""
    run(steps, WARM, plant, device)
    plant.taken()
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    block = _WAITING if plant.waits else AHEAD
    for pair in range(count // (2 * block)):
        # Each is as often the first of the two: what drifts is in both.
        for plant.on in (pair % 2 == 1, pair % 2 == 0):
            found[plant.on].append(run(steps, block, plant, device))
    plant.on = True
    return {"in_turns_ms": plant.taken()} | {
        f"{what}{name}_ms": [each[at] for each in found[on]]
        for on, name in ((True, "with"), (False, "without"))
        for at, what in enumerate(("", "own_"))
    }


def run(steps: Iterator[None], count: int, plant: Noted, device: torch.device) -> tuple[float, float]:
    """So many steps, until their work is done; what one takes, and how much of it the host does not wait, ms."""
    finish(device)
    begun, waited = time.perf_counter(), len(plant.waits)
    for _ in range(count):
        next(steps)
    own = (time.perf_counter() - begun) * 1e3 - sum(plant.waits[waited:])
    finish(device)
    return (time.perf_counter() - begun) * 1e3 / count, own / count


def one_step(steps: Iterator[None], plant: Noted) -> tuple[float, float]:
    """One step as the host sees it, ms, and how much of it the host does not wait."""
    begun, waited = time.perf_counter(), len(plant.waits)
    next(steps)
    took = (time.perf_counter() - begun) * 1e3
    return took, took - sum(plant.waits[waited:])


if __name__ == "__main__":
    main()
