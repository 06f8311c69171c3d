"""What each measure is shown as: the numbers are those of the measure, and what the trace lacks is said."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.diagnose.sections.overlap import overlap_section
from lanewise.diagnose.sections.roofline import reached
from lanewise.errors import InputError, NotATraceError, UsageError
from lanewise.measure.facts import Facts
from lanewise.show.report.tables import MEASURES, PARTS, PROFILER_TABLES, cut_tables, measure_section
from lanewise.trace.reader import read
from tests.measure.memory.test_allocator import Allocator
from tests.measure.memory.test_snapshot import MB, block, snapshot
from tests.show.test_hostile_names import HOSTILE
from tests.support.builder import TraceBuilder
from tests.support.corpus import DATA

MNIST = DATA / "03_mnist_train_stack.json.gz"


def table(*words: str | Path) -> str:
    answer = CliRunner().invoke(cli, ["table", *map(str, words)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def data(*words: str | Path) -> dict[str, Any]:
    return json.loads(table(*words, "--json"))


@pytest.fixture(scope="module")
def mnist() -> Facts:
    return Facts(read(MNIST))


def product(count: int = 4, duration: float = 300.0) -> Facts:
    """Steps of one large half-precision product each."""
    b = TraceBuilder()
    for _ in range(count):
        with b.step():
            shape = [[4096, 4096], [4096, 4096]]
            with b.op("aten::mm", dims=shape, types=["c10::BFloat16", "c10::BFloat16"]):
                b.launch("nvjet_tst_256x128", duration=duration)
            b.synchronize()
    return Facts(b.build())


# -- roofline -----------------------------------------------------------------------------------------------------------


def test_a_product_stands_where_its_flops_and_time_put_it() -> None:
    facts = product()
    (row,) = cut_tables(measure_section(facts, "roofline").tables, limit=None)["roofline"].rows
    # 2 n^3 FLOPs in 300 us, of 989.4 TFLOP/s.
    assert row["flops"] == 2 * 4096**3
    assert row["flop_rate"] == pytest.approx(2 * 4096**3 / 300e-6)
    assert row["of_roof"] == row["of_compute"] == pytest.approx(2 * 4096**3 / 300e-6 / 989.4e12)
    assert row["bound"] == "compute"
    assert row["share"] == 1.0
    assert row["shapes"] == "[4096,4096] x [4096,4096]"
    assert reached(facts) == (pytest.approx(row["of_roof"]), 1.0)


def test_the_statement_weighs_operators_by_their_time(mnist: Facts) -> None:
    rows = cut_tables(measure_section(mnist, "roofline").tables, limit=None)["roofline"].rows
    known = [row for row in rows if row["of_roof"] == row["of_roof"]]
    assert 0 < len(known) < len(rows)
    time = sum(row["time"] for row in known)
    mean = sum(row["time"] * row["of_roof"] for row in known) / time
    assert reached(mnist) == (pytest.approx(mean), pytest.approx(time / sum(row["time"] for row in rows)))
    assert "NVIDIA H100 datasheet" in str(measure_section(mnist, "roofline").statements[0])


def test_the_roofline_says_what_it_lacks() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    assert "record_shapes=True" in str(measure_section(Facts(b.build()), "roofline").statements[0])
    b = TraceBuilder(metadata={"deviceProperties": [{"id": 0, "name": "Card of tomorrow"}]})
    with b.step(), b.op("aten::mm", dims=[[8, 8], [8, 8]], types=["float", "float"]):
        b.launch("gemm")
    assert "No peak rates are known for Card of tomorrow" in str(
        measure_section(Facts(b.build()), "roofline").statements[0]
    )


# -- memory -------------------------------------------------------------------------------------------------------------


def test_memory_names_the_holders_of_the_peak(mnist: Facts) -> None:
    use = mnist.memory
    assert use is not None
    section = measure_section(mnist, "memory")
    blocks = cut_tables(section.tables, limit=None)
    assert str(section.statements[0]).startswith("At most 1.13 GB of device memory is allocated, 1.46 GB reserved of")
    assert sum(row["bytes"] for row in blocks["memory"].rows) == use.known_at_peak
    assert blocks["memory"].rows[0]["share"] == blocks["memory"].rows[0]["bytes"] / use.peak
    assert [row["allocations"] for row in blocks["memory-steps"].rows] == use.churn["allocations"].tolist()
    assert max(row["allocated"] for row in blocks["memory-over-time"].rows) == use.peak


def test_memory_of_a_trace_without_steps_and_of_one_without_events() -> None:
    b = Allocator()
    with b.op("aten::mm"):
        b.take(100)
        b.launch("gemm")
    section = measure_section(Facts(b.build()), "memory")
    assert set(section.tables) == {"memory", "memory-over-time"}
    (row,) = cut_tables(section.tables, limit=None)["memory"].rows
    assert (row["operator"], row["bytes"], row["step"]) == ("aten::mm", 100, "")
    bare = measure_section(product(), "memory")
    assert bare.tables == {}
    assert "lanewise run --memory" in str(bare.statements[0])


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    return path


def test_a_snapshot_needs_no_trace(pickled: Path) -> None:
    answer = data("--snapshot", pickled)
    told = answer["statements"]["snapshot"]
    assert told[0]["values"]["reserved"] == {"type": "bytes", "value": 36 * MB}
    # Of 14 MB free the largest block has 10; 4 share a segment with used blocks.
    assert told[1]["values"]["largest"]["value"] == 10 * MB
    assert told[1]["values"]["fragmentation"]["value"] == pytest.approx(4 / 14)
    assert told[1]["values"]["split"]["value"] == 4 * MB
    rows = answer["tables"]["snapshot"]["rows"]
    assert [(row["place"], row["bytes"], row["blocks"]) for row in rows] == [
        ("model.py:1 forward", 12 * MB, 2),
        ("model.py:1 backward", 8 * MB, 1),
    ]
    assert rows[0]["stack"] == "model.py:1 forward < model.py:2 main"
    assert "37.7 MB are reserved in 3 segments" in table("--snapshot", pickled)


def test_a_snapshot_beside_a_trace_brings_the_memory_of_both(pickled: Path) -> None:
    assert set(data(MNIST, "--snapshot", pickled)["tables"]) >= {"snapshot", "memory", "memory-steps"}
    both = data(MNIST, "queues", "--snapshot", pickled)["tables"]
    assert {"snapshot", "queues"} <= set(both)
    assert "memory" not in both


def test_the_place_of_a_holder_is_the_programs_own_frame(tmp_path: Path) -> None:
    content = snapshot()
    frames = [
        {"filename": "/opt/env/lib/python3.12/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
        {"filename": "train.py", "line": 7, "name": "step"},
        {"filename": "??", "line": 0, "name": "main"},
    ]
    content["segments"] = [{"total_size": MB, "blocks": [{**block(MB, "active_allocated"), "frames": frames}]}]
    (tmp_path / "s").write_bytes(pickle.dumps(content))
    (row,) = data("--snapshot", tmp_path / "s")["tables"]["snapshot"]["rows"]
    assert row["place"] == "train.py:7 step"


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def test_a_pickle_that_would_run_code_runs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil").write_bytes(pickle.dumps({"segments": [_Runs()]}))
    answer = CliRunner().invoke(cli, ["table", "--snapshot", "evil"])
    assert isinstance(answer.exception, NotATraceError)
    assert not (tmp_path / "executed").exists()
    answer = CliRunner().invoke(cli, ["table", "--snapshot", "missing"])
    assert isinstance(answer.exception, InputError)
    assert "No such file" in str(answer.exception)


# -- overlap, queues ----------------------------------------------------------------------------------------------------


def two_streams() -> Facts:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=100)
            b.copy("HtoD", duration=50, stream="9")
            b.wait(200)
    return Facts(b.build())


def test_overlap_adds_up_and_says_what_is_hidden() -> None:
    facts = two_streams()
    section = measure_section(facts, "overlap")
    rows = {row["label"]: row for row in cut_tables(section.tables, limit=None)["overlap"].rows}
    assert (rows["stream 7"]["busy"], rows["stream 9"]["busy"]) == (300_000, 150_000)
    assert rows["stream 9"]["alone"] == 0
    assert rows["stream 7"]["alone"] == 150_000
    assert "both of its streams are busy at once for 150.0 us" in str(section.statements[0])
    assert str(section.statements[1]) == "Computation hides 100 % of the copy time."


def test_one_stream_of_kernels_has_nothing_to_hide() -> None:
    section = overlap_section(product())
    assert [str(one) for one in section.statements] == [
        "Over the recording the device computes 1.20 ms, on one stream."
    ]


def test_queues_by_step_and_over_time(mnist: Facts) -> None:
    queue = mnist.queue
    blocks = cut_tables(measure_section(mnist, "queues").tables, limit=None)
    assert [row["deepest"] for row in blocks["queues"].rows] == queue.per_step["deepest"].tolist()
    assert max(row["depth"] for row in blocks["queues-over-time"].rows) == queue.depth.max()


def test_back_pressure_is_named() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(80):
            with b.op("aten::mm"):
                b.launch("gemm", duration=500)
        for _ in range(20):
            with b.op("aten::mm"):
                b.launch("gemm", duration=500, call=200)
    told = str(measure_section(Facts(b.build()), "queues").statements[1])
    assert "20 launches, 4.00 ms" in told
    assert "launches are not the problem" in told


# -- critical path ------------------------------------------------------------------------------------------------------


def test_the_critical_path_adds_up_to_the_step(mnist: Facts) -> None:
    section = measure_section(mnist, "critical-path")
    blocks = cut_tables(section.tables, limit=None)
    path = mnist.critical_path()
    assert sum(row["time"] for row in blocks["critical-path"].rows) == path.end - path.start
    assert sum(row["share"] for row in blocks["critical-path"].rows) == pytest.approx(1)
    times = [row["time"] for row in blocks["critical-path-segments"].rows]
    assert times == sorted(times, reverse=True)
    assert str(section.statements[0]).startswith("Step #4 takes 4.29 ms end to end")


def test_the_path_of_a_device_bound_step_is_its_kernels() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(5):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=100)
            b.synchronize()
    blocks = cut_tables(measure_section(Facts(b.build()), "critical-path").tables, limit=None)
    first = blocks["critical-path"].rows[0]
    assert (first["kind"], first["time"]) == ("kernel", 500_000)
    assert blocks["critical-path-segments"].rows[0]["what"] == "gemm and 4 more"


def test_another_step_can_be_asked_for() -> None:
    assert "Step #3" in table(MNIST, "critical-path", "--step", "3")
    answer = CliRunner().invoke(cli, ["table", str(MNIST), "critical-path", "--step", "99"])
    assert isinstance(answer.exception, UsageError)
    assert "steps: 2, 3, 4" in str(answer.exception)


# -- all of them --------------------------------------------------------------------------------------------------------


# Measures of a run with a device.
_DEVICE = tuple(name for name in MEASURES if name != "cpu")


@pytest.mark.parametrize("name", [*_DEVICE, *PARTS])
def test_every_measure_in_every_format(name: str) -> None:
    text = table(MNIST, name, "-n", "3")
    assert text.strip()
    answer = data(MNIST, name)
    assert name in answer["tables"]
    for found in answer["tables"].values():
        assert all(column["key"] in row for row in found["rows"] for column in found["columns"])
    rows = list(csv.reader(io.StringIO(table(MNIST, name, "--format", "csv"))))
    assert rows[0] == [column["key"] for column in answer["tables"][name]["columns"]]
    assert len(rows) == 1 + len(answer["tables"][name]["rows"])
    assert "|---" in table(MNIST, name, "--format", "md")


def test_all_is_everything_and_the_default_what_a_profiler_has() -> None:
    everything = data(MNIST, "all")["tables"]
    assert {*PROFILER_TABLES, *_DEVICE, *PARTS} == set(everything)
    assert set(data(MNIST)["tables"]) == set(PROFILER_TABLES)


def test_names_of_the_command_are_those_of_the_tables() -> None:
    from lanewise.cli.reading import table as command

    assert command._PROFILER == PROFILER_TABLES
    assert command._MEASURES == MEASURES
    assert tuple(PARTS) == command._PARTS


@pytest.mark.parametrize("name", _DEVICE)
def test_a_trace_without_device_work_says_so(name: str) -> None:
    b = TraceBuilder(metadata={})
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.wait(10)
    section = measure_section(Facts(b.build()), name)
    assert section.statements
    assert section.tables == {}


def test_time_on_the_cpu_is_that_of_runs_without_a_device() -> None:
    section = measure_section(product(), "cpu")
    assert section.tables == {}
    assert "The run uses a device" in str(section.statements[0])


def test_it_needs_a_trace_or_a_snapshot() -> None:
    answer = CliRunner().invoke(cli, ["table"])
    assert isinstance(answer.exception, UsageError)
    assert "which trace?" in str(answer.exception)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_reaches_the_terminal_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = TraceBuilder()
    with b.step(), b.op(name, dims=[[4096, 4096]], types=["float"]):
        b.launch(name, duration=300)
    facts = Facts(b.build())
    monkeypatch.setattr("lanewise.measure.facts.Facts", lambda trace: facts)
    monkeypatch.setattr(sys.modules["lanewise.cli.reading.table"], "open_trace", lambda source, cache: None)
    text = table("x", "all")
    assert "\x1b" not in text
    assert "\u202e" not in text
