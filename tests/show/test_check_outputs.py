"""GitHub commands, SARIF and benchmark data: complete, and safe whatever a name holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lanewise.compare.budget import parse_budgets
from lanewise.compare.check import BudgetResult, CheckReport, check
from lanewise.compare.diff import run_of
from lanewise.compare.sides.arm import Arm
from lanewise.report.model import Location
from lanewise.show.check.check_text import check_json, check_markdown, render_check, summary_line
from lanewise.show.check.github import benchmark_json, workflow_commands
from lanewise.show.check.sarif import check_sarif
from lanewise.show.diff.diff_json import diff_json
from lanewise.show.diff.diff_markdown import diff_markdown
from lanewise.show.diff.diff_terminal import print_diff
from tests.compare.programs import PROGRAM, Do, compare_traces, insert, pointwise, record
from tests.show.test_hostile_names import HOSTILE

RELU = Do("aten::relu", pointwise("relu_kernel<c10::BFloat16>"), 2.9)


def result(**fields: Any) -> BudgetResult:
    return BudgetResult(**{"key": "launches", "level": "error", "status": "over", "sentence": "too many", **fields})


def report(*results: BudgetResult, **fields: Any) -> CheckReport:
    defaults: dict[str, Any] = {
        "schema": "lanewise.check/1", "version": "0", "label": "x", "runs": 1, "budget_file": "pyproject.toml",
        "passed": False, "undecided": 0, "measures": [],
    }  # fmt: skip
    return CheckReport(**{**defaults, "results": list(results), **fields})


def test_commands_point_at_the_program_where_a_finding_names_a_place() -> None:
    at = Location(file="src/train.py", line=12, function="step")
    text = workflow_commands(report(result(location=at, code="SYN101", key="forbid", sentence="waits")))
    assert text == "::error file=src/train.py,line=12,title=lanewise SYN101::waits\n"


def test_commands_point_at_the_budget_otherwise() -> None:
    assert workflow_commands(report(result(line=7))).startswith("::error file=pyproject.toml,line=7,")
    assert workflow_commands(report(result(), budget_file="")) == "::error title=lanewise launches::too many\n"


def test_levels_become_commands() -> None:
    lines = workflow_commands(
        report(result(level="warn"), result(status="undecided"), result(status="within"), result(status="skipped"))
    ).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::warning", "::notice"]


def test_a_place_outside_of_the_repository_is_left_out() -> None:
    text = workflow_commands(
        report(result(location=Location(file="/usr/lib/python3/torch/x.py", line=3)), budget_file="")
    )
    assert "file=" not in text


@pytest.mark.parametrize("name", [*HOSTILE, "a%0A::error::b", "x::set-output name=a::b", "a,line=1:2"])
def test_nothing_in_a_name_makes_another_command(name: str) -> None:
    at = Location(file=f"{name}.py", line=3, function=name)
    text = workflow_commands(
        report(result(sentence=f"over\n::error::{name}", location=at, code="SYN101"), budget_file=name)
    )
    (line,) = text.splitlines()
    assert line.startswith("::error ")
    head = line[2 : line.index("::", 2)]
    assert head.count(",") <= 2
    assert "\x1b" not in line


def test_sarif_holds_what_readers_need() -> None:
    at = Location(file="src/train loop.py", line=12, function="step")
    data = json.loads(
        check_sarif(report(result(line=4), result(code="SYN101", key="forbid", location=at, level="warn")))
    )
    (run,) = data["runs"]
    assert data["version"] == "2.1.0"
    assert run["tool"]["driver"]["name"] == "lanewise"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for entry in run["results"]:
        assert rules[entry["ruleIndex"]] == entry["ruleId"]
        assert entry["message"]["text"]
        assert entry["level"] in {"error", "warning", "note"}
    places = [entry["locations"][0]["physicalLocation"] for entry in run["results"]]
    assert places[0] == {
        "artifactLocation": {"uri": "pyproject.toml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 4},
    }
    assert places[1]["artifactLocation"]["uri"] == "src/train%20loop.py"


def test_benchmark_data_is_smaller_is_better() -> None:
    arm = Arm("net", [run_of(record(PROGRAM, 1))])
    entries = json.loads(benchmark_json(check(arm, parse_budgets({"launches": 100}))))
    by_name = {entry["name"]: entry for entry in entries}
    assert by_name["net: launches per step"]["value"] == len(PROGRAM)
    assert by_name["net: step time"]["unit"] == "us"
    assert not any("busy" in name for name in by_name)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_output_of_a_comparison_passes_control_sequences_on(name: str) -> None:
    import io

    from rich.console import Console

    hostile = insert(PROGRAM, 5, Do(name, name, 9.0))
    comparison = compare_traces(record(PROGRAM, 1), record(hostile, 2))
    checked = check(Arm(name, [run_of(record(hostile, 2))]), parse_budgets({"kernels": "same", "launches": 1}),
                    baseline=Arm("b", [run_of(record(PROGRAM, 1))]))  # fmt: skip
    buffer = io.StringIO()
    console = Console(file=buffer, width=110, force_terminal=False, markup=False)
    print_diff(comparison, console, verbose=True)
    console.print(render_check(checked))
    for text in (buffer.getvalue(), diff_markdown(comparison), check_markdown(checked), summary_line(checked)):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "a" * 2_000 not in text
    for text in (diff_json(comparison), check_json(checked), check_sarif(checked), benchmark_json(checked)):
        json.loads(text.encode("utf-8", "surrogatepass"))


def test_summary_says_the_worst_first() -> None:
    assert summary_line(report(result(), passed=False)) == "Over budget in 1 run: launches."
    assert summary_line(report(result(level="warn"), passed=True)) == "Within budget in 1 run; warnings: launches."
    assert summary_line(report(result(status="undecided"), passed=True, undecided=1)).endswith("more runs would tell.")
