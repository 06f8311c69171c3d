"""Finding steps in real torch programs, and leaving nothing behind."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as module_hooks  # noqa: E402
from torch.optim import optimizer as optimizer_hooks  # noqa: E402

from lanewise.capture.boundaries.finder import StepFinder  # noqa: E402
from lanewise.capture.boundaries.functions import FunctionSteps  # noqa: E402
from lanewise.capture.boundaries.module_names import SeenModules  # noqa: E402
from lanewise.capture.boundaries.step_boundaries import ForwardSteps  # noqa: E402
from lanewise.capture.schedule import Plan  # noqa: E402
from tests.capture.fakes import Bench  # noqa: E402


class Counter:
    """Counts boundaries, as a window would."""

    def __init__(self) -> None:
        self.bench = Bench(Plan(skip=10_000))
        self.problems: list[BaseException] = []
        self.finder = StepFinder(self.bench.window, self.problems.append)

    @property
    def steps(self) -> int:
        """Complete steps."""
        return max(self.bench.window.steps, 0)


@pytest.fixture
def counter() -> Iterator[Counter]:
    counting = Counter()
    yield counting
    counting.finder.uninstall()
    counting.finder.remove_late()
    assert counting.problems == []
    assert nothing_installed()


def nothing_installed() -> bool:
    frame: Any = sys.modules.get("torch._dynamo.eval_frame")
    dynamo: Any = sys.modules.get("torch._dynamo.callback")
    return (
        not module_hooks._global_forward_pre_hooks
        and not module_hooks._global_forward_hooks
        and not optimizer_hooks._global_optimizer_post_hooks
        and (dynamo is None or not dynamo.callback_handler.start_callbacks)
        and sys.getprofile() is None
        and torch.autograd.profiler.record_function.__exit__.__code__.co_name == "__exit__"
        and (frame is None or frame.OptimizedModule.__call__.__code__.co_name == "__call__")
    )


def no_shared_hook() -> bool:
    return not module_hooks._global_forward_pre_hooks


def mlp() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Any) -> Any:
        return self.inner(x) + x


def hooks_on(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def train(model: Any, optimizer: Any, steps: int, micro: int = 1) -> None:
    x = torch.ones(2, 8)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro):
            model(x).sum().backward()
        optimizer.step()


def test_training_steps_where_the_optimizer_does(counter: Counter) -> None:
    counter.finder.install()
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 10)
    assert (counter.finder.source, counter.finder.label, counter.steps) == ("optimizer", "SGD", 9)


def test_gradient_accumulation_is_one_step(counter: Counter) -> None:
    counter.finder.install()
    model = mlp()
    train(model, torch.optim.AdamW(model.parameters()), 6, micro=5)
    assert (counter.finder.source, counter.steps) == ("optimizer", 5)


def test_two_optimizers_in_turn_make_one_step_per_turn(counter: Counter) -> None:
    counter.finder.install()
    generator, critic = mlp(), mlp()
    first, second = torch.optim.SGD(generator.parameters(), 0.1), torch.optim.Adam(critic.parameters())
    for _ in range(7):
        for model, optimizer in ((critic, second), (generator, first)):
            train(model, optimizer, 1)
    assert (counter.finder.label, counter.steps) == ("Adam", 6)


def test_inference_steps_at_the_outermost_module(counter: Counter) -> None:
    counter.finder.install()
    model, x = mlp().eval(), torch.ones(2, 8)
    with torch.no_grad():
        for _ in range(10):
            model(x)
    # The first call makes the model known, the second is the first boundary, the tenth the last: eight steps between.
    assert (counter.finder.source, counter.finder.label, counter.steps) == ("forward", "Sequential", 8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_takes_no_hooks_and_runs_as_without_us(counter: Counter) -> None:
    model, x = torch.jit.trace(mlp().eval(), torch.ones(2, 8)), torch.ones(2, 8)
    counter.finder.install()
    assert all(torch.equal(model(x), model(x)) for _ in range(3))
    assert counter.steps == 0


def test_a_module_called_once_is_no_step(counter: Counter) -> None:
    counter.finder.install()
    embedding, model, loss = nn.Linear(8, 8), mlp(), nn.MSELoss()
    x = torch.ones(2, 8)
    with torch.no_grad():
        x = embedding(x)
        for _ in range(5):
            loss(model(x), x)
    assert (counter.finder.label, counter.steps) == ("Sequential", 3)
    assert hooks_on(embedding) == hooks_on(loss) == 0


def test_inference_without_no_grad_is_counted_late_but_counted(counter: Counter) -> None:
    counter.finder.install()
    model, x = mlp(), torch.ones(2, 8)
    for _ in range(20):
        model(x)
    assert (counter.finder.source, counter.steps) == ("forward", 20 - 2 - 8)


def test_the_programs_own_word_counts_most(counter: Counter) -> None:
    counter.finder.install()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, 3)
    for _ in range(4):
        train(model, optimizer, 1)
        counter.finder.call()
    assert (counter.finder.source, counter.steps) == ("call", 3)


def test_nothing_is_left_after_uninstall(counter: Counter) -> None:
    counter.finder.install()
    model, x = mlp(), torch.ones(2, 8)
    model(x)
    assert not nothing_installed()
    counter.finder.uninstall()
    assert nothing_installed()


def test_uninstalling_inside_a_hook_does_not_break_the_loop_over_hooks(counter: Counter) -> None:
    seen: list[str] = []
    theirs = optimizer_hooks.register_optimizer_step_post_hook(lambda *_: seen.append("theirs"))
    counter.finder.install()
    original = counter.bench.window.boundary

    def boundary() -> None:
        original()
        counter.finder.uninstall()

    counter.bench.window.boundary = boundary  # type: ignore[method-assign]
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
    assert seen == ["theirs"] * 3
    theirs.remove()


def test_hooks_registered_later_survive_our_leaving(counter: Counter) -> None:
    counter.finder.install()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, 2)
    counter.finder.uninstall()
    seen: list[int] = []
    handle = optimizer_hooks.register_optimizer_step_post_hook(lambda *_: seen.append(1))
    train(model, optimizer, 2)
    handle.remove()
    train(model, optimizer, 2)
    assert seen == [1, 1]


def test_a_copied_or_pickled_model_carries_nothing_of_ours(counter: Counter) -> None:
    counter.finder.install()
    model, x = mlp(), torch.ones(2, 8)
    with torch.no_grad():
        model(x)
        assert hooks_on(model) == 0
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU]):
            loaded = torch.load(buffer, weights_only=True)
        copied, unpickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        expected = model(x)
        before = counter.steps
        for other in (loaded, copied, unpickled):
            assert torch.equal(other(x), expected)
            assert torch.equal(other(x), expected)
        assert counter.steps == before


def _scripted(model: Any, x: Any) -> Any:
    return torch.jit.script(model)


def _traced(model: Any, x: Any) -> Any:
    return torch.jit.trace(model, x)


def _exported(model: Any, x: Any) -> Any:
    return torch.export.export(model, (x,)).module()


def _replica(model: Any, x: Any) -> Any:
    return model._replicate_for_data_parallel()


def _symbolic(model: Any, x: Any) -> Any:
    return torch.fx.symbolic_trace(model)


def _saved_in_a_hook(model: Any, x: Any) -> Any:
    """While the model runs, and so while our hook is away."""
    buffer = io.BytesIO()
    handle = model[1].register_forward_hook(lambda *_: torch.save(model[0], buffer))
    model(x)
    handle.remove()
    buffer.seek(0)
    with torch.serialization.safe_globals([nn.Linear]):
        assert torch.equal(torch.load(buffer, weights_only=True)(x), model[0](x))
    return model


@pytest.mark.parametrize("made", [_scripted, _traced, _exported, _replica, _symbolic, _saved_in_a_hook])
@pytest.mark.parametrize("calls", [0, 1, 4])
def test_what_is_made_of_a_model_is_what_it_is_without_us(made: Any, calls: int, counter: Counter) -> None:
    counter.finder.install()
    model, x = mlp().eval(), torch.ones(2, 8)
    with torch.no_grad():
        for _ in range(calls):
            model(x)
        expected, graph = model(x), made(model, x)
        assert hooks_on(model) == 0
        if made is not _replica:
            assert torch.equal(graph(x), expected)


def test_modules_inside_of_a_step_run_without_a_hook(counter: Counter) -> None:
    """The shared hook would cost every module inside; and a call inside must not pass for a step."""
    seen: list[bool] = []
    model, x = mlp().eval(), torch.ones(2, 8)
    counter.finder.install()
    handle = model[0].register_forward_hook(lambda *_: seen.append(no_shared_hook()))
    with torch.no_grad():
        for _ in range(3):
            model(x)
            assert not no_shared_hook()
    handle.remove()
    assert seen == [True] * 3
    assert counter.steps == 1


def test_a_scripted_model_makes_steps(counter: Counter) -> None:
    model, x = torch.jit.script(mlp().eval()), torch.ones(2, 8)
    counter.finder.install()
    with torch.no_grad():
        for _ in range(5):
            model(x)
    assert (counter.finder.source, counter.steps) == ("forward", 3)


def test_a_model_that_raises_is_left_properly(counter: Counter) -> None:
    class Fragile(nn.Module):
        def forward(self, x: Any) -> Any:
            if x.sum() < 0:
                raise ValueError("negative")
            return x

    counter.finder.install()
    model = Fragile()
    for value in (1.0, -1.0, 1.0, -1.0, 1.0):
        try:
            with torch.no_grad():
                model(torch.full((2,), value))
        except ValueError:
            continue
    assert counter.steps == 3


def test_models_are_not_kept_alive(counter: Counter) -> None:
    counter.finder.install()
    import weakref

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, 3)
    alive = weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("how", ["wrapper", "in place", "function"])
def test_compiled_programs_compile_as_they_would_without_us(counter: Counter, how: str) -> None:
    import torch._dynamo as dynamo

    dynamo.reset()
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(len(list(graph.graph.nodes)))
        return graph.forward

    counter.finder.install()
    # A class of the program's own: torch leaves its own containers uncompiled when compiled in place.
    model, x = Net().eval(), torch.ones(2, 8)
    if how == "wrapper":
        call = torch.compile(model, backend=backend)
    elif how == "in place":
        model.compile(backend=backend)
        call = model
    else:
        call = torch.compile(lambda x: model(x) + 1, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            call(x)
        counter.finder.uninstall()
        for _ in range(3):
            call(x)
    assert len(compiled) == 1, "compiled again because of us"
    if how == "wrapper":
        assert counter.steps == 4
    dynamo.reset()


def test_an_eager_call_before_the_compiled_one_leaves_no_hook_for_the_compiler(counter: Counter) -> None:
    import torch._dynamo as dynamo

    dynamo.reset()
    counter.finder.install()
    compiled: list[int] = []
    model, x = mlp().eval(), torch.ones(2, 8)
    call = torch.compile(model, backend=lambda graph, _: (compiled.append(1), graph.forward)[1], fullgraph=True)
    with torch.no_grad():
        model(x)
        for _ in range(5):
            call(x)
    assert (len(compiled), counter.steps) == (1, 3)
    dynamo.reset()


@pytest.mark.parametrize("target", ["step", "Trainer.step", "steps_target_module:step"])
def test_a_named_function_makes_steps(counter: Counter, target: str) -> None:
    import types

    name = target.rpartition(":")[0] or "__main__"
    namespace = types.ModuleType(name)
    source = "class Trainer:\n    def step(self): return 1\ndef step(): return Trainer().step()\n"
    exec(compile(source, "<program>", "exec"), namespace.__dict__)
    call: Callable[[], Any] = namespace.Trainer().step if target == "Trainer.step" else namespace.step
    counter.finder.install([lambda found: FunctionSteps(found, target)])
    for _ in range(6):
        call = namespace.Trainer().step if target == "Trainer.step" else namespace.step
        assert call() == 1
    assert (counter.finder.source, counter.finder.label) == ("function", target)
    assert counter.steps == 5
    counter.finder.uninstall()
    assert namespace.step.__code__.co_name == "step"
    assert namespace.Trainer.step.__code__.co_name == "step"


def test_functions_of_the_same_name_elsewhere_do_not_count(counter: Counter) -> None:
    def step() -> None:
        """Ours is not in the script."""

    counter.finder.install([lambda found: FunctionSteps(found, "step")])
    for _ in range(5):
        step()
    assert counter.steps == 0


def test_an_error_of_ours_never_reaches_the_program() -> None:
    counting = Counter()

    def broken() -> None:
        raise RuntimeError("ours")

    counting.bench.window.boundary = broken  # type: ignore[method-assign]
    counting.finder.install()
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
    assert [str(error) for error in counting.problems] == ["ours"] * 3
    counting.finder.uninstall()
    counting.finder.remove_late()


def test_finding_steps_costs_less_than_a_hundredth_of_a_millisecond_step() -> None:
    counting = Counter()
    model = nn.Identity().eval()
    x = torch.ones(1)

    def cost(count: int = 200) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            model(x)
        return (time.perf_counter_ns() - begin) / count

    # The least of many short rounds: some of them fall between whatever else the machine does.
    with torch.no_grad():
        plain = min(cost() for _ in range(60))
        counting.finder.install()
        cost(20)
        found = min(cost() for _ in range(60))
    assert isinstance(counting.finder._current, ForwardSteps)
    counting.finder.uninstall()
    counting.finder.remove_late()
    # 10 us, or on a machine that is busy with other things as many times the call of an empty module.
    assert found - plain < max(10_000, 8 * plain), f"{(found - plain) / 1000:.2f} us per step"


# -- names of modules ------------------------------------------------------------------------------------------------


NET = [("", "Net"), ("inner", "Sequential"), ("inner.0", "Linear"), ("inner.1", "ReLU"), ("inner.2", "Linear")]


def test_the_modules_of_a_training_program_are_known_by_path(counter: Counter) -> None:
    counter.finder.install()
    model, loss = Net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        loss(model(torch.ones(2, 8)), torch.ones(2, 8)).backward()
        optimizer.step()
    assert counter.finder.source == "optimizer"
    assert counter.finder.modules() == [*NET, ("", "MSELoss")]


def test_modules_are_known_where_a_function_makes_the_steps(counter: Counter) -> None:
    net = Net()
    namespace: dict[str, Any] = {"__name__": "__main__", "net": net, "x": torch.ones(2, 8)}
    exec("def step(): net(x)\ndef steps(n):\n  for _ in range(n): step()", namespace)
    counter.finder.install([lambda found: FunctionSteps(found, "step")])
    with torch.no_grad():
        namespace["steps"](5)
    assert (counter.finder.source, counter.steps) == ("function", 4)
    assert counter.finder.modules() == NET
    assert hooks_on(net) == 0


def test_calls_of_modules_are_no_steps_where_a_function_was_named_that_is_never_called(counter: Counter) -> None:
    counter.finder.install([lambda found: FunctionSteps(found, "nosuch")])
    with torch.no_grad():
        net = Net()
        for _ in range(20):
            net(torch.ones(2, 8))
    assert (counter.finder.source, counter.steps) == ("none", 0)


def test_listing_modules_keeps_none_alive_and_stays_small() -> None:
    seen = SeenModules()
    seen.add(model := Net())
    seen.add(model)
    assert seen.listed() == NET
    wide = nn.ModuleList(nn.Identity() for _ in range(30_000))
    seen.add(wide)
    assert seen.listed() == NET
    del model
    gc.collect()
    assert seen.listed() == []


def test_a_module_whose_names_cannot_be_read_is_left_out() -> None:
    class Odd(nn.Module):
        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no")

    seen = SeenModules()
    odd, net = Odd(), Net()
    seen.add(odd)
    seen.add(net)
    assert seen.listed() == NET
