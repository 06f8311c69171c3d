"""What can be a side: traces, directories, baselines, reports; and what cannot, in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lanewise.compare.compare import compare_arms
from lanewise.compare.diff import arms_of, diff, run_of
from lanewise.compare.model import Difference
from lanewise.compare.sides.arm import Arm, paired, short_labels
from lanewise.compare.sides.baseline import dump_baseline, load_baseline
from lanewise.diagnose.explain import explain
from lanewise.errors import InputError, UsageError
from lanewise.show.report.json import report_json
from lanewise.trace.model import Trace
from tests.compare.programs import PROGRAM, Do, change_all, compare_traces, insert, pointwise, record
from tests.support.builder import H100, TraceBuilder

RELU = Do("aten::relu", pointwise("relu_kernel<c10::BFloat16>"), 2.9)


def no_reader(path: str) -> Trace:
    raise AssertionError(f"read {path}")


def test_a_baseline_says_what_its_traces_say(tmp_path: Path) -> None:
    before, after = record(PROGRAM, 1), record(insert(PROGRAM, 4, RELU), 2)
    path = tmp_path / "base.json"
    path.write_bytes(dump_baseline(Arm("A", [run_of(before)])))
    stored = compare_arms([load_baseline(path), Arm("B", [run_of(after)])]).differences[0]
    direct = compare_traces(before, after).differences[0]
    assert msgspec.structs.replace(stored, findings=[]) == msgspec.structs.replace(direct, findings=[])
    assert [f.code for f in stored.findings] == [f.code for f in direct.findings]


def test_a_baseline_is_a_side_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "anything.txt"
    path.write_bytes(dump_baseline(Arm("old", [run_of(record(PROGRAM, 1))])))
    arms = arms_of([path, record(PROGRAM, 2)], labels=["base", "new"], read_trace=no_reader)
    assert [arm.label for arm in arms] == ["base", "new"]


def test_a_report_compares_times_and_findings_only(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(report_json(explain(record(PROGRAM, 1))))
    comparison = diff(path, record(insert(PROGRAM, 4, RELU), 2), labels=["old", "new"])
    difference = comparison.differences[0]
    assert difference.device == []
    assert any("old is a report" in warning for warning in difference.warnings)
    assert difference.verdict.startswith("The step took")
    assert difference.waterfall.a_ns + sum(item.ns for item in difference.waterfall.items) == difference.waterfall.b_ns


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": "lanewise.baseline/9", "runs": []}', "lanewise.baseline/9"),
        ('{"schema": "lanewise.baseline/1", "version": "0", "label": "x", "runs": []}', "holds no runs"),
        ('{"schema": "lanewise.baseline/1", "runs": 3}', "no baseline of lanewise"),
        ('{"schema": "lanewise.baseline/1"', "no baseline of lanewise"),
    ],
)
def test_a_damaged_baseline_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_baseline(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_baseline_that_points_outside_of_itself_is_refused(tmp_path: Path) -> None:
    data = json.loads(dump_baseline(Arm("A", [run_of(record(PROGRAM, 1))])))
    data["runs"][0]["work"]["at"][0] = 10_000
    path = tmp_path / "base.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError):
        load_baseline(path)


def refusal(a: Trace, b: Trace) -> str:
    with pytest.raises(UsageError) as caught:
        compare_traces(a, b)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_card_is_refused_unless_told() -> None:
    a, b = record(PROGRAM, 1), record(PROGRAM, 2)
    b.metadata = {"deviceProperties": [{**H100, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
    assert "card differs" in refusal(a, b)
    difference = compare_traces(a, b, anyway=True).differences[0]
    assert any("card differs" in warning for warning in difference.warnings)
    assert difference.environment[0].weight == "refuse"


def typed(dtype: str, rows: int) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::mm", dims=[[rows, 64], [64, 64]], types=[dtype, dtype]):
            b.launch("gemm", duration=20)
    return b.build()


def test_another_type_is_refused() -> None:
    assert "bfloat16 and in float32" in refusal(typed("c10::BFloat16", 32), typed("float", 32))


def test_other_sizes_are_refused() -> None:
    assert "different sizes" in refusal(typed("float", 32), typed("float", 4096))


def test_other_sizes_show_in_the_grids_where_shapes_were_not_recorded() -> None:
    larger = tuple(change_all(PROGRAM, place, grid=(2640, 1, 1))[place] for place in range(len(PROGRAM)))
    assert "different sizes" in refusal(record(PROGRAM, 1), record(larger, 2))


def test_training_against_inference_is_refused() -> None:
    backward = insert(PROGRAM, 12, Do("MulBackward0", pointwise("mul_backward"), 3.0))
    assert "backward pass" in refusal(record(PROGRAM, 1), record(backward, 2))


def unmarked(seed: int) -> Trace:
    b = TraceBuilder()
    for _ in range(seed):
        with b.op("aten::mm"):
            b.launch("gemm")
    return b.build()


def test_steps_against_one_region_are_refused() -> None:
    assert "one region without steps" in refusal(record(PROGRAM, 1), unmarked(5))


def test_two_regions_without_steps_are_compared() -> None:
    difference = compare_traces(unmarked(5), unmarked(7)).differences[0]
    assert [(c.how, c.times) for c in difference.device if c.how != "same"] == [("new", 2)]


def test_nothing_to_compare_is_said() -> None:
    b = TraceBuilder()
    with b.step():
        b.wait(5)
    with pytest.raises(UsageError, match="nothing to compare"):
        compare_traces(b.build(), record(PROGRAM, 1))
    with pytest.raises(UsageError, match="nothing to compare"):
        compare_traces(TraceBuilder().build(), TraceBuilder().build())


def test_the_same_recording_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    arm = Arm("A", [run_of(record(PROGRAM, 1))])
    object.__setattr__(arm.runs[0], "digest", "same")
    path.write_bytes(dump_baseline(arm))
    with pytest.raises(UsageError, match="hold the same recording"):
        diff(path, path)


def test_one_side_is_no_comparison() -> None:
    with pytest.raises(UsageError, match="two sides"):
        diff(record(PROGRAM, 1))


def test_step_times_and_labels_are_given_for_all_sides_or_none() -> None:
    with pytest.raises(UsageError, match="1 step time for 2 sides"):
        diff(record(PROGRAM, 1), record(PROGRAM, 2), unprofiled_us=[5.0])


def test_labels_keep_what_tells_them_apart() -> None:
    assert short_labels(["01_mlp_warm_eager", "01_mlp_warm_compile"]) == ["eager", "compile"]
    assert short_labels(["a_64_x", "a_4096_x"]) == ["a_64_x", "a_4096_x"]
    assert short_labels(["same", "same"]) == ["same", "same"]
    assert short_labels(["one", "two"]) == ["one", "two"]


def arm(*at: int) -> Arm:
    run = run_of(record(PROGRAM, 1, steps=3))
    return Arm("x", [replace(run, recorded_at=when) for when in at])


def test_recordings_that_alternate_are_pairs() -> None:
    assert paired(arm(1, 11, 21), arm(2, 10, 22))
    assert not paired(arm(1, 2, 3), arm(11, 12, 13))
    assert not paired(arm(1, 11), arm(2, 12, 22))
    assert not paired(arm(0, 11), arm(2, 12))


def repeats(factor: float, count: int, *, seed: int) -> list[Trace]:
    """Recordings whose level differs from run to run by 4 %."""
    draw = np.random.default_rng(seed)
    return [
        record(PROGRAM, seed * 100 + i, steps=6, slower=factor, host_us=400.0 * factor * draw.normal(1, 0.04))
        for i in range(count)
    ]


def step_of(a: list[Trace], b: list[Trace]) -> Difference:
    return diff(a, b, labels=["old", "new"]).differences[0]


def test_repeats_settle_what_one_run_cannot() -> None:
    one = step_of(repeats(1.0, 1, seed=1), repeats(1.4, 1, seed=2))
    many = step_of(repeats(1.0, 6, seed=1), repeats(1.4, 6, seed=2))
    assert one.step.verdict == "not enough samples"
    # Noise is no fact: neither a difference nor whose it is.
    assert "too few runs to tell them apart" in one.verdict
    assert "instead of" not in one.verdict
    assert "host time" not in one.verdict
    assert "instead of" in many.verdict
    assert one.step.further_unit == "runs"
    assert many.step.verdict == "slower"
    assert (many.step.unit, many.step.a_count) == ("runs", 6)


def test_repeats_of_the_same_program_are_no_difference_or_too_few() -> None:
    assert step_of(repeats(1.0, 6, seed=3), repeats(1.0, 6, seed=4)).step.verdict in {
        "no difference",
        "not enough samples",
    }


def test_a_run_that_does_other_work_is_left_out_and_said() -> None:
    odd = [*repeats(1.0, 3, seed=1), record(insert(PROGRAM, 4, RELU), 9, steps=6)]
    difference = step_of(odd, repeats(1.0, 4, seed=2))
    assert any("1 of 4 runs launch other work" in warning for warning in difference.warnings)
