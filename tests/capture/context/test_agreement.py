"""The tree from `watch` and the tree from a full trace of the same program agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import lanewise  # noqa: E402
from lanewise.capture.profiling.profiler import Flags, Session  # noqa: E402
from lanewise.tree.model import Tree  # noqa: E402
from lanewise.tree.views import top_down  # noqa: E402
from lanewise.tree.watching.start_up import with_start_up  # noqa: E402
from tests.capture.context.paths import Step, paths  # noqa: E402

STEPS = 5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        with torch.profiler.record_function("inner"):
            y = torch.relu(self.a(x))
        return x + self.b(y)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(64, 4)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def program() -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(32, 64), torch.randint(0, 4, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    def work() -> None:
        for _ in range(STEPS):
            step()

    return net, work


def of_trace(work: Any, net: Any, folder: Path) -> Tree:
    session = Session(Flags(stacks=True, shapes=False), "cpu")
    session.prepare()
    session.start()
    work()
    session.stop()
    path = folder / "full.json"
    session.export(str(path))
    trace = json.loads(path.read_text())
    trace["lanewise"] = {"modules": [[name, type(module).__name__] for name, module in net.named_modules()]}
    path.write_text(json.dumps(trace))
    return lanewise.build_tree(lanewise.read(str(path), cache=False))


def operators(tree: Tree) -> dict[tuple[Step, ...], int]:
    """Contexts of operators, from the program's own function down.

    A profiler that starts inside of running functions gives these the line where they stand instead of their first
    one, so that what is above `work` is left out. So are functions in which nothing ran: only a trace can see them.
    """
    result: dict[tuple[Step, ...], int] = {}
    for path, node in paths(tree).items():
        begin = next((at for at, step in enumerate(path) if step[2].endswith(": work")), 0)
        if path[-1][0] == "operator":
            result[path[begin:]] = node
    return result


@pytest.mark.parametrize("placement", ["ran", "forward"])
def test_contexts_phases_and_counts_are_the_same(placement: Any, tmp_path: Path) -> None:
    net, work = program()
    work()
    # On a busy machine a trace's rows may overlap instead of nesting, now and then: several chances for the witness.
    for round_ in range(5):
        with lanewise.watch(measure=False, way="native") as watcher:
            work()
        watched = top_down(with_start_up(watcher.tree, "in"), placement=placement)
        ours = operators(watched)
        assert len(ours) > 100
        folder = tmp_path / str(round_)
        folder.mkdir()
        traced = top_down(of_trace(work, net, folder), placement=placement)
        theirs = operators(traced)
        if ours.keys() == theirs.keys():
            break
    assert ours.keys() == theirs.keys()
    for path, node in ours.items():
        assert watched.metrics["calls"][node] == traced.metrics["calls"][theirs[path]], path


def test_times_agree_within_noise(tmp_path: Path) -> None:
    net, work = program()
    work()
    least: dict[tuple[Step, ...], tuple[int, int]] = {}
    for round_ in range(5):
        with lanewise.watch(measure=False, way="native") as watcher:
            work()
        folder = tmp_path / str(round_)
        folder.mkdir()
        watched, traced = top_down(with_start_up(watcher.tree, "in")), top_down(of_trace(work, net, folder))
        ours, theirs = operators(watched), operators(traced)
        host, other = watched.inclusive("host"), traced.inclusive("host")
        for path in ours.keys() & theirs.keys():
            a, b = least.get(path, (2**62, 2**62))
            # The least of all rounds: whatever else the machine does only adds.
            least[path] = min(a, int(host[ours[path]])), min(b, int(other[theirs[path]]))
    a, b = np.array(list(least.values()), dtype=np.float64).T
    # Large contexts, where the profilers' own cost is small against what they measure.
    large = b >= np.quantile(b, 0.8)
    # The trace's own cost per operator is several times ours and lies inside its times.
    assert 0.2 < float(np.median(a[large] / b[large])) < 1.5
