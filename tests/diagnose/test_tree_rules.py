"""Rules on calling-context trees: what programs of a known fault show, and that gains are bounds of the step."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lanewise
from lanewise.diagnose.explain import explain
from lanewise.diagnose.of_tree.explain_tree import explain_tree
from lanewise.diagnose.of_tree.ranked_contexts import ONLY_A_TRACE, diagnose_tree
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.registry import builtin_rules
from lanewise.diagnose.settings import Settings
from lanewise.errors import UsageError
from lanewise.report.gain import gain_text, helps
from lanewise.report.model import Finding, Report
from lanewise.show.report.picks import busiest
from lanewise.tree.model import METRICS, Tree, TreeInfo
from lanewise.tree.tree_file import load
from lanewise.tree.watching.collected import Collected, CollectedKind, CollectedThread, tree_of
from lanewise.tree.watching.watched import Watched
from tests.support.corpus import REPOSITORY

DATA = REPOSITORY / "tests" / "data"
WATCHED = DATA / "watched"
ALL = sorted(path.stem for path in WATCHED.glob("*.lw"))


@cache
def explained(name: str) -> Report:
    return explain_tree(load(WATCHED / f"{name}.lw"), path=name)


def found(report: Report) -> dict[str, Finding]:
    return {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("cast_churn", "MEM106", "33 conversions per step"),
        ("ckpt", "OPT105", "of the forward pass"),
        ("ckpt", "KER111", "16 normalisations per step"),
        ("ckpt", "KER109", "4 chains per step"),
        ("ckpt", "SYN101", "1 value per step"),
        ("ckpt", "MEM106", "conversions per step"),
        ("dynamic_shape", "SYN102", "aten::nonzero"),
        ("host_stall", "LAU110", "4.40 ms per step"),
        ("item_loop", "SYN101", "6,000 values in this recording"),
        ("llm_train", "LAU101", "launches per step"),
        ("llm_train", "KER111", "17 normalisations per step"),
        ("llm_loop", "OPT101", "609 launches"),
        ("loader_stall", "OPT103", "without workers"),
        ("many_copies", "SYN108", "4,800 copies in this recording"),
        ("model_moved", "SYN109", "123 tensors"),
        ("optimizer_loop", "OPT101", "326 launches"),
        ("pageable_copy", "SYN103", "pageable"),
        ("synchronize", "LAU110", "synchronize.py"),
        ("zero_fill", "MEM105", "40 gradients or lists per step"),
        ("attention", "KER109", "100 chains in this recording"),
    ],
)
def test_what_a_program_of_a_known_fault_shows(name: str, code: str, says: str) -> None:
    finding = found(explained(name))[code]
    assert says in finding.title
    assert "{" not in finding.title
    assert finding.location is not None
    assert finding.fix
    assert finding.bound


@pytest.mark.parametrize(
    ("name", "code"),
    [("cast_good", "MEM106"), ("optimizer_good", "OPT101"), ("loader_good", "OPT103"), ("resnet", "SYN109")],
)
def test_the_program_without_the_fault_is_not_accused(name: str, code: str) -> None:
    assert code not in found(explained(name))


@pytest.mark.parametrize("name", ALL)
def test_gains_are_bounds_that_add_up_to_no_more_than_the_step(name: str) -> None:
    report = explained(name)
    helping = [finding for finding in report.findings if helps(finding)]
    step = Contexts(load(WATCHED / f"{name}.lw")).step.ns / 1e3
    assert sum(finding.recoverable_us_per_step for finding in helping) <= step * 1.001
    left = step
    for finding in helping:
        assert "at most" in gain_text(finding)
        assert finding.recoverable_us_per_step <= finding.alone_us_per_step * 1.001
        left -= finding.recoverable_us_per_step
        assert finding.leaves_us_per_step == pytest.approx(left, abs=1.0)


@pytest.mark.parametrize("name", ALL)
def test_every_rule_is_answered_or_said_not_to_be(name: str) -> None:
    report = explained(name)
    assert not [check for check in report.checks if check.status == "error"]
    said = {finding.code for finding in report.findings} | {check.code for check in report.checks}
    assert {rule.code for rule in builtin_rules()} <= said
    of_trace = {check.code for check in report.checks if check.reason == ONLY_A_TRACE}
    assert of_trace == {rule.code for rule in builtin_rules() if rule.of_tree is None}


@pytest.mark.parametrize("name", ALL)
def test_exactly_one_regime_holds(name: str) -> None:
    report = explained(name)
    assert [finding.code for finding in report.findings if finding.kind == "regime"] == [report.regime.code]
    assert sum(report.regime.shares.values()) <= 1.001


TRACES = sorted(path.name for path in (DATA / "tree").glob("*.json.gz"))


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_and_the_tree_of_it_say_the_same_where_the_question_is_the_same(name: str) -> None:
    trace = lanewise.read(DATA / "tree" / name)
    of_trace, of_tree = explain(trace), explain_tree(lanewise.build_tree(trace))
    assert of_tree.regime.name == of_trace.regime.name
    one, other = found(of_trace), found(of_tree)
    for code in ("LAU101", "OPT101", "OPT102", "MEM105", "MEM106", "SYN101", "SYN103"):
        assert (code in one) == (code in other), code
    if "LAU101" in one:
        for key in ("kernels", "launches"):
            assert other["LAU101"].values[key].value == pytest.approx(one["LAU101"].values[key].value, rel=0.08)
        median = one["LAU101"].values["median_kernel"].value
        assert other["LAU101"].values["median_kernel"].value == pytest.approx(median, rel=0.1)
    if "OPT102" in one:
        assert other["OPT102"].values["passes"] == one["OPT102"].values["passes"]


def test_recomputation_is_the_same_work_in_both() -> None:
    trace = lanewise.read(DATA / "tree" / "checkpoint_reentrant.json.gz")
    one = found(explain(trace))["OPT105"].values["time"].value
    assert found(explain_tree(lanewise.build_tree(trace)))["OPT105"].values["time"].value == pytest.approx(
        one, rel=1e-3
    )


def test_the_steps_of_a_watched_program_take_what_watching_says_they_take() -> None:
    tree = load(WATCHED / "cast_churn.lw")
    watched = tree.info.watched
    assert watched is not None
    assert watched.distortion is not None
    step = Contexts(tree).step
    assert step.recorded / step.ns == pytest.approx(watched.distortion.ratio)
    assert step.low <= step.ns <= step.high


def test_nothing_is_promised_of_first_calls_where_no_steps_are_known() -> None:
    report = explained("attention")
    assert report.regime.code == "REG106"
    assert "--step-on" in report.verdict
    assert not {"LAU101", "LAU110", "LAU111"} & set(found(report))
    softmax = found(report)["KER109"]
    assert softmax.alone_us_per_step == pytest.approx(softmax.values["total"].value / 1e3, rel=0.01)


def test_a_program_of_the_cpu() -> None:
    report = explained("optimizer_loop-cpu")
    assert report.verdict.startswith("Everything ran on the CPU")
    assert "cpu" in report.tables
    assert not [finding for finding in report.findings if helps(finding)]


def test_time_inside_of_libraries_is_told_by_the_function_that_called_them() -> None:
    sites = [
        "train.py(3): main",
        "torch/optim/adam.py(347): _single_tensor_adam",
        "torch/autograd/graph.py(966): _engine",
    ]
    rows = [  # parent, kind, name, own time
        (0, CollectedKind.ROOT, 1, 0),
        (0, CollectedKind.FRAME, 0, 20_000),
        (1, CollectedKind.FRAME, 1, 50_000),
        (1, CollectedKind.FRAME, 2, 30_000),
        (0, CollectedKind.FRAME, 2, 7_000),
        (2, CollectedKind.OPERATOR, 2, 1_000),
    ]
    parent, kind, name, host = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), dtype=np.int64)
    thread = CollectedThread(0, parent, kind, none, name, none, np.ones_like(none), host)
    report = explain_tree(
        tree_of(Collected((thread,), ["", "main thread", "aten::add_"], sites, [4, 350, 970]), Watched())
    )
    assert [(row["function"], row["inside"]) for row in report.tables["functions"].rows] == [
        ("main (train.py:3)", "_single_tensor_adam (adam.py:347)"),
        ("main (train.py:3)", "_engine (graph.py:966)"),
        ("main (train.py:3)", "its own code"),
        ("(no function of the program)", "_engine (graph.py:966)"),
    ]
    assert "46 % _single_tensor_adam (adam.py:347) in main (train.py:3)" in report.verdict
    _, shown = busiest(report) or ("", [])
    assert [name for _, name in shown] == [
        "_single_tensor_adam (adam.py:347) in main (train.py:3)",
        "_engine (graph.py:966) in main (train.py:3)",
        "main (train.py:3)",
        "_engine (graph.py:966)",
    ]


def test_waiting_for_backward_is_not_taken_for_python() -> None:
    # In this program `main` waits 23 ms of each 37 ms for backward on its thread.
    bubble = found(explained("llm_train"))["LAU110"]
    assert bubble.values["time"].value < 6e6


def test_thresholds_and_choice_are_those_of_the_settings() -> None:
    tree = load(WATCHED / "optimizer_loop.lw")
    assert "OPT101" in {f.code for f in diagnose_tree(Contexts(tree))[0]}
    strict = Settings(thresholds={"OPT101": {"launches_from": 1000}})
    assert "OPT101" not in {f.code for f in diagnose_tree(Contexts(tree), strict)[0]}
    chosen = diagnose_tree(Contexts(tree), Settings(select=("REG",)))
    assert {f.code[:3] for f in chosen[0]} | {c.code[:3] for c in chosen[1]} == {"REG"}
    with pytest.raises(UsageError):
        diagnose_tree(Contexts(tree), Settings(thresholds={"OPT101": {"nothing": 1}}))


def empty() -> Tree:
    none = np.empty(0, dtype=np.int64)
    return Tree(
        parent=none, kind=none, phase=none, name=none, detail=none, forward=none, strings=[""],
        metrics=dict.fromkeys(METRICS, none), info=TreeInfo(watched=Watched()),
    )  # fmt: skip


def test_an_empty_tree_is_a_report_that_says_so() -> None:
    report = explain_tree(empty())
    assert "nothing to explain" in report.verdict
    assert [note.level for note in report.health if note.topic == "file"] == ["bad"]
    assert not [check for check in report.checks if check.status == "error"]


def test_the_sum_of_two_processes_keeps_the_step() -> None:
    from lanewise.tree.algebra import merge

    tree = load(WATCHED / "optimizer_loop.lw")
    one, both = Contexts(tree), Contexts(merge([tree, tree]))
    assert both.step.recorded == pytest.approx(one.step.recorded)
    assert found(explain_tree(merge([tree, tree])))["OPT101"].values["launches"].value == 326


def test_where_a_finding_is_in_a_backward_function_is_told_by_its_forward_line() -> None:
    contexts = Contexts(load(WATCHED / "ckpt.lw"))
    backward = np.flatnonzero(contexts.operators("AddmmBackward0$") & (contexts.tree.forward >= 0))
    place = contexts.location(int(backward[0]))
    assert place is not None
    assert place.file.endswith("ckpt.py")
    assert place.module


@pytest.mark.parametrize("path", sorted(WATCHED.glob("*.lw")), ids=lambda path: path.stem)
def test_no_machine_is_named_in_the_data(path: Path) -> None:
    assert not [text for text in load(path).strings if text.startswith(("/", "~"))]


def test_the_public_function_takes_trees_and_their_files() -> None:
    path = WATCHED / "optimizer_loop.lw"
    of_file, of_tree = lanewise.explain(path), lanewise.explain(load(path))
    assert of_file.source.path == str(path)
    assert [f.title for f in of_file.findings] == [f.title for f in of_tree.findings]
    assert "OPT101" in found(of_file)


@pytest.mark.parametrize("seed", range(60))
def test_numbers_that_make_no_sense_make_no_error(seed: int) -> None:
    made = np.random.default_rng(seed)
    tree = load(WATCHED / f"{ALL[seed % len(ALL)]}.lw")
    metrics = {name: values.copy() for name, values in tree.metrics.items()}
    for name, values in metrics.items():
        kind = made.random()
        metrics[name] = (
            values * 0 if kind < 0.2 else -values if kind < 0.3 else values * 0 + 2**50 if kind < 0.4 else values
        )
    kinds = made.integers(0, 11, len(tree)) if made.random() < 0.3 else tree.kind
    strings = [text[::-1] if made.random() < 0.3 else text for text in tree.strings]
    watched = tree.info.watched
    info = tree.info
    if watched is not None and made.random() < 0.5:
        steps = int(made.integers(-3, 3))
        info = dataclasses.replace(info, watched=dataclasses.replace(watched, steps_watched=steps, distortion=None))
    strange = Tree(
        parent=tree.parent, kind=kinds, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=strings, metrics=metrics, info=info,
    )  # fmt: skip
    report = explain_tree(strange)
    assert not [check for check in report.checks if check.status == "error"]
    assert [f.kind for f in report.findings].count("regime") == 1
