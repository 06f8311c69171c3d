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
from benchmarks.context.programs import HEADS, Model
from benchmarks.fresh import call
from benchmarks.machine import described
from torch import nn

import lanewise
from lanewise.capture.recording import Options, Recording
from lanewise.trace.metadata import from_metadata
from lanewise.trace.model import Trace
from lanewise.tree.from_trace.replays import find_replays
from lanewise.tree.model import NodeKind, Phase, Tree
from lanewise.tree.views import user_frames

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
    width = 256
    net = Model(layers, width, 1000).cuda()
    cos, sin = (torch.randn(length, width // HEADS, device="cuda") for _ in range(2))
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
    parser.add_argument("--rounds", type=int, default=2, help="processes of each kind; 0 leaves the cost out")
    parser.add_argument("--seconds", type=float, default=240, help="of a process, at most")
    parser.add_argument("--traces", default="", help="folder that keeps the traces")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/graph-places.json"))
    given = parser.parse_args()
    result: dict[str, Any] = {"programs": {}}
    for name in given.programs:
        answer = call(partial(measured, name, True, given.traces), seconds=given.seconds)
        times: dict[bool, list[Any]] = {True: [answer.get("step_us")], False: []}
        for looks in (False, *(True, False) * (given.rounds - 1))[: 2 * given.rounds]:
            times[looks].append(call(partial(measured, name, looks), seconds=given.seconds).get("step_us"))
        if given.rounds:
            answer |= {"step_us_looked_on": times[True], "step_us_not": times[False]}
            if all(times[True]) and all(times[False]):
                answer["ratio"] = round(float(np.median(times[True]) / np.median(times[False])), 4)
        print(name, json.dumps(answer), flush=True)
        result["programs"][name] = answer
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    # Uses the device, which a process that forks must not.
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def measured(name: str, looks: bool, folder: str = "") -> dict[str, Any]:
    """One program, recorded in a process of its own; the trace goes to `folder` if there is one."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        recording = Recording(Options(out=Path(folder or temporary), name=name, graphs=looks), said.append)
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


def shares(trace: Trace) -> dict[str, Any]:
    """Of the device time of replayed nodes: what has a place, a line of the program's, and a module."""
    recorded = from_metadata(trace.metadata)
    graphs = recorded.graphs if recorded is not None else None
    device, nodes = trace.device_work, trace.links.graph_nodes
    time = trace.duration[device]
    whole = int(time[nodes].sum())
    answer: dict[str, Any] = {
        "graphs": len(graphs.graphs) if graphs is not None else 0,
        "captured_nodes": sum(map(len, graphs.graphs)) if graphs is not None else 0,
        "nodes": int(nodes.sum()),
        "replayed_ms": round(whole / 1e6, 3),
        "eager_ms": round(int(time[~nodes].sum()) / 1e6, 3),
    }
    replays = find_replays(trace)
    if replays is None:
        return answer | {"at_a_place": 0.0}
    known = replays.node >= 0
    tree = replays.tree
    times = np.bincount(replays.node[known], weights=time[known], minlength=len(tree))
    own, module, optimizer = user_frames(tree), tree.kind == NodeKind.MODULE, tree.phase == Phase.OPTIMIZER
    line, module, module_or_optimizer = (below(tree, marked) for marked in (own, module, module | optimizer))
    return answer | {
        "at_a_place": share(times.sum(), whole),
        "at_a_line": share(times[line].sum(), whole),
        "at_a_module": share(times[module].sum(), whole),
        "at_a_module_or_in_the_optimizer": share(times[module_or_optimizer].sum(), whole),
        "dearest_without_a_line": dearest(tree, np.where(line, 0, times)),
        "dearest_without_a_module": dearest(tree, np.where(module_or_optimizer, 0, times)),
    }


def below(tree: Tree, marked: np.ndarray) -> np.ndarray:
    """Which nodes are marked or stand below one that is; backward work stands below its forward operator."""
    found = marked.copy()
    for start in range(len(tree)):
        node, way = start, set[int]()
        while node >= 0 and not marked[node] and node not in way:
            way.add(node)
            node = int(tree.forward[node] if tree.forward[node] >= 0 else tree.parent[node])
        found[start] = node >= 0 and marked[node]
    return found


def dearest(tree: Tree, times: np.ndarray) -> list[str]:
    """Names of the contexts that hold the most time, with the one above, us."""
    rows = [node for node in np.argsort(-times)[:4].tolist() if times[node]]
    return [
        f"{tree.label(int(tree.parent[node])) if tree.parent[node] >= 0 else ''} > {tree.label(node)}: "
        f"{times[node] / 1e3:.1f}"
        for node in rows
    ]


def share(part: float, whole: int) -> float:
    """Rounded to four digits."""
    return round(float(part) / max(1, whole), 4)


if __name__ == "__main__":
    main()
