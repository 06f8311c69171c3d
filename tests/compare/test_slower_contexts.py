"""Places that became slower: planted ones are named, healthy runs are silent however much the machine differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.compare.budget import parse_budgets
from lanewise.errors import UsageError
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.slowing.slower_contexts import RUNS, slower_contexts
from lanewise.tree.tree_file import load, save
from lanewise.tree.watching.start_up import with_start_up
from tests.support.corpus import REPOSITORY

WATCHED = REPOSITORY / "tests" / "data" / "watched"


def base() -> Tree:
    return with_start_up(load(WATCHED / "resnet.lw"), "out")


def changed(tree: Tree, **factors: np.ndarray | float) -> Tree:
    metrics = {
        name: np.round(values * factors.get(name, 1.0)).astype(values.dtype) for name, values in tree.metrics.items()
    }
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=metrics, info=tree.info,
    )  # fmt: skip


def runs(tree: Tree, seed: int, number: int = RUNS) -> list[Tree]:
    """As processes differ: the whole by a third, each place by some percent more."""
    made = np.random.default_rng(seed)
    return [
        changed(tree, host=made.uniform(0.8, 1.2) * made.normal(1, 0.04, len(tree)).clip(0.5)) for _ in range(number)
    ]


def of_module(tree: Tree, name: str) -> np.ndarray:
    from lanewise.tree.forest import nearest_marked

    named = (tree.kind == NodeKind.MODULE) & np.array([tree.label(n) == name for n in range(len(tree))])
    assert named.any()
    return nearest_marked(tree.parent, named) >= 0


@pytest.mark.parametrize("seed", range(25))
def test_healthy_runs_are_silent(seed: int) -> None:
    tree = base()
    assert slower_contexts(runs(tree, 2 * seed), runs(tree, 2 * seed + 1), increase=0.10) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_place_that_became_slower_is_named_and_no_other(seed: int) -> None:
    tree = base()
    inside = of_module(tree, "conv1")
    dearer = changed(tree, host=np.where(inside, 3.0, 1.0))
    found = slower_contexts(runs(tree, seed), runs(dearer, 100 + seed), increase=0.10)
    assert [place for place in found if place.decided]
    assert all("conv1" in place.path for place in found)
    assert found[0].what == "host time"
    assert found[0].after / found[0].before > 1.5


def test_device_time_has_its_own_places() -> None:
    tree = base()
    inside = of_module(tree, "conv1")
    dearer = changed(tree, device=np.where(inside, 2.0, 1.0))
    found = slower_contexts(runs(tree, 1), runs(dearer, 2), increase=0.10)
    assert {place.what for place in found} == {"device time"}
    assert all("conv1" in place.path for place in found)


def test_a_machine_that_is_slower_as_a_whole_is_no_place() -> None:
    tree = base()
    assert slower_contexts(runs(tree, 1), runs(changed(tree, host=1.8, device=1.5), 2), increase=0.10) == []


def test_one_run_a_side_leaves_a_time_undecided() -> None:
    tree = base()
    dearer = changed(tree, host=np.where(of_module(tree, "conv1"), 3.0, 1.0))
    found = slower_contexts([tree], [dearer], increase=0.10)
    assert found
    assert not any(place.decided for place in found)


def test_calls_are_exact_and_one_run_is_enough() -> None:
    tree = base()
    more = changed(
        tree, calls=np.where(of_module(tree, "fc"), 3.0, 1.0), host=np.where(of_module(tree, "fc"), 3.0, 1.0)
    )
    calls = [place for place in slower_contexts([tree], [more], increase=0.10) if place.what == "calls"]
    assert calls
    assert all(place.decided and "fc" in place.path for place in calls)
    assert calls[0].after == pytest.approx(3 * calls[0].before)


def test_a_tree_without_steps_is_refused() -> None:
    with pytest.raises(UsageError, match="--step-on"):
        slower_contexts([load(WATCHED / "attention.lw")], [load(WATCHED / "attention.lw")], increase=0.1)


def test_the_budget_in_the_file() -> None:
    (budget,) = parse_budgets({"contexts": {"max_increase": "10 %", "level": "warn"}})
    assert (budget.increase, budget.level, budget.needs_baseline) == (0.10, "warn", True)
    assert parse_budgets({"contexts": "5 %"})[0].increase == 0.05
    for wrong in ({"contexts": {"max": 3}}, {"contexts": {"max_increase": "5 %", "of": "x"}}, {"contexts": 7}):
        with pytest.raises(UsageError):
            parse_budgets(wrong)


def check(folder: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["check", *words, "--budget", str(folder / "lanewise.toml")])
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def test_the_command_alerts_with_the_place_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "lanewise.toml").write_text('[budget]\ncontexts = { max_increase = "10 %" }\nforbid = ["SYN103"]\n')
    tree = base()
    dearer = changed(tree, host=np.where(of_module(tree, "conv1"), 3.0, 1.0))
    for name, made in {"old": runs(tree, 1), "same": runs(tree, 2), "new": runs(dearer, 3)}.items():
        (tmp_path / name).mkdir()
        for number, each in enumerate(made):
            save(each, tmp_path / name / f"{number}.lw")
    old = ("--baseline", str(tmp_path / "old"))
    (tmp_path / "only.toml").write_text('[budget]\ncontexts = "10 %"\n')
    code, text = check(tmp_path, str(tmp_path / "new"), *old)
    assert code == 1
    assert "conv1" in text
    assert "host time per step" in text
    # SYN103 stands in every tree of this program: what a tree's rules find can be forbidden, too.
    assert "SYN103 pageable-copy" in text
    result = CliRunner().invoke(cli, ["check", str(tmp_path / "same"), *old, "--budget", str(tmp_path / "only.toml")])
    assert result.exit_code == 0, result.output
    assert "no place takes more than 10%" in " ".join(result.output.split())


def test_two_trees_are_compared_with_their_step_and_their_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    pair = [str(WATCHED / f"optimizer_{name}.lw") for name in ("good", "loop")]
    result = CliRunner().invoke(cli, ["diff", *pair])
    assert result.exit_code == 0
    for said in ("3.80 ms", "10.1 ms", "new", "OPT101", "_use_grad"):
        assert said in result.output
    assert "reset_parameters" not in result.output  # start-up is no part of a step
