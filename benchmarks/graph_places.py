"""How much of what CUDA graphs replay stands at its module and line in the trace of `lanewise run --graphs`: six programs.

    python -m benchmarks.graph_places [--programs NAME ...] [--out FILE]

Each program captures inside of a recording, as a user's does, and replays. In a second process nobody looks on while it
captures: what the look at the captures costs the steps is the ratio of the step times that either process took without a
profiler. One process of each kind, twice, in turn.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import Model
from benchmarks.fresh import call
from benchmarks.machine import described
from torch import nn

import lanewise
from lanewise.capture.recording import Options, Recording
from lanewise.trace.frames import is_library, parse_frame
from lanewise.trace.metadata import from_metadata
from lanewise.tree.build import build_tree
from lanewise.tree.forest import nearest_marked
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.views import placed

STEPS = 120
Step = Callable[[], Any]


def captured(step: Step) -> Step:
    """The step as one graph, after three that run on a stream of their own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def mlp() -> Step:
    """Inference of two layers."""
    net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda().eval()
    x = torch.randn(64, 512, device="cuda")
    with torch.inference_mode():
        return captured(lambda: net(x))


def _llama(layers: int = 8, length: int = 64) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    net = Model(layers, 256, 1000).cuda()
    cos, sin = torch.randn(length, 32, device="cuda"), torch.randn(length, 32, device="cuda")
    return net, (torch.randint(0, 1000, (4, length), device="cuda"), cos, sin)


def llama() -> Step:
    """Inference of a Llama-like network of eight layers."""
    net, inputs = _llama()
    with torch.inference_mode():
        return captured(lambda: net(*inputs))


def conv() -> Step:
    """Inference of a small convolutional network with residuals."""

    class Residual(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
            self.norm = nn.BatchNorm2d(channels)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + self.norm(self.second(torch.relu(self.first(x)))))

    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2), *(Residual(64) for _ in range(6)), nn.AdaptiveAvgPool2d(1)
    ).cuda()
    x = torch.randn(8, 3, 128, 128, device="cuda")
    with torch.inference_mode():
        return captured(lambda: net.eval()(x))


def training() -> Step:
    """A whole training step: forward, backward, optimizer."""
    net, inputs = _llama(4)
    optimizer = torch.optim.AdamW(net.parameters(), capturable=True)

    def step() -> None:
        optimizer.zero_grad()
        scores = net(*inputs)
        nn.functional.cross_entropy(scores.view(-1, 1000), inputs[0].view(-1)).backward()
        optimizer.step()

    return captured(step)


def piecewise() -> Step:
    """Each block a graph of its own, forward and backward (`make_graphed_callables`)."""
    width = 256
    blocks = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda() for _ in range(6)
    ]
    x = torch.randn(64, width, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(tuple(blocks), tuple((x.detach().requires_grad_(),) for _ in blocks))
    return lambda: nn.Sequential(*graphed)(x).square().mean().backward()


def compiled() -> Step:
    """Inference under `torch.compile(mode="reduce-overhead")`."""
    net, inputs = _llama(4)
    fast = torch.compile(net, mode="reduce-overhead")

    def step() -> Any:
        with torch.inference_mode():
            return fast(*inputs)

    for _ in range(4):
        step()
    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    one.__name__: one for one in (mlp, llama, conv, training, piecewise, compiled)
}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=2, help="processes of each kind")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/graph-places.json"))
    given = parser.parse_args()
    result: dict[str, Any] = {"programs": {}}
    for name in given.programs:
        rounds = [
            {looks: call(partial(measured, name, looks), seconds=240) for looks in (True, False)}
            for _ in range(given.rounds)
        ]
        with_, without = ([one[looks].get("step_us") for one in rounds] for looks in (True, False))
        answer = rounds[0][True] | {"step_us_looked_on": with_, "step_us_not": without}
        if all(with_) and all(without):
            answer["ratio"] = round(float(np.median(with_) / np.median(without)), 4)
        print(name, json.dumps(answer), flush=True)
        result["programs"][name] = answer
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def measured(name: str, looks: bool) -> dict[str, Any]:
    """One program, recorded in a process of its own."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Options(out=Path(folder), graphs=looks), said.append)
        recording.start()
        recording.step()
        step = PROGRAMS[name]()
        for _ in range(STEPS):
            step()
            torch.cuda.synchronize()
            recording.step()
        recording.finish()
        if recording.trace is None:
            return {"error": recording.problem, "said": said}
        trace = lanewise.read(recording.trace)
        recorded = from_metadata(trace.metadata)
        assert recorded is not None
        answer: dict[str, Any] = {
            "step_us": recorded.unprofiled.median_us if recorded.unprofiled else None,
            "said": [line for line in said if "place" in line],
            "faults": [fault.sentence for fault in recorded.faults],
        }
        return answer | (shares(trace) if looks else {})


def shares(trace: Any) -> dict[str, Any]:
    """Of the device time of replayed nodes: what has a place, a line of the program's, and a module."""
    recorded = from_metadata(trace.metadata)
    device, nodes = trace.device_work, trace.links.graph_nodes
    whole = int(trace.duration[device[nodes]].sum())
    tree = build_tree(trace)
    time = tree.metrics["device"]
    at_launch = int(time[below(tree, tree.kind == NodeKind.GRAPH)].sum())
    # What was not replayed stands elsewhere, and is little.
    eager = int(trace.duration[device[~nodes]].sum())
    forward = placed(tree, "forward")
    own = np.zeros(len(forward), dtype=bool)
    for node in np.flatnonzero(forward.kind == NodeKind.FRAME).tolist():
        own[node] = not is_library(parse_frame(forward.label(node)).file)
    line, module = below(forward, own), below(forward, forward.kind == NodeKind.MODULE)
    theirs = forward.metrics["device"]
    optimizer = forward.phase == 4
    return {
        "graphs": len(recorded.graphs.graphs) if recorded is not None and recorded.graphs is not None else 0,
        "nodes": int(nodes.sum()),
        "replayed_ms": round(whole / 1e6, 3),
        "eager_ms": round(eager / 1e6, 3),
        "at_a_place": share(whole - at_launch, whole),
        "at_a_line": share(int(theirs[line].sum()), whole + eager),
        "at_a_module": share(int(theirs[module].sum()), whole + eager),
        "at_a_module_or_in_the_optimizer": share(int(theirs[module | optimizer].sum()), whole + eager),
        "dearest_without_a_module": dearest(forward, ~(module | optimizer)),
    }


def dearest(tree: Tree, chosen: np.ndarray) -> list[str]:
    """Names of the contexts that hold the most of the work without a module."""
    time = np.where(chosen, tree.metrics["device"], 0)
    rows = [node for node in np.argsort(-time)[:4].tolist() if time[node]]
    return [
        f"{tree.label(int(tree.parent[node]))} > {tree.label(node)[:60]}: {time[node] / 1e3:.1f} us" for node in rows
    ]


def below(tree: Tree, marked: np.ndarray) -> np.ndarray:
    """Which nodes have a marked one above them."""
    return nearest_marked(tree.parent, marked) >= 0


def share(part: int, whole: int) -> float:
    """Rounded to four digits."""
    return round(part / max(1, whole), 4)


if __name__ == "__main__":
    main()
