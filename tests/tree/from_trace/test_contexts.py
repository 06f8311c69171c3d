"""Who is inside whom, and what makes two contexts one."""

from __future__ import annotations

from lanewise.trace.schema import Kind
from lanewise.tree.build import build_tree
from lanewise.tree.model import NodeKind, Tree
from tests.support.builder import TraceBuilder


def paths(tree: Tree, kind: int = NodeKind.KERNEL) -> dict[str, int]:
    """`a > b > kernel` -> device time of every node of a kind."""
    found: dict[str, int] = {}
    for node in range(len(tree)):
        if tree.kind[node] == kind:
            names, at = [], node
            while at >= 0:
                names.append(tree.label(at))
                at = int(tree.parent[at])
            found[" > ".join(reversed(names))] = int(tree.metrics["device"][node])
    return found


def test_a_kernel_stands_under_frames_module_and_operators() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(10): main"), b.frame("nn.Module: Linear_0"), b.op("aten::linear"), \
            b.op("aten::addmm"):  # fmt: skip
        b.launch("gemm", duration=7)
    assert paths(build_tree(b.build())) == {
        "main thread > train.py(10): main > Linear > aten::linear > aten::addmm > gemm": 7000
    }


def test_repeated_contexts_are_one_node() -> None:
    b = TraceBuilder()
    for _ in range(5):
        with b.step(), b.frame("train.py(10): main"):
            for _ in range(20):
                with b.op("aten::add"):
                    b.launch("add", duration=2)
    tree = build_tree(b.build())
    assert paths(tree) == {"main thread > train.py(10): main > aten::add > add": 5 * 20 * 2000}
    node = next(n for n in range(len(tree)) if tree.label(n) == "add")
    assert tree.metrics["count"][node] == 100
    assert tree.metrics["shortest"][node] == tree.metrics["longest"][node] == 2000
    assert tree.metrics["squares"][node] == 100 * 2000.0**2
    operator = int(tree.parent[node])
    assert tree.metrics["calls"][operator] == tree.metrics["launches"][operator] == 100


def test_a_step_mark_that_crosses_the_profilers_own_frames_does_not_book_the_step_to_it() -> None:
    """The mark opens inside one call of `step()` and closes inside the next; the program runs in between.

    By time alone the training function lies inside the first of these calls' remains; its recorded parent is the loop.
    """
    b = TraceBuilder()
    frames: list[dict[str, int]] = []

    def frame(name: str, at: float, duration: float, parent: int) -> int:
        event = b.slice(name, Kind.PYTHON, at, duration)
        number = len(frames) + 1
        frames.append({"event": event, "python_id": number, "parent_id": parent, "module_id": -1})
        return number

    loop = frame("train.py(1): loop", 0, 1000, -1)
    first = frame("torch/profiler/profiler.py(894): step", 10, 90, loop)
    frame("<built-in method _record_function_enter_new>", 20, 75, first)
    b.slice("ProfilerStep#3", Kind.ANNOTATION, 30, 880)
    # Begins before the profiler's frames are closed by their recorded end: rounding and late returns do that.
    frame("train.py(20): step", 98, 700, loop)
    second = frame("torch/profiler/profiler.py(894): step", 850, 100, loop)
    frame("<built-in method _record_function_exit>", 880, 60, second)
    for row in frames:
        b.row("python_args", **row)
    b.slice("aten::copy_", Kind.OPERATOR, 200, 300)
    b.now = 210
    b.copy("HtoD", duration=50)
    tree = build_tree(b.build())
    assert paths(tree, NodeKind.COPY) == {
        "main thread > train.py(1): loop > train.py(20): step > aten::copy_ > Memcpy HtoD (Pinned -> Device)": 50_000
    }


def test_frames_of_several_threads_on_one_lane_keep_their_own_stacks() -> None:
    b = TraceBuilder()
    for number, (name, at, parent) in enumerate(
        [("a.py(1): a", 0, -1), ("b.py(1): b", 5, -1), ("b.py(2): c", 6, 2), ("a.py(2): d", 7, 1)], 1
    ):
        event = b.slice(name, Kind.PYTHON, at, 100 - at)
        b.row("python_args", event=event, python_id=number, parent_id=parent, module_id=-1)
    tree = build_tree(b.build())
    above = {tree.label(n): tree.label(int(tree.parent[n])) for n in range(len(tree)) if tree.parent[n] >= 0}
    assert above == {"a.py(1): a": "main thread", "b.py(1): b": "main thread", "b.py(2): c": "b.py(1): b",
                     "a.py(2): d": "a.py(1): a"}  # fmt: skip


def test_a_recorded_parent_on_another_thread_is_refused() -> None:
    """A hook called by the autograd engine: its frame names whatever the main thread was in as its parent."""
    b = TraceBuilder()
    main = b.slice("train.py(1): main", Kind.PYTHON, 0, 100)
    b.row("python_args", event=main, python_id=1, parent_id=-1, module_id=-1)
    b.slice("MulBackward0", Kind.OPERATOR, 10, 50, thread="200", sequence=1, forward_thread=1)
    hook = b.slice("torch/utils/checkpoint.py(1154): unpack_hook", Kind.PYTHON, 20, 30, thread="200")
    b.row("python_args", event=hook, python_id=2, parent_id=1, module_id=-1)
    tree = build_tree(b.build())
    above = {tree.label(n): tree.label(int(tree.parent[n])) for n in range(len(tree)) if tree.parent[n] >= 0}
    assert above["torch/utils/checkpoint.py(1154): unpack_hook"] == "MulBackward0"


def test_recorded_parents_that_form_a_cycle_are_refused() -> None:
    b = TraceBuilder()
    for number, parent in ((1, 2), (2, 1)):
        event = b.slice(f"x.py({number}): f", Kind.PYTHON, number, 100 - number)
        b.row("python_args", event=event, python_id=number, parent_id=parent, module_id=-1)
    tree = build_tree(b.build())
    above = {tree.label(n): tree.label(int(tree.parent[n])) for n in range(len(tree)) if tree.parent[n] >= 0}
    assert above == {"x.py(1): f": "main thread", "x.py(2): f": "x.py(1): f"}


def test_an_annotation_between_two_frames_stays_between_them() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): main"), b.span("my region"), b.frame("train.py(9): part"), b.op("aten::add"):
        b.launch("add", duration=1)
    assert list(paths(build_tree(b.build()))) == [
        "main thread > train.py(1): main > my region > train.py(9): part > aten::add > add"
    ]


def test_addresses_and_counters_are_not_part_of_a_context() -> None:
    b = TraceBuilder()
    for number in range(3):
        with b.step(), b.span(f"epoch#{number}"), \
                b.frame(f"<built-in method to of Tensor object at 0x7f5d{number:08x}>"), b.op("aten::to"):  # fmt: skip
            b.launch("copy", duration=1)
    assert paths(build_tree(b.build())) == {
        "main thread > epoch#* > <built-in method to of Tensor object> > aten::to > copy": 3000
    }


def test_work_without_a_launch_has_a_place_of_its_own() -> None:
    b = TraceBuilder()
    b.kernel("early", 0, 3)
    with b.step(), b.op("aten::add"):
        b.launch("add", duration=1)
    b.kernel("lost", 500, 4)
    tree = build_tree(b.build())
    assert paths(tree) == {
        "<launched before the recording> > early": 3000,
        "<launch not recorded> > lost": 4000,
        "main thread > aten::add > add": 1000,
    }
    assert tree.info.unlinked == 2


def test_all_nodes_of_a_graph_stand_under_its_launch() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): replay"):
        b.launch(["a", "b", "a"], duration=2)
    assert paths(build_tree(b.build())) == {
        "main thread > train.py(1): replay > cudaGraphLaunch > a": 4000,
        "main thread > train.py(1): replay > cudaGraphLaunch > b": 2000,
    }


def test_host_time_is_each_contexts_own() -> None:
    b = TraceBuilder()
    with b.step(head=0, tail=0), b.frame("train.py(1): main"), b.op("aten::item", head=1, tail=2):
        b.call("cudaStreamSynchronize", duration=30)
    tree = build_tree(b.build())
    host = {tree.label(n): int(tree.metrics["host"][n]) for n in range(len(tree))}
    assert host == {"main thread": 0, "train.py(1): main": 1000, "aten::item": 3000, "cudaStreamSynchronize": 30_000}
    assert tree.total("wait") == 30_000


def test_allocations_belong_to_the_innermost_context() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::empty"):
        for size, device in ((4096, 1), (-4096, 1), (512, 0)):
            b.row("memory", time=round(b.now * 1000), lane=b.lane("host", "100", "100"), bytes=size, address=1,
                  allocated=0, reserved=0, device_type=device, device_id=0)  # fmt: skip
            b.wait(1)
    tree = build_tree(b.build())
    node = next(n for n in range(len(tree)) if tree.label(n) == "aten::empty")
    assert (tree.metrics["allocated"][node], tree.metrics["allocations"][node]) == (4096, 1)


def test_gaps_are_those_of_the_stream_and_of_the_device() -> None:
    b = TraceBuilder()
    with b.step(), b.op("op"):
        b.kernel("a", 100, 10, stream="7", correlation=1)
        b.kernel("b", 105, 20, stream="8", correlation=2)
        b.kernel("c", 140, 10, stream="7", correlation=3)
    tree = build_tree(b.build())
    gap = {tree.label(n): (int(tree.metrics["gap"][n]), int(tree.metrics["idle"][n])) for n in range(len(tree))}
    assert gap["a"] == gap["b"] == (0, 0)
    assert gap["c"] == (30_000, 15_000)


def test_a_trace_of_nothing_has_an_empty_tree() -> None:
    tree = build_tree(TraceBuilder().build())
    assert len(tree) == 0
    assert tree.info.device_total == 0
