"""What was sampled inside of kernels, below them in the tree: nothing is lost, and every view has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given

from lanewise.cli.reading.tree import tree as tree_command
from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.sampled import stalls
from lanewise.machine_code.sampled.parts import parts_of
from lanewise.machine_code.sampled.samples import KernelSamples, Samples
from lanewise.machine_code.sampled.stalls import stalls_of
from lanewise.show.tree.tree_terminal import tree_rows, tree_text
from lanewise.tree import views
from lanewise.tree.build import build_tree
from lanewise.tree.inside_kernels import share_of, with_insides
from lanewise.tree.model import INSIDE, Tree
from lanewise.tree.tree_file import save
from tests.machine_code.test_planted_cuda import LISTED
from tests.support.builder import TraceBuilder
from tests.tree.programs import Action, play, programs
from tests.tree.test_conservation import all_views, relaxed

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "machine-code" / "sampled.json"
KERNELS = json.loads(MEASURED.read_text())["kernels"]
INSIDES = {
    "gemm": {
        (("loop", "loop at k.py:3"), ("line", "k.py:4"), ("stall", "waits a")): 0.31,
        (("loop", "loop at k.py:3"), ("line", "k.py:4"), ("stall", "waits b")): 0.3,
        (("loop", "loop at k.py:3"), ("line", "k.py:5"), ("stall", "waits a")): 0.2,
        (("line", "k.py:9"), ("stall", "waits a")): 0.1,
    },
    "add": {(("stall", "waits a"),): 1.0},
}


def samples_of(*names: str, code: str = "row_sums.cubin") -> Samples:
    return Samples(
        "", [KernelSamples(name, [tuple(row) for row in KERNELS[name]["instructions"]], code) for name in names]
    )  # type: ignore[misc]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NVIDIA's tools print of the kernel that a file is named after."""

    def listed(path: Path) -> list[Kernel]:
        return [LISTED[path.stem]]

    monkeypatch.setattr(stalls, "kernels_in", listed)


@relaxed
@given(programs)
def test_every_view_still_has_the_device_total(program: list[list[Action]]) -> None:
    plain = build_tree(play(program))
    tree = with_insides(plain, INSIDES)
    for metric in ("device", "kernel", "count"):
        assert int(tree.value(metric).sum()) == int(plain.value(metric).sum()), metric
    for name, view in all_views(tree).items():
        assert view.total("device") == plain.total("device"), name


def launched_twice() -> Tree:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): f"):
        for line, duration in ((2, 100), (3, 300)):
            with b.frame(f"train.py({line}): g{line}"):
                b.launch("gemm", duration=duration)
                b.launch("other", duration=50)
    return build_tree(b.build())


def test_parts_of_a_kernel_stand_below_it_in_every_context_that_launched_it() -> None:
    tree = with_insides(launched_twice(), INSIDES)
    shown_tree = views.top_down(tree)
    text = tree_text(shown_tree, tree_rows(shown_tree), width=100).plain
    shown = [" ".join(line.split()) for line in text.splitlines() if "loop at" in line or "waits" in line]
    # 81 of 100 us in the loop of one context, 243 of 300 us in that of the other one; parts are no launches.
    assert shown[0] == "243.0 us 48.6 % │ │ ├ loop at k.py:3"
    assert "81.0 us 16.2 % │ ├ loop at k.py:3" in shown
    assert share_of(launched_twice(), INSIDES) == pytest.approx(0.8)
    by_wait = views.bottom_up(views.top_down(tree))
    roots = {
        by_wait.label(node): int(by_wait.inclusive("device")[node])
        for node in range(len(by_wait))
        if by_wait.parent[node] < 0
    }
    assert roots == {"waits a": 244_000, "waits b": 120_000, "gemm": 36_000, "other": 100_000}


def test_samples_give_loops_lines_and_waits(listed: None) -> None:
    (parts,) = parts_of(stalls_of(samples_of("row_sums"))).values()
    first = max(parts, key=lambda path: parts[path])
    assert [text for _, text in first] == [
        "loop at planted.cu:11", "planted.cu:11", "waits for data from global or local memory"
    ]  # fmt: skip
    assert 0.9 < sum(parts.values()) <= 1


def test_a_kernel_of_unknown_code_has_waits_alone() -> None:
    (parts,) = parts_of(stalls_of(samples_of("row_sums", code=""))).values()
    assert {len(path) for path in parts} == {1}


def test_on_the_command_line(tmp_path: Path, listed: None) -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): f"):
        b.launch("row_sums", duration=100)
        b.launch("other", duration=100)
    trace = tmp_path / "t.lwtree"
    save(build_tree(b.build()), trace)
    path = tmp_path / "t.samples.json"
    rows = [list(row) for row in KERNELS["row_sums"]["instructions"]]
    kernel = {"name": "row_sums", "samples": rows, "code": "row_sums.cubin"}
    path.write_text(json.dumps({"schema": "lanewise.samples/1", "kernels": [kernel]}))

    def run(*words: str) -> str:
        done = CliRunner().invoke(tree_command, [str(trace), *words], catch_exceptions=False, env={"COLUMNS": "100"})
        return done.output

    text = run("--samples", str(path))
    assert "50% of the device time is in kernels of t.samples.json" in text
    assert "planted.cu:11" in text
    kinds = {node["kind"] for node in json.loads(run("--samples", str(path), "--json"))["nodes"]}
    assert {"loop", "line", "stall"} <= kinds
    assert len(INSIDE) == 3
