"""What a watched program did before its first step had ended stands apart, is left out of views, and can be put back."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.tree.tree_file import dumps, loads  # noqa: E402
from lanewise.tree.views import top_down  # noqa: E402
from lanewise.tree.watching.start_up import start_up_of, with_start_up  # noqa: E402
from tests.capture.context.paths import calls, names  # noqa: E402
from tests.support.command import lanewise as command  # noqa: E402

STEPS = 30


def slow_start(x: Any) -> None:
    """What a program does once."""
    x.erf()
    time.sleep(0.4)
    x.erf()


def watched(**options: Any) -> Any:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with lanewise.watch(measure=False, way="native", **options) as watcher:
        x = torch.ones(2, 4)
        slow_start(x)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    assert watcher.problem == ""
    return loads(dumps(watcher.tree))


def test_it_stands_apart_is_left_out_and_put_back() -> None:
    tree = watched()
    assert calls(tree, "aten::erf") == 2
    out = with_start_up(tree, "out")
    assert "<start-up>" in names(tree)
    assert {"<start-up>", "aten::erf"} & names(out) == set()
    # The first step is known only when it has ended.
    assert calls(out, "aten::linear") == STEPS - 1
    assert out.info.step_count == STEPS - 1
    early = int(tree.value("host")[start_up_of(tree)].sum())
    assert early > 0.4e9
    assert out.total("host") == tree.total("host") - early
    together = with_start_up(tree, "in")
    assert "<start-up>" not in names(together)
    assert calls(together, "aten::linear") == STEPS
    assert calls(together, "aten::erf") == 2
    assert together.total("host") == tree.total("host")
    assert together.info.step_count == STEPS
    assert with_start_up(tree, "apart") is tree


@pytest.mark.parametrize("placement", ["ran", "forward"])
def test_put_back_there_is_one_context_of_each_kind(placement: Any) -> None:
    tree = top_down(with_start_up(watched(), "in"), placement=placement)
    (linear,) = [node for node in range(len(tree)) if tree.label(node) == "aten::linear"]
    assert tree.metrics["calls"][linear] == STEPS


def test_backward_work_of_the_start_up_stays_there() -> None:
    tree = top_down(watched(), placement="forward")
    inside = start_up_of(tree)
    backward = [node for node in range(len(tree)) if tree.label(node).endswith(": AddmmBackward0")]
    found = {(bool(inside[node]), int(tree.metrics["calls"][node])) for node in backward}
    assert found == {(False, STEPS - 1), (True, 1)}


def test_without_steps_there_is_none() -> None:
    with lanewise.watch(measure=False, way="native") as watcher:
        slow_start(torch.ones(3))
    assert "<start-up>" not in names(watcher.tree)
    assert with_start_up(watcher.tree, "out") is watcher.tree


def test_a_program_of_one_step_is_shown() -> None:
    with lanewise.watch(measure=False, way="native") as watcher:
        torch.ones(3).erf()
        watcher.step()
    shown = with_start_up(watcher.tree, "out")
    assert calls(shown, "aten::erf") == 1


def test_the_command_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.lw"
    path.write_bytes(dumps(watched()))

    def said(*options: str) -> str:
        done = command("tree", path, "--min-share", "0", "-n", "1000", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.search(r"start-up left out: \d+(\.\d+)? ms of host time", said())
    assert "aten::erf" not in said()
    assert "aten::erf" in said("--start-up", "apart")
    assert "<start-up>" in said("--start-up", "apart")
    assert "<start-up>" not in said("--start-up", "in")
    assert "aten::erf" in said("--start-up", "in", "--by", "operator")
    assert "aten::erf" not in said("--by", "operator")
