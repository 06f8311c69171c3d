"""The native collector: what it sees of operators, frames, modules, scopes, threads and the backward pass."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import lanewise  # noqa: E402
from lanewise.capture.context import native_build as build  # noqa: E402
from lanewise.capture.context.checks.frame_checks import first_difference  # noqa: E402
from lanewise.capture.context.loops import loops  # noqa: E402
from lanewise.tree.model import NodeKind, Phase, Tree  # noqa: E402
from lanewise.tree.views import top_down  # noqa: E402
from tests.capture.context.paths import above, calls, names, paths, rows  # noqa: E402


def collected(work: Callable[[], Any], **options: Any) -> Tree:
    watcher = lanewise.watch(measure=False, way="native", **options)
    with watcher:
        work()
    assert watcher.problem == ""
    return watcher.tree


def losses(tree: Tree) -> dict[str, int]:
    assert tree.info.watched is not None
    return tree.info.watched.losses


def mlp() -> tuple[Any, Any, Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8)


def train(model: Any, optimizer: Any, x: Any, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


# -- operators, frames, modules ----------------------------------------------------------------------------------------


def test_every_operator_is_counted_at_its_function() -> None:
    x = torch.ones(3)

    def inner() -> None:
        for _ in range(7):
            torch.add(x, x)

    def outer() -> None:
        inner()
        torch.mul(x, x)

    tree = collected(outer)
    assert calls(tree, "aten::add") == 7
    assert calls(tree, "aten::mul") == 1
    (node,) = rows(tree, "aten::add")
    chain = [text.rpartition(": ")[2] for text in above(tree, node)]
    assert chain[:3] == ["aten::add", "inner", "outer"]
    assert chain[-1] == "main thread"
    assert losses(tree) == {}


def test_the_raw_walk_agrees_with_python() -> None:
    module = build.load()
    assert first_difference(lambda: module.frames(True)) == ""
    assert first_difference(lambda: module.frames(False)) == ""


def test_a_walk_that_is_wrong_is_noticed() -> None:
    module = build.load()
    assert "wrong" in first_difference(lambda: module.frames(True)[:4] + module.frames(True)[5:])
    assert "wrong" in first_difference(lambda: [(code, offset + 2, s) for code, offset, s in module.frames(True)])

    def broken() -> Any:
        raise RuntimeError

    assert "failed" in first_difference(broken)


def test_the_public_walk_gives_the_same_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.capture.context import native

    model, optimizer, x = mlp()
    train(model, optimizer, x, 2)

    def work() -> None:
        train(model, optimizer, x, 3)

    collected(work)
    assert native._found_out is not None
    trees: list[Tree] = []
    for walk in (native._found_out.walk, native._found_out.walk, "public"):  # on one line: lines are part of a context
        monkeypatch.setattr(native._found_out, "walk", walk)
        trees.append(collected(work))
    raw, same, public = trees
    assert public.info.watched is not None
    assert public.info.watched.frames == "public"
    # Compared as numbers: an explanation of two thousand differing paths takes minutes.
    assert len(paths(raw).keys() ^ paths(same).keys()) == 0
    assert len(paths(top_down(raw)).keys() ^ paths(top_down(public)).keys()) == 0


def test_layers_of_a_loop_stay_apart() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    net, x = Net(), torch.ones(1, 4)
    tree = collected(lambda: net(x))
    modules = {tree.label(node) for node in range(len(tree)) if tree.kind[node] == NodeKind.MODULE}
    assert modules == {"Net", "layers.0", "layers.1", "layers.2"}


def test_a_module_at_the_address_of_a_dead_one_has_its_own_name() -> None:
    x = torch.ones(1, 4)

    def call(make: Callable[[], Any]) -> None:
        module = make()
        module(x)
        del module
        gc.collect()

    def work() -> None:
        for _ in range(20):
            call(lambda: nn.Sequential(nn.Linear(4, 4)))
            call(lambda: nn.Sequential(nn.Bilinear(4, 4, 4), nn.Identity()) and nn.ReLU())

    tree = collected(work)
    classes = {tree.strings[int(tree.detail[node])] for node in range(len(tree)) if tree.kind[node] == NodeKind.MODULE}
    assert classes == {"Sequential", "Linear", "ReLU"}
    # Contexts do not grow with the number of networks that came and went.
    assert len(rows(top_down(tree), "aten::linear")) == 1


def test_contexts_do_not_grow_with_steps() -> None:
    model, optimizer, x = mlp()
    train(model, optimizer, x, 3)
    few, many = (collected(lambda: train(model, optimizer, x, steps)) for steps in (5, 200))  # noqa: B023
    assert paths(few).keys() == paths(many).keys()
    assert calls(many, "aten::addmm") == 40 * calls(few, "aten::addmm")


def test_lines_tell_calls_apart() -> None:
    x = torch.ones(2)

    def work() -> None:
        torch.add(x, x)
        torch.add(x, x)

    assert len(rows(collected(work), "aten::add")) == 1
    tree = collected(work, lines=True)
    assert len(rows(tree, "aten::add")) == 2


def test_time_is_that_of_the_program() -> None:
    x = torch.randn(300, 300)

    def work() -> None:
        for _ in range(10):
            torch.mm(x, x)

    tree = collected(work)
    assert tree.info.watched is not None
    total = tree.total("host") / 1e9
    (mm,) = rows(tree, "aten::mm")
    assert 0 < int(tree.metrics["host"][mm]) <= tree.total("host")
    assert total <= tree.info.watched.seconds * 1.05


# -- scopes ------------------------------------------------------------------------------------------------------------


def test_frames_inside_a_scope_stand_below_it() -> None:
    x = torch.ones(2)

    def inside() -> None:
        torch.add(x, x)

    def work() -> None:
        for number in range(3):
            with torch.profiler.record_function(f"part#{number}"):
                inside()

    tree = collected(work)
    (node,) = rows(tree, "aten::add")
    chain = [text.rpartition(": ")[2] for text in above(tree, node)]
    assert chain[:4] == ["aten::add", "inside", "part#*", "work"]
    assert calls(tree, "part#*") == 3


def test_a_scope_from_a_generator_holds_what_is_inside() -> None:
    x = torch.ones(2)

    @contextlib.contextmanager
    def region() -> Generator[None]:
        with torch.profiler.record_function("region"):
            yield

    def work() -> None:
        with region():
            torch.add(x, x)
        torch.mul(x, x)

    tree = collected(work)
    assert "region" in above(tree, rows(tree, "aten::add")[0])
    assert "region" not in above(tree, rows(tree, "aten::mul")[0])


def test_exceptions_through_scopes_and_operators_leave_the_stack_right() -> None:
    x = torch.ones(2, 3)

    def work() -> None:
        for _ in range(3):
            with contextlib.suppress(RuntimeError), torch.profiler.record_function("bad"):
                torch.mm(x, x)
            torch.add(x, x)

    tree = collected(work)
    (node,) = rows(tree, "aten::add")
    assert "bad" not in above(tree, node)
    assert calls(tree, "aten::add") == 3
    assert build.load().open_contexts() == 0


def test_scopes_closed_out_of_order_and_elsewhere() -> None:
    x = torch.ones(2)

    def scope(name: str) -> Any:
        opened = torch.profiler.record_function(name)
        opened.__enter__()
        return opened

    def work() -> None:
        first, second = scope("first"), scope("second")
        first.__exit__(None, None, None)
        torch.add(x, x)
        second.__exit__(None, None, None)
        third = scope("third")
        other = threading.Thread(target=lambda: third.__exit__(None, None, None))
        other.start()
        other.join()
        torch.mul(x, x)

    tree = collected(work)
    assert above(tree, rows(tree, "aten::mul")[0])[1].endswith("work")
    assert losses(tree)["scopes_out_of_order"] == 1
    assert losses(tree)["scopes_elsewhere"] == 1
    assert build.load().open_contexts() == 0


# -- backward ----------------------------------------------------------------------------------------------------------


def assert_all_linked(tree: Tree, at_least: int = 1) -> None:
    assert tree.info.backward >= at_least
    assert tree.info.linked == tree.info.backward


def test_backward_work_belongs_to_its_forward_operator() -> None:
    model, optimizer, x = mlp()
    tree = collected(lambda: train(model, optimizer, x, 3))
    assert_all_linked(tree, 3 * 6)
    shown = top_down(tree)
    backward = rows(shown, "autograd::engine::evaluate_function: AddmmBackward0")
    assert [node for node in backward if "2" in above(shown, node)], "the second layer has its backward work below it"
    phases = {int(shown.phase[node]) for node in backward}
    assert phases == {Phase.BACKWARD}


def test_optimizer_and_forward_phases() -> None:
    model, optimizer, x = mlp()
    tree = collected(lambda: train(model, optimizer, x, 3))
    assert {int(tree.phase[node]) for node in rows(tree, "aten::addmm")} == {Phase.FORWARD}
    # A reduction after the network is forward work by its place between forward operators.
    assert {int(tree.phase[node]) for node in rows(tree, "aten::mean")} == {Phase.FORWARD}
    assert {int(tree.phase[node]) for node in rows(tree, "Optimizer.step#SGD.step")} == {Phase.OPTIMIZER}


def test_retained_graph_links_twice() -> None:
    model, _, x = mlp()

    def work() -> None:
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    assert_all_linked(collected(work), 8)


def test_double_backward_links() -> None:
    x = torch.randn(4, requires_grad=True)

    def work() -> None:
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        gradient.sum().backward()

    assert_all_linked(collected(work), 4)


def test_recomputation_is_a_phase_of_its_own_and_links() -> None:
    model, _, x = mlp()
    x = x.requires_grad_()

    def work() -> None:
        checkpoint(model, x, use_reentrant=False).sum().backward()

    tree = collected(work)
    assert_all_linked(tree, 4)
    assert Phase.RECOMPUTE in {int(tree.phase[node]) for node in rows(tree, "aten::addmm")}


def test_two_forward_threads_link() -> None:
    model, _, x = mlp()

    def one() -> None:
        for _ in range(5):
            model(x).sum().backward()

    def work() -> None:
        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    tree = collected(work)
    assert_all_linked(tree, 40)
    assert "other threads" in names(tree)


def test_forward_here_backward_there() -> None:
    model, _, x = mlp()

    def work() -> None:
        loss = model(x).sum()
        other = threading.Thread(target=loss.backward)
        other.start()
        other.join()

    assert_all_linked(collected(work), 4)


# -- threads, bounds, life cycle ---------------------------------------------------------------------------------------


def test_threads_that_end_leave_their_costs_and_no_memory() -> None:
    x = torch.ones(2)
    module = build.load()

    def work() -> None:
        for _ in range(300):
            thread = threading.Thread(target=lambda: torch.add(x, x))
            thread.start()
            thread.join()

    tree = collected(work)
    assert calls(tree, "aten::add") == 300
    assert losses(tree) == {}
    assert len(module.snapshot()["threads"]) < 10


def test_many_threads_at_once_while_the_tree_is_read() -> None:
    x = torch.ones(2)
    watcher = lanewise.watch(measure=False, way="native")

    def one() -> None:
        for _ in range(400):
            torch.add(x, x)

    with watcher:
        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        seen = [calls(watcher.tree, "aten::add") for _ in range(5)]
        for thread in threads:
            thread.join()
    assert calls(watcher.tree, "aten::add") == 3200
    assert seen == sorted(seen)


def test_contexts_beyond_the_limit_are_counted() -> None:
    x = torch.ones(2)
    functions = []
    for number in range(1500):
        space: dict[str, Any] = {"torch": torch, "x": x}
        exec(f"def f{number}():\n    torch.add(x, x)", space)
        functions.append(space[f"f{number}"])

    tree = collected(lambda: [function() for function in functions], max_nodes=1000)
    assert len(tree) <= 1010
    assert losses(tree)["truncated"] > 0
    assert "<truncated>" in names(tree)
    # Nothing is lost: every call is somewhere.
    assert calls(tree, "aten::add") + calls(tree, "<truncated>") == 1500


def test_truncated_operators_without_frames_are_counted_each_time() -> None:
    x = torch.ones(2)

    def work() -> None:
        for at in range(1200):
            with torch.profiler.record_function("scope " + "x" * at):
                pass
        for _ in range(60):
            torch.sin(x)

    tree = collected(work, max_nodes=1000, frames=False)
    before = losses(tree)["truncated"] - 60
    assert before >= 200
    assert calls(tree, "aten::sin") == 0
    assert calls(tree, "<truncated>") == before + 60


def test_operators_that_do_not_always_come_are_told_apart() -> None:
    x = torch.ones(2)

    def work() -> None:
        for at in range(120):
            # One line, and one context for all: what comes next is guessed from what came last time.
            for operator in [
                torch.sin,
                *([torch.cos] * (at % 2)),
                torch.exp,
                *([torch.neg, torch.erf] * (at % 3 == 0)),
            ]:
                operator(x)

    for frames in (True, False):
        tree = collected(work, frames=frames)
        counts = [calls(tree, f"aten::{name}") for name in ("sin", "cos", "exp", "neg", "erf")]
        assert counts == [120, 60, 120, 40, 40]
        for name in ("sin", "cos", "exp", "neg", "erf"):
            assert len(rows(tree, f"aten::{name}")) == 1


def test_overloads_and_operators_that_come_and_go_keep_their_names() -> None:
    """Names of torch's own operators are known again by their addresses; two overloads of one name have two, and a name
    of an operator that is taken back leaves its address to another."""
    x = torch.ones(3)

    def overloads() -> None:
        for _ in range(5):
            torch.ops.aten.add.Tensor(x, x)
            torch.ops.aten.add.Scalar(x, 1)
            torch.ops.aten.mul.Tensor(x, x)

    def come_and_go() -> None:
        for number in range(6):
            library = torch.library.Library(f"lanewise_test{number}", "DEF")
            library.define("kept(Tensor x) -> Tensor")
            library.impl("kept", lambda tensor: tensor, "CompositeExplicitAutograd")
            getattr(torch.ops, f"lanewise_test{number}").kept(x)
            library._destroy()
            del library

    def work() -> None:
        overloads()
        come_and_go()

    tree = collected(work)
    # The one with a number calls the one with a tensor.
    assert (calls(tree, "aten::add"), calls(tree, "aten::mul")) == (15, 5)
    assert (len(rows(tree, "aten::add")), len(rows(tree, "aten::mul"))) == (2, 1)
    assert [calls(tree, f"lanewise_test{number}::kept") for number in range(6)] == [1] * 6


def test_deep_stacks_keep_both_ends() -> None:
    x = torch.ones(2)

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            torch.add(x, x)

    tree = collected(lambda: deep(400))
    (node,) = rows(tree, "aten::add")
    chain = above(tree, node)
    assert len(chain) < 140
    assert "<depth>" in chain
    assert chain[-1] == "main thread"
    assert losses(tree)["depth_cut"] > 250


def test_a_thousand_starts_leave_nothing() -> None:
    module = build.load()
    x = torch.ones(2)
    for _ in range(300):
        module.begin()
        module.on()
        torch.add(x, x)
        module.off()
    module.on()
    with pytest.raises(RuntimeError, match="running"):
        module.begin()
    module.off()
    torch.add(x, x)
    (thread,) = module.snapshot()["threads"]
    assert thread["callbacks"] <= 1


def test_no_frames_if_not_wanted() -> None:
    model, optimizer, x = mlp()
    tree = collected(lambda: train(model, optimizer, x, 2), frames=False)
    assert not tree.info.frames
    assert NodeKind.FRAME not in set(tree.kind.tolist())
    assert_all_linked(tree, 8)


def test_a_busy_python_thread_does_not_raise_the_cost() -> None:
    x = torch.ones(1)
    over = False

    def spin() -> None:
        while not over:
            pass

    def work() -> float:
        # Once the paths are known, no operator waits for the lock of Python on our behalf.
        begin = time.perf_counter()
        for _ in range(20):
            torch._foreach_add([x] * 500, 1.0)
        return time.perf_counter() - begin

    old = sys.getswitchinterval()
    sys.setswitchinterval(0.05)
    thread = threading.Thread(target=spin)
    try:
        with lanewise.watch(measure=False, way="native"):
            work()
        thread.start()
        # Each call of torch waits for the lock once, whoever watches.
        alone = work()
        with lanewise.watch(measure=False, way="native"):
            work()
            busy = work()
    finally:
        over = True
        thread.join()
        sys.setswitchinterval(old)
    assert build.load().raw_frames
    # 10,000 operators in 20 calls: waiting for the lock at each would take 500 times as long.
    assert busy < 25 * alone


def own_time(tree: Tree) -> dict[str, float]:
    """Host time of each function's own, ms."""
    spent: dict[str, float] = {}
    for node in range(len(tree)):
        label = tree.label(node).rpartition(": ")[2]
        spent[label] = spent.get(label, 0.0) + float(tree.metrics["host"][node]) / 1e6
    return spent


@pytest.mark.parametrize("in_module", [False, True])
def test_time_between_two_calls_is_that_of_whoever_goes_around(in_module: bool) -> None:
    x = torch.ones(2)

    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.sin(x)
            return torch.cos(y)

    net = Net()

    def handle() -> None:
        if in_module:
            net(x)
        else:
            torch.sin(x)
            torch.cos(x)

    def passes_on() -> None:
        handle()

    def waits() -> None:
        for _ in range(4):
            passes_on()
            time.sleep(0.03)

    spent = own_time(collected(waits))
    assert spent["waits"] > 85
    # Else it would be the other way round. On a busy machine the handler takes a while, too.
    assert spent["handle"] + spent.get("forward", 0) + spent["passes_on"] < spent["waits"]


def test_time_between_rounds_of_a_loop_is_that_of_its_function() -> None:
    x = torch.ones(2)

    def goes_around() -> None:
        for _ in range(4):
            torch.sin(x)
            torch.cos(x)
            time.sleep(0.03)

    def calls() -> None:
        for _ in range(2):
            goes_around()

    spent = own_time(collected(calls))
    assert spent["goes_around"] > 200
    assert spent["calls"] < spent["goes_around"]


def test_loops_of_functions() -> None:
    def straight(x: int) -> int:
        try:
            return x + 1
        except ValueError:
            return x

    def around(xs: list[int]) -> int:
        total = 0
        for x in xs:
            while x:
                x -= 1
            total += x
        return total

    assert loops(straight.__code__) == ()
    found = loops(around.__code__)
    stretches = list(zip(found[::2], found[1::2], strict=True))
    assert len(stretches) >= 2
    assert all(0 < begin < end < len(around.__code__.co_code) for begin, end in stretches)
    outer = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
    assert all(outer[0] <= begin and end <= outer[1] for begin, end in stretches)


def test_time_between_two_lines_is_that_of_their_function() -> None:
    x = torch.ones(2)

    def slow_between() -> None:
        torch.add(x, x)
        time.sleep(0.05)
        torch.mul(x, x)

    tree = collected(slow_between)
    spent = {tree.label(node).rpartition(": ")[2]: int(tree.metrics["host"][node]) for node in range(len(tree))}
    assert spent["slow_between"] > 45e6
    assert tree.total("host") - spent["slow_between"] < spent["slow_between"]
