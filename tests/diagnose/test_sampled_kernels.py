"""What was sampled inside of kernels, in the report of a trace and of a tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.reading.explain import explain as explain_command
from lanewise.diagnose.explain import facts_of
from lanewise.diagnose.sampled_kernels import inside_statements, kernel_times, kernel_times_of_tree
from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.sampled import stalls
from lanewise.machine_code.sampled.samples import KernelSamples, Samples
from lanewise.measure.kernel.datasheet import peak_called
from lanewise.trace.model import Trace
from lanewise.tree.build import build_tree
from lanewise.tree.tree_file import save
from tests.machine_code.test_planted_cuda import LISTED
from tests.support.builder import TraceBuilder

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "machine-code" / "sampled.json"
ROWS: list[Any] = json.loads(MEASURED.read_text())["kernels"]["row_sums"]["instructions"]


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NVIDIA's tools print of the kernel that a file is named after."""

    def read(path: Path) -> list[Kernel]:
        return [LISTED[path.stem]]

    monkeypatch.setattr(stalls, "kernels_in", read)


def slow(kernel: str = "row_sums") -> Trace:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::sum"):
            b.launch(kernel, duration=300, grid=(64, 1, 1))
            b.launch("other", duration=100)
    return b.build()


def sampled() -> list[stalls.Stalls]:
    rows = [(offset, reason, number) for offset, reason, number in ROWS]
    return stalls.stalls_of(Samples("", [KernelSamples("row_sums", rows, "row_sums.cubin")]))


def test_a_kernel_of_a_trace_has_its_line_its_limit_and_what_mending_gives() -> None:
    (said,) = inside_statements(kernel_times(facts_of(slow())), sampled(), peak_called("H200"))
    text = str(said)
    assert text.startswith("row_sums, 75 % of the kernels' time, waits for data from global or local memory (85")
    assert "lie at planted.cu:11. By its code it is limited by uncoalesced loads: " in text
    assert "With that fixed, it would take about " in text
    assert " instead of 300.0 us (" in text


def test_without_a_grid_nothing_is_predicted() -> None:
    (said,) = inside_statements(kernel_times_of_tree(build_tree(slow())), sampled(), None)
    assert "uncoalesced loads" in str(said)
    assert "With that fixed" not in str(said)


def test_a_kernel_that_takes_little_is_left_out() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("row_sums", duration=1)
        b.launch("other", duration=100)
    assert inside_statements(kernel_times(facts_of(b.build())), sampled(), None) == []


def test_on_the_command_line(tmp_path: Path) -> None:
    path, trees = tmp_path / "t.samples.json", {}
    path.write_text(
        json.dumps(
            {
                "schema": "lanewise.samples/1",
                "kernels": [{"name": "row_sums", "samples": ROWS, "code": "row_sums.cubin"}],
            }
        )
    )
    for name, trace in (("slow", slow()), ("stranger", slow("column_sums"))):
        trees[name] = tmp_path / f"{name}.lwtree"
        save(build_tree(trace), trees[name])

    def run(*words: str) -> str:
        done = CliRunner().invoke(explain_command, [*words, "--samples", str(path)], catch_exceptions=False)
        return " ".join(done.output.split())

    assert "Inside its kernels row_sums, 75 % of the kernels' time" in run(str(trees["slow"]))
    assert "planted.cu:11" in json.loads(run(str(trees["slow"]), "--json"))["statements"][0]["values"]["line"]["value"]
    assert "t.samples.json has none of the kernels" in run(str(trees["stranger"]), "--full")
