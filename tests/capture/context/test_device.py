"""Device work, through a CUPTI that reports what a test says. tests/capture/context/test_on_device.py has a real one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.capture.context import native  # noqa: E402
from lanewise.capture.context import native_build as build  # noqa: E402
from lanewise.capture.context.turns import Turns  # noqa: E402
from lanewise.capture.context.watcher import Watcher  # noqa: E402
from lanewise.tree.model import NodeKind, Tree  # noqa: E402
from tests.capture.context.paths import above, rows  # noqa: E402

HERE = Path(__file__).parent
DRIVER, RUNTIME = 1, 2
LAUNCH, LAUNCH_EX, COPY_ASYNC, SET_ASYNC = 211, 430, 41, 51
DRIVER_LAUNCH, DRIVER_LAUNCH_EX, GRAPH_LAUNCH, DRIVER_COPY = 307, 652, 514, 277
CREATED, DESTROYED, CLONED = 13, 14, 20
KERNEL = b"_Z6squarePfi"


class Cupti:
    """The fake library, spoken to as the driver would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.correlation = 0
        self.now = 1000

    def call(self, domain: int, number: int, correlation: int, inner: Callable[[], None] = lambda: None) -> None:
        """A call of the program, and what it does in turn."""
        self.library.fake_call(domain, number, correlation, 0)
        inner()
        self.library.fake_call(domain, number, correlation, 1)

    def launch(self, name: bytes = KERNEL, ns: int = 100, gap: int = 10, *, number: int = LAUNCH) -> None:
        """A kernel through the runtime, which calls the driver under the same number; it runs at once."""
        self.correlation += 1
        one = self.correlation
        self.call(RUNTIME, number, one, lambda: self.call(DRIVER, DRIVER_LAUNCH, one))
        self.kernel(one, name, ns, gap)

    def kernel(self, correlation: int, name: bytes = KERNEL, ns: int = 100, gap: int = 10, node: int = 0) -> None:
        """A record of a kernel."""
        begin = self.now + gap
        self.now = begin + ns
        self.library.fake_kernel(
            correlation, name, ctypes.c_uint64(begin), ctypes.c_uint64(self.now), 7, ctypes.c_uint64(node)
        )

    def graph_node(self, number: int, node: int, original: int = 0) -> None:
        """A node of a graph comes or goes."""
        self.library.fake_graph_node(number, ctypes.c_uint64(node), ctypes.c_uint64(original))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake, compiled."""
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")
    path = tmp_path_factory.mktemp("fake") / "libfake_cupti.so"
    words = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{build._SOURCES}"]
    subprocess.run([*words, str(HERE / "fake_cupti.cpp"), "-o", str(path)], check=True, timeout=120)
    return path


@pytest.fixture(autouse=True)
def _only_the_fake() -> None:  # pyright: ignore[reportUnusedFunction]
    """Of two CUPTIs in a process the mapped one is taken: a torch that is built for CUDA maps its own."""
    maps = Path("/proc/self/maps")
    if maps.exists() and "libcupti" in maps.read_text():
        pytest.skip("this torch has mapped a CUPTI of its own: tests/capture/context/test_on_device.py uses it")


@pytest.fixture
def cupti(library: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Cupti]:
    """A machine with a device that the program uses from the first moment on."""
    monkeypatch.setattr(build, "cupti_library", lambda: str(library))
    monkeypatch.setattr(native, "_why_no_device", lambda: "")
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda act: act())
    fake = Cupti(library)
    fake.library.fake_subscribe_result(0)
    _launching.clear()
    yield fake
    assert fake.library.fake_subscribers() == 0
    assert fake.library.fake_kinds() == 0
    assert fake.library.fake_buffers() == 0


_launching: list[Callable[[], Any]] = []
_operators = torch.library.Library("lanewise_test", "DEF")
_operators.define("launch(Tensor x) -> Tensor")
_operators.define("other(Tensor x) -> Tensor")


def _launch(x: Any) -> Any:
    for act in _launching:
        act()
    return x.clone()


_operators.impl("launch", _launch, "CPU")
_operators.impl("other", _launch, "CPU")


def launch(*acts: Callable[[], Any], other: bool = False) -> None:
    """An operator that does this."""
    _launching[:] = acts
    (torch.ops.lanewise_test.other if other else torch.ops.lanewise_test.launch)(torch.ones(2))
    _launching.clear()


def collected(work: Callable[[], Any], **options: Any) -> Tree:
    watcher = lanewise.watch(measure=False, way="native", **options)
    with watcher:
        work()
    assert watcher.problem == ""
    assert watcher.tree.info.watched is not None
    assert watcher.tree.info.watched.device == "collected"
    return watcher.tree


def losses(tree: Tree) -> dict[str, int]:
    assert tree.info.watched is not None
    return tree.info.watched.losses


def metrics(tree: Tree, node: int) -> dict[str, int]:
    return {name: int(values[node]) for name, values in tree.metrics.items()}


def torchs_profiler_subscribes(cupti: Cupti) -> int:
    """As libkineto does when it is first used: its answer is 0, or it never records a device."""
    handle = ctypes.c_void_p()
    return cupti.library.cuptiSubscribe(ctypes.byref(handle), None, None)


def test_another_profiler_has_the_device_for_a_while_and_stays_subscribed(cupti: Cupti) -> None:
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        collector = watcher._collector
        assert collector is not None
        launch(cupti.launch)
        collector.make_way()
        assert torchs_profiler_subscribes(cupti) == 0
        cupti.library.cuptiActivityRegisterCallbacks(None, None)
        launch(lambda: cupti.call(RUNTIME, LAUNCH, 1))
        collector.on()
        launch(cupti.launch, cupti.launch)
        # Once it has begun it subscribes no more, and its records come all the same.
        collector.make_way()
        assert cupti.library.fake_subscribers() == 0
        collector.on()
        launch(cupti.launch)
    (node,) = rows(watcher.tree, "square(float*, int)")
    assert metrics(watcher.tree, node)["count"] == 4
    assert losses(watcher.tree) == {}


def test_a_profiler_that_keeps_the_device_is_told(cupti: Cupti) -> None:
    said: list[str] = []
    watcher = Watcher(turns=Turns(pairs=0), way="native", log=said.append)
    with watcher:
        collector = watcher._collector
        assert collector is not None
        launch(cupti.launch)
        collector.make_way()
        assert torchs_profiler_subscribes(cupti) == 0
        cupti.library.fake_version(22)
        collector.on()
        launch(cupti.launch)
    cupti.library.fake_version(130000)
    cupti.library.cuptiUnsubscribe(None)
    (node,) = rows(watcher.tree, "square(float*, int)")
    assert metrics(watcher.tree, node)["count"] == 1
    watched = watcher.tree.info.watched
    assert watched is not None
    assert "before CUDA 12.6" in watched.device
    assert any("nothing is collected from the device" in line for line in said)


def test_the_programs_own_profiler_has_the_device(cupti: Cupti) -> None:
    """Whether its steps are marked or not, and also where one profiler runs inside of another's time."""
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        for marked in (False, True):
            launch(cupti.launch)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
                assert cupti.library.fake_subscribers() == 0
                launch(cupti.launch)
                if marked:
                    watcher.step()
                # A recording that comes to nothing meanwhile does not take the device.
                watcher.pause()
                watcher.resume()
                assert cupti.library.fake_subscribers() == 0
            assert any("lanewise_test::launch" in event.key for event in theirs.key_averages())
            assert cupti.library.fake_subscribers() == 1
    (node,) = rows(watcher.tree, "square(float*, int)")
    assert metrics(watcher.tree, node)["count"] == 2
    assert losses(watcher.tree) == {}


def test_kernels_are_folded_into_the_operator_that_launched_them(cupti: Cupti) -> None:
    def step() -> None:
        for ns in (100, 300, 200):
            launch(lambda ns=ns: cupti.launch(ns=ns))

    tree = collected(step)
    (node,) = rows(tree, "square(float*, int)")
    assert tree.kind[node] == NodeKind.KERNEL
    chain = [text.rpartition(": ")[2] for text in above(tree, node)]
    assert chain[1] == "lanewise_test::launch"
    # Between them stands torch's own call of an operator.
    assert chain[3:5] == ["launch", "step"]
    found = metrics(tree, node)
    assert (found["count"], found["device"], found["shortest"], found["longest"]) == (3, 600, 100, 300)
    assert found["squares"] == 100**2 + 300**2 + 200**2
    # The first has nothing before it.
    assert (found["gap"], found["idle"]) == (20, 20)
    (operator,) = rows(tree, "lanewise_test::launch")
    assert metrics(tree, operator)["launches"] == 3
    assert tree.info.device_total == 600
    assert losses(tree) == {}


def test_two_operators_have_their_own(cupti: Cupti) -> None:
    def step() -> None:
        launch(cupti.launch, lambda: cupti.launch(b"_Z4halfv", 50))
        launch(lambda: cupti.launch(ns=7), other=True)

    tree = collected(step)
    first, second = sorted(rows(tree, "square(float*, int)"), key=lambda node: -metrics(tree, node)["device"])
    assert above(tree, first)[1].endswith("lanewise_test::launch")
    assert above(tree, second)[1].endswith("lanewise_test::other")
    assert metrics(tree, second)["device"] == 7
    assert metrics(tree, rows(tree, "half()")[0])["device"] == 50


def test_launches_through_the_driver_alone_count(cupti: Cupti) -> None:
    def act() -> None:
        for number in (DRIVER_LAUNCH, DRIVER_LAUNCH_EX):
            cupti.correlation += 1
            cupti.call(DRIVER, number, cupti.correlation)
            cupti.kernel(cupti.correlation, b"triton_poi_fused_add_0")
        cupti.launch(number=LAUNCH_EX)

    tree = collected(lambda: launch(act))
    (node,) = rows(tree, "triton_poi_fused_add_0")
    assert metrics(tree, node)["count"] == 2
    assert losses(tree) == {}


def test_copies_and_sets_have_their_direction_and_bytes(cupti: Cupti) -> None:
    def act() -> None:
        cupti.call(RUNTIME, COPY_ASYNC, 1, lambda: cupti.call(DRIVER, DRIVER_COPY, 1))
        cupti.library.fake_copy(1, 1, 2, 3, ctypes.c_uint64(4096), ctypes.c_uint64(10), ctypes.c_uint64(30))
        cupti.call(RUNTIME, COPY_ASYNC, 2)
        cupti.library.fake_copy(2, 2, 3, 1, ctypes.c_uint64(8), ctypes.c_uint64(40), ctypes.c_uint64(45))
        cupti.call(RUNTIME, 161, 3)
        cupti.library.fake_peer_copy(3, ctypes.c_uint64(16), ctypes.c_uint64(50), ctypes.c_uint64(60))
        cupti.call(RUNTIME, SET_ASYNC, 4)
        cupti.library.fake_set(4, 3, ctypes.c_uint64(512), ctypes.c_uint64(70), ctypes.c_uint64(71))

    tree = collected(lambda: launch(act))
    found = {
        tree.label(node): (int(tree.kind[node]), tree.strings[int(tree.detail[node])], metrics(tree, node))
        for node in range(len(tree))
        if metrics(tree, node)["count"]
    }
    assert {name: (kind, detail, own["bytes"], own["device"]) for name, (kind, detail, own) in found.items()} == {
        "Memcpy HtoD (Pinned -> Device)": (NodeKind.COPY, "HtoD", 4096, 20),
        "Memcpy DtoH (Device -> Pageable)": (NodeKind.COPY, "DtoH", 8, 5),
        "Memcpy PtoP (Device -> Device)": (NodeKind.COPY, "PtoP", 16, 10),
        "Memset (Device)": (NodeKind.SET, "", 512, 1),
    }
    assert losses(tree) == {}


def test_records_without_a_launch_are_counted_and_kept(cupti: Cupti) -> None:
    def step() -> None:
        launch(cupti.launch)
        cupti.kernel(12345, ns=40)

    tree = collected(step)
    lost = [node for node in rows(tree, "square(float*, int)") if metrics(tree, node)["device"] == 40]
    assert len(lost) == 1
    assert tree.parent[tree.parent[lost[0]]] < 0
    assert losses(tree) == {"records_unmatched": 1}
    assert tree.info.unlinked == 1


def test_what_the_driver_drops_is_told(cupti: Cupti) -> None:
    def act() -> None:
        cupti.launch()
        cupti.correlation += 1
        cupti.call(DRIVER, DRIVER_LAUNCH, cupti.correlation)
        cupti.library.fake_drop(1)

    assert losses(collected(lambda: launch(act))) == {"records_dropped": 1, "kernels_missing": 1}


def test_records_without_times_are_told(cupti: Cupti) -> None:
    def act() -> None:
        cupti.launch()
        cupti.correlation += 1
        cupti.call(DRIVER, DRIVER_LAUNCH, cupti.correlation)
        cupti.library.fake_kernel(
            cupti.correlation, KERNEL, ctypes.c_uint64(0), ctypes.c_uint64(0), 7, ctypes.c_uint64(0)
        )

    tree = collected(lambda: launch(act))
    assert metrics(tree, rows(tree, "square(float*, int)")[0])["count"] == 1
    assert losses(tree) == {"records_unfinished": 1}


def test_the_work_of_a_graph_belongs_to_where_it_was_captured(cupti: Cupti) -> None:
    def capture() -> None:
        def act() -> None:
            cupti.correlation += 1
            cupti.call(DRIVER, DRIVER_LAUNCH, cupti.correlation, lambda: cupti.graph_node(CREATED, 501))

        launch(act)
        # To instantiate it creates nodes of its own, elsewhere.
        launch(lambda: cupti.graph_node(CREATED, 601), other=True)
        cupti.graph_node(CLONED, 601, 501)
        launch(lambda: cupti.graph_node(CREATED, 601), other=True)
        cupti.graph_node(DESTROYED, 501)

    def replay() -> None:
        cupti.correlation += 1
        cupti.call(DRIVER, GRAPH_LAUNCH, cupti.correlation)
        cupti.kernel(cupti.correlation, ns=30, node=601)

    def step() -> None:
        capture()
        launch(replay, other=True)
        launch(replay, other=True)
        # A graph may be gone before the records of its work come.
        cupti.graph_node(DESTROYED, 601)

    tree = collected(step)
    (node,) = rows(tree, "square(float*, int)")
    assert metrics(tree, node)["count"] == 2
    assert above(tree, node)[1].endswith("lanewise_test::launch")
    # What was captured has not run.
    assert losses(tree) == {}


def test_graphs_that_come_and_go_need_little_memory(cupti: Cupti) -> None:
    def act() -> None:
        for node in range(1, 200_000):
            cupti.graph_node(CREATED, node)
            cupti.graph_node(DESTROYED, node)

    before = resident()
    tree = collected(lambda: launch(act))
    assert losses(tree) == {}
    assert resident() - before < 24e6


def resident() -> int:
    """Memory of this process, bytes."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("node", [77, 0])
def test_graphs_captured_before_the_start_belong_to_where_they_are_launched(cupti: Cupti, node: int) -> None:
    """The driver may know their nodes or not."""

    def replay() -> None:
        cupti.correlation += 1
        cupti.call(DRIVER, GRAPH_LAUNCH, cupti.correlation)
        for _ in range(3):
            cupti.kernel(cupti.correlation, ns=30, node=node)

    tree = collected(lambda: launch(replay))
    assert losses(tree) == ({"graphs_before": 3} if node else {})
    (kernel,) = rows(tree, "square(float*, int)")
    assert metrics(tree, kernel)["device"] == 90
    assert above(tree, kernel)[1].endswith("lanewise_test::launch")
    assert metrics(tree, rows(tree, "lanewise_test::launch")[0])["launches"] == 0


def test_a_graph_of_an_earlier_session_is_not_placed_in_this_ones_contexts(cupti: Cupti) -> None:
    collected(lambda: launch(lambda: cupti.graph_node(CREATED, 88)))
    tree = collected(lambda: launch(lambda: cupti.kernel(1, node=88)))
    assert losses(tree) == {"graphs_before": 1}


def test_nothing_is_noted_while_off(cupti: Cupti) -> None:
    watcher = lanewise.watch(measure=False, way="native", every=10, steps=1)
    with watcher:
        for _ in range(40):
            launch(cupti.launch)
            watcher.step()
    tree = watcher.tree
    watched = tree.info.watched
    assert watched is not None
    (node,) = rows(tree, "square(float*, int)")
    assert metrics(tree, node)["count"] == watched.steps_watched
    assert 3 <= watched.steps_watched <= 5
    assert watched.losses == {}


def test_memory_is_bounded_whatever_the_number_of_records(cupti: Cupti) -> None:
    def act() -> None:
        for _ in range(40_000):
            cupti.launch()

    # 40,000 records fill three buffers, which come back to be used again.
    tree = collected(lambda: launch(act))
    (node,) = rows(tree, "square(float*, int)")
    assert metrics(tree, node)["count"] == 40_000
    assert len(tree) < 100


def test_records_may_come_on_another_thread_while_the_program_goes_on(cupti: Cupti) -> None:
    over = threading.Event()
    lock = threading.Lock()

    def deliver() -> None:
        while not over.is_set():
            with lock:
                cupti.library.fake_deliver()

    def act() -> None:
        for _ in range(2_000):
            # The fake itself is not safe for threads, the driver is.
            with lock:
                cupti.launch()

    def step() -> None:
        worker = threading.Thread(target=deliver)
        worker.start()
        for _ in range(5):
            launch(act)
            watcher.tree  # noqa: B018  # a snapshot while records come
        over.set()
        worker.join()

    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        step()
    (node,) = rows(watcher.tree, "square(float*, int)")
    assert metrics(watcher.tree, node)["count"] == 10_000
    assert losses(watcher.tree) == {}


def test_the_device_may_come_into_use_later(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", waiting.append)
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        launch(cupti.launch)
        waiting.pop()()
        launch(cupti.launch)
    (node,) = rows(watcher.tree, "square(float*, int)")
    assert metrics(watcher.tree, node)["count"] == 1
    watched = watcher.tree.info.watched
    assert watched is not None
    assert (watched.device, watched.losses) == ("collected", {})


def test_a_device_that_is_never_used_is_left_alone(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", waiting.append)
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        launch()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.device == "not collected: no device was used"
    # It comes into use when nobody watches any more.
    waiting.pop()()
    assert cupti.library.fake_subscribers() == 0


def test_a_device_held_by_another_profiler_is_read_through_windows(
    cupti: Cupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    cupti.library.fake_subscribe_result(39)
    watcher = lanewise.watch(measure=False, every=3, steps=1)
    with watcher:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        for _ in range(20):
            launch()
            watcher.step()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.way == "windows"
    assert "another profiler" in watched.reason


def test_native_only_collects_the_host_where_the_device_is_held(cupti: Cupti) -> None:
    cupti.library.fake_subscribe_result(39)
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        launch()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert "another profiler" in watched.device
    assert rows(watcher.tree, "lanewise_test::launch")


def test_a_device_is_not_touched_when_told_so(cupti: Cupti) -> None:
    watcher = lanewise.watch(measure=False, way="native", device=False)
    with watcher:
        launch(cupti.launch)
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.device == "not collected: device=False"
    assert not rows(watcher.tree, "square(float*, int)")


def test_a_library_that_fails_is_named(cupti: Cupti) -> None:
    cupti.library.fake_subscribe_result(15)
    watcher = lanewise.watch(measure=False, way="auto")
    with watcher:
        launch()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.way == "native"
    assert watched.device == "not collected: CUPTI does not work here: CUPTI_ERROR_OF_THE_TEST (15)"


def test_a_missing_library_is_said(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "cupti_library", lambda: "/nowhere/libcupti.so")
    watcher = lanewise.watch(measure=False, way="native")
    with watcher:
        launch()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.device == "not collected: CUPTI's library was not found"
