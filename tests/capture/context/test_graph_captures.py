"""What a CUDA graph replays, at the module and line of its capture: from that capture to the tree of the trace."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.graph_places import shares  # noqa: E402

from lanewise.capture.context import running  # noqa: E402
from lanewise.capture.graphs.graph_captures import GraphCaptures  # noqa: E402
from lanewise.trace.metadata import KEY, Recorded, from_metadata, to_json  # noqa: E402
from lanewise.tree.build import build_tree  # noqa: E402
from lanewise.tree.model import NodeKind, Tree  # noqa: E402
from tests.capture.context.paths import above  # noqa: E402
from tests.capture.context.test_device import (  # noqa: E402
    CREATED,
    DRIVER,
    DRIVER_LAUNCH,
    Cupti,
    _only_the_fake,  # noqa: F401
    cupti,  # noqa: F401
    launch,
    library,  # noqa: F401
)
from tests.support.builder import TraceBuilder  # noqa: E402

KERNEL, COPY, SET, EVENT = 0, 1, 2, 6


class Graph:
    """As torch's, without a device."""

    fails = ""

    def capture_begin(self) -> None:
        if self.fails == "begin":
            raise RuntimeError("no capture")

    def capture_end(self) -> None:
        if self.fails == "end":
            raise RuntimeError("no graph")

    def replay(self) -> None: ...


class Layer(torch.nn.Module):
    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Any) -> Any:
        launch(self.act)
        return x


class Program:
    """A network of two layers whose capture makes some nodes, and what is said meanwhile."""

    def __init__(self, fake: Cupti) -> None:
        self.fake = fake
        self.recording = True
        self.said: list[str] = []
        self.captures = GraphCaptures(lambda: self.recording, self.said.append)
        self.net = torch.nn.Sequential(
            Layer(lambda: self.node(b"_Z6squarePfi")),
            Layer(self.second),
        )

    def second(self) -> None:
        self.node(b"_Z6squarePfi")
        self.node(None, COPY)
        self.node(None, EVENT)
        self.node(b"_Z4cubePf")

    def node(self, symbol: bytes | None, kind: int = KERNEL) -> None:
        self.fake.library.fake_node(kind, symbol)
        self.fake.correlation += 1
        self.fake.call(DRIVER, DRIVER_LAUNCH, self.fake.correlation, lambda: self.fake.graph_node(CREATED, 7))

    def capture(self, graph: Graph | None = None) -> Graph:
        graph = graph or Graph()
        graph.capture_begin()
        self.net(torch.ones(2))
        graph.capture_end()
        # To make it executable makes its nodes once more.
        launch(lambda: self.node(b"_Z6squarePfi"))
        return graph


@pytest.fixture
def program(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", SimpleNamespace(CUDAGraph=Graph))
    made = Program(cupti)
    made.captures.install()
    yield made
    made.captures.no_more()
    made.captures.uninstall()
    assert "wrapped" not in repr(Graph.replay)
    assert running.claim(made.captures)
    running.release()


def trace_of(program: Program, *replays: list[str]) -> Any:
    facts = program.captures.facts()
    assert facts is not None
    b = TraceBuilder()
    b.metadata[KEY] = json.loads(json.dumps(to_json(Recorded(graphs=facts))))
    assert from_metadata(b.metadata).graphs == facts  # type: ignore[union-attr]
    with b.step():
        for kernels in replays:
            events = b.launch(kernels, duration=10)
            for event, name in zip(events[1:], kernels, strict=True):
                if name == "copy":
                    b.as_copy(event, "DtoD", size=64)
            b.wait(100)
    return b.build()


def test_cupti_is_gone_when_graphs_are_replayed_unless_somebody_else_has_it(program: Program) -> None:
    """Beside it short launches take longer."""
    driver = program.fake.library
    before = driver.fake_finalized()
    graphs = [program.capture(), program.capture()]
    assert driver.fake_finalized() == before
    for graph in graphs * 2:
        graph.replay()
    assert driver.fake_finalized() == before + 1
    third = program.capture()
    handle = ctypes.c_void_p()
    assert driver.cuptiSubscribe(ctypes.byref(handle), None, None) == 0
    third.replay()
    assert driver.fake_finalized() == before + 1
    assert driver.fake_subscribers() == 1
    driver.cuptiUnsubscribe(handle)


def test_a_node_of_which_the_driver_told_nothing_may_be_any(program: Program) -> None:
    """As what sets memory is, which cuDNN does before many of its kernels."""
    program.second = lambda: None  # type: ignore[method-assign]
    program.net[1].act = lambda: (program.node(b"_Z4cubePf"), program.node(None), program.node(b"_Z6squarePfi"))
    graph = program.capture()
    program.captures.no_more()
    for _ in range(2):
        graph.replay()
    square, cube = "square(float*, int)", "cube(float*)"
    tree = build_tree(trace_of(program, [square, cube, "set", square], [cube, square, "set", square]))
    assert places(tree) == {square: {"0": 2, "1": 2}, "set": {"1": 2}, cube: {"1": 2}}


def test_the_benchmark_counts_replayed_work_at_its_module_and_line(program: Program) -> None:
    graph = program.capture()
    program.captures.no_more()
    graph.replay()
    graph.replay()
    trace = trace_of(program, ONE, [*ONE[:3], "unknown()"])
    found = shares(trace)
    assert (found["nodes"], found["captured_nodes"]) == (8, 4)
    # One of eight nodes is of another kernel; a line and a module are known of the others.
    assert [found[name] for name in ("at_a_place", "at_a_line", "at_a_module")] == [0.5, 0.5, 0.5]


def places(tree: Tree) -> dict[str, dict[str, int]]:
    """Of each kernel: nodes by the module that they stand in, "" for none."""
    found: dict[str, dict[str, int]] = {}
    for node in range(len(tree)):
        if tree.kind[node] in (NodeKind.KERNEL, NodeKind.COPY):
            at, module = node, ""
            while at >= 0 and not module:
                module = tree.label(at) if tree.kind[at] == NodeKind.MODULE else ""
                at = int(tree.parent[at])
            of_name = found.setdefault(tree.label(node), {})
            of_name[module] = of_name.get(module, 0) + int(tree.metrics["count"][node])
    return found


ONE = ["square(float*, int)", "square(float*, int)", "copy", "cube(float*)"]


def test_replayed_work_stands_at_its_module_and_line(program: Program) -> None:
    graph = program.capture()
    program.captures.no_more()
    for _ in range(3):
        graph.replay()
    tree = build_tree(trace_of(program, ONE, ONE, ONE))
    assert places(tree) == {
        "square(float*, int)": {"0": 3, "1": 3},
        "copy": {"1": 3},
        "cube(float*)": {"1": 3},
    }
    assert tree.total("device") == tree.info.device_total == 3 * 4 * 10_000
    (cube,) = [node for node in range(len(tree)) if tree.label(node).startswith("cube")]
    chain = above(tree, cube)
    assert chain[1] == "lanewise_test::launch"
    assert any("test_graph_captures.py" in name and name.endswith("forward") for name in chain)
    assert any(name.endswith(": capture") for name in chain)
    # The launches of the graph stay where they are.
    assert tree.total("launches") == 3
    assert not [line for line in program.said if "building" not in line]


def test_with_several_graphs_the_order_of_their_replays_tells_which_is_which(program: Program) -> None:
    first = program.capture()
    program.net = torch.nn.Sequential(torch.nn.Sequential(*(Layer(layer.act) for layer in program.net)))
    second = program.capture()
    program.recording = False
    first.replay()
    program.recording = True
    program.captures.no_more()
    for graph in (second, first, first):
        graph.replay()
    found = places(build_tree(trace_of(program, ONE, ONE, ONE)))
    assert sum(found["square(float*, int)"].values()) == 6
    assert sorted(found["cube(float*)"].values()) == [1, 2]


def test_branches_that_run_side_by_side_are_found_by_name(program: Program) -> None:
    graph = program.capture()
    program.captures.no_more()
    graph.replay()
    mixed = ["cube(float*)", "square(float*, int)", "copy", "square(float*, int)"]
    assert places(build_tree(trace_of(program, mixed)))["cube(float*)"] == {"1": 1}


def test_what_is_not_of_a_known_graph_stays_at_its_launch(program: Program) -> None:
    graph = program.capture()
    program.captures.no_more()
    unknown = Graph()
    graph.replay()
    unknown.replay()
    found = places(build_tree(trace_of(program, ONE, ["other()", "another()"])))
    assert found["other()"] == {"": 1}
    assert found["cube(float*)"] == {"1": 1}
    # Another number of launches than of replays: graphs that look like one of ours are ours, if only one does.
    found = places(build_tree(trace_of(program, ["other()", "another()"], ONE, ONE)))
    assert found["cube(float*)"] == {"1": 2}


def test_a_graph_that_is_captured_under_a_profiler_has_no_place(program: Program) -> None:
    known = program.capture()
    program.captures.no_more()
    late = program.capture()
    known.replay()
    late.replay()
    assert program.fake.library.fake_subscribers() == 0
    facts = program.captures.facts()
    assert facts is not None
    assert facts.replays == [0, -1]


def test_nothing_is_left_in_the_way_of_launches(program: Program) -> None:
    program.capture()
    assert program.fake.library.fake_subscribers() == 0
    assert program.fake.library.fake_calls() == 0


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_a_capture_that_fails_fails_as_it_would_and_leaves_nothing(program: Program, fails: str) -> None:
    good = program.capture()
    bad = Graph()
    bad.fails = fails
    with pytest.raises(RuntimeError, match="no "):
        program.capture(bad)
    assert program.fake.library.fake_subscribers() == 0
    after = program.capture()
    program.captures.no_more()
    for graph in (good, bad, after):
        graph.replay()
    facts = program.captures.facts()
    assert facts is not None
    assert [number >= 0 for number in facts.replays] == [True, False, True]
    assert len(facts.graphs[facts.replays[0]]) == len(facts.graphs[facts.replays[2]]) == len(ONE)


def test_a_profiler_that_comes_in_the_middle_of_a_capture_gets_the_device(program: Program) -> None:
    graph = Graph()
    graph.capture_begin()
    program.net(torch.ones(2))
    program.captures.no_more()
    assert program.fake.library.fake_subscribers() == 0
    graph.capture_end()
    graph.replay()
    assert program.captures.facts() is None


def test_a_device_that_another_tool_holds_is_said_once(program: Program) -> None:
    program.fake.library.fake_subscribe_result(39)
    program.capture()
    program.capture().replay()
    assert [line for line in program.said if "stays without a place" in line] == program.said
    assert len(program.said) == 1
    program.captures.no_more()
    assert program.captures.facts() is None


@pytest.mark.parametrize(
    "wrong",
    [
        7, {}, {"tree": "", "kernels": [], "graphs": [], "replays": [0]},
        {"tree": "", "kernels": [], "graphs": [[[0, 0, 0]]], "replays": []},
        {"tree": "", "kernels": ["a"], "graphs": [[[3, 0, 0]]], "replays": []},
        {"tree": "", "kernels": ["a"], "graphs": [[[0, 0]]], "replays": []},
    ],
)  # fmt: skip
def test_what_cannot_be_is_read_as_nothing(wrong: Any) -> None:
    assert from_metadata({KEY: {"graphs": wrong}}).graphs is None  # type: ignore[union-attr]


def test_a_damaged_tree_leaves_the_work_at_its_launch() -> None:
    b = TraceBuilder()
    b.metadata[KEY] = {
        "graphs": {"tree": "AAAA", "kernels": ["a()"], "graphs": [[[0, 0, 0], [0, 0, 0]]], "replays": [0]}
    }
    with b.step():
        b.launch(["a()", "a()"])
    tree = build_tree(b.build())
    assert places(tree) == {"a()": {"": 2}}
