"""SARIF of a report: the shape that version 2.1.0 of the standard asks for, and places that hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.compare.budget import parse_budgets
from lanewise.compare.check import check
from lanewise.compare.diff import run_of
from lanewise.compare.sides.arm import Arm
from lanewise.diagnose.explain import explain
from lanewise.diagnose.registry import builtin_rules
from lanewise.report.model import Finding, Location, Note, Report
from lanewise.show.check.sarif import check_sarif, report_sarif
from lanewise.show.check.source_files import SourceFiles
from lanewise.trace.reader import read
from tests.compare.programs import PROGRAM, record
from tests.show.test_hostile_names import HOSTILE
from tests.support.builder import TraceBuilder
from tests.support.corpus import DATA

STACKS = DATA / "03_mnist_train_stack.json.gz"

# Objects of the standard (OASIS SARIF 2.1.0) that occur here: the properties that each must have, and those it may have.
# Property -> the object it holds; None for plain values.
_OBJECTS: dict[str, tuple[set[str], dict[str, str | None]]] = {
    "log": ({"version", "runs"}, {"$schema": None, "version": None, "runs": "run"}),
    "run": (
        {"tool"},
        {"tool": "tool", "columnKind": None, "invocations": "invocation", "results": "result"},
    ),
    "tool": ({"driver"}, {"driver": "component"}),
    "component": ({"name"}, {"name": None, "version": None, "rules": "descriptor"}),
    "descriptor": (
        {"id"},
        {
            "id": None,
            "name": None,
            "shortDescription": "multiformat",
            "fullDescription": "multiformat",
            "help": "multiformat",
            "properties": "bag",
        },
    ),
    "multiformat": ({"text"}, {"text": None, "markdown": None}),
    "invocation": (
        {"executionSuccessful"},
        {"executionSuccessful": None, "toolExecutionNotifications": "notification"},
    ),
    "notification": ({"message"}, {"level": None, "message": "message"}),
    "message": ({"text"}, {"text": None}),
    "result": (
        {"message"},
        {
            "ruleId": None,
            "ruleIndex": None,
            "level": None,
            "message": "message",
            "locations": "location",
            "partialFingerprints": "bag",
            "properties": "bag",
        },
    ),
    "location": (set(), {"physicalLocation": "physical", "logicalLocations": "logical"}),
    "physical": ({"artifactLocation"}, {"artifactLocation": "artifact", "region": "region"}),
    "artifact": ({"uri"}, {"uri": None, "uriBaseId": None}),
    "region": ({"startLine"}, {"startLine": None}),
    "logical": ({"name"}, {"name": None, "fullyQualifiedName": None, "kind": None}),
}


def hold_to_standard(text: str) -> dict[str, Any]:
    """The run of a document, held to the standard."""
    data = json.loads(text)
    _hold(data, "log", "log")
    assert data["version"] == "2.1.0"
    (run,) = data["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        for location in result.get("locations", []):
            physical = location.get("physicalLocation")
            if physical:
                assert physical["region"]["startLine"] >= 1
                assert not physical["artifactLocation"]["uri"].startswith(("/", ".."))
                assert " " not in physical["artifactLocation"]["uri"]
    return run


def _hold(value: Any, kind: str, at: str) -> None:
    if kind == "bag":
        assert isinstance(value, dict), at
        return
    assert isinstance(value, dict), at
    required, known = _OBJECTS[kind]
    assert required <= set(value), f"{at} lacks {required - set(value)}"
    assert set(value) <= set(known), f"{at} has {set(value) - set(known)}"
    for name, inner in value.items():
        wanted = known[name]
        if wanted is None:
            assert isinstance(inner, str | int | bool), f"{at}.{name}"
        else:
            for number, one in enumerate(inner if isinstance(inner, list) else [inner]):
                _hold(one, wanted, f"{at}.{name}[{number}]")


def report_with(*findings: Finding) -> Report:
    b = TraceBuilder()
    with b.step(), b.op("aten::relu"):
        b.launch("relu")
    return msgspec.structs.replace(explain(b.build()), findings=list(findings))


def finding(title: str = "it waits", code: str = "SYN101", kind: Any = "problem", **location: Any) -> Finding:
    return Finding(code, "device-readback", title, {}, 5.0, "high", [2], [], "keep it there", "",
                   Location(**location) if location else None, kind=kind)  # fmt: skip


def only_result(item: Finding, files: SourceFiles | None = None) -> dict[str, Any]:
    (result,) = hold_to_standard(report_sarif(report_with(item), files))["results"]
    return result


def test_a_real_report_has_the_shape_of_the_standard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "capture_corpus.py").write_text("")
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(cli, ["explain", str(STACKS), "--format", "sarif"], catch_exceptions=False)
    assert answer.exit_code == 0
    run = hold_to_standard(answer.stdout)
    shown = [f for f in explain(read(STACKS)).findings if f.kind in {"problem", "statement"}]
    assert [result["ruleId"] for result in run["results"]] == [f.code for f in shown]
    for result, item in zip(run["results"], shown, strict=True):
        assert result["message"]["text"].startswith(item.title[:200])
        assert item.location is not None
        if item.location.file:
            assert result["locations"][0]["physicalLocation"] == {
                "artifactLocation": {"uri": "tools/capture_corpus.py", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": item.location.line},
            }
        else:
            assert "physicalLocation" not in result["locations"][0]
            assert result["locations"][0]["logicalLocations"]
    assert any("physicalLocation" in result["locations"][0] for result in run["results"])
    assert {result["level"] for result in run["results"]} == {"warning", "note"}


def test_rules_bring_their_documentation_within_what_readers_show() -> None:
    report = report_with(*(finding(code=rule.code) for rule in builtin_rules()))
    rules = hold_to_standard(report_sarif(report))["tool"]["driver"]["rules"]
    assert len(rules) == len(builtin_rules())
    documented = {rule.code: rule for rule in builtin_rules()}
    for rule in rules:
        assert rule["name"] == documented[rule["id"]].name
        assert rule["shortDescription"]["text"] == documented[rule["id"]].document.splitlines()[0]
        assert rule["fullDescription"]["text"].startswith(rule["shortDescription"]["text"])
        assert "Fix:" not in rule["fullDescription"]["text"]
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert "**Fix.**" in rule["help"]["markdown"] or "Fix:" not in rule["help"]["text"]


def test_what_is_wrong_with_the_recording_is_a_notification_not_a_result() -> None:
    report = report_with(finding(), finding(code="MEA101", kind="validity"), finding(code="REG101", kind="regime"))
    report = msgspec.structs.replace(
        report, health=[Note("bad", "file", "cut off"), Note("warn", "device", "odd"), Note("ok", "x", "fine")]
    )
    run = hold_to_standard(report_sarif(report))
    assert [result["ruleId"] for result in run["results"]] == ["SYN101"]
    assert run["invocations"][0]["toolExecutionNotifications"] == [
        {"level": "error", "message": {"text": "file: cut off"}},
        {"level": "warning", "message": {"text": "device: odd"}},
    ]


def test_a_check_has_the_shape_too() -> None:
    run = check(Arm("net", [run_of(record(PROGRAM, 1))]), parse_budgets({"launches": 1}, lines={"launches": 4}),
                budget_file="pyproject.toml")  # fmt: skip
    (result,) = hold_to_standard(check_sarif(run))["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 4}


def test_findings_keep_their_fingerprint_when_only_numbers_change() -> None:
    def mark(item: Finding) -> str:
        return only_result(item)["partialFingerprints"]["lanewise/v1"]

    assert mark(finding("a", file="x.py", line=3)) == mark(finding("b", file="x.py", line=9))
    assert mark(finding("a", file="x.py", line=3)) != mark(finding("a", file="y.py", line=3))


def test_a_finding_without_a_place_has_no_location() -> None:
    result = only_result(finding())
    assert "locations" not in result
    assert result["message"]["text"] == "it waits. Fix: keep it there"
    assert result["properties"]["recoverableMicrosecondsPerStep"] == 5.0


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_in_a_name_breaks_the_document(name: str) -> None:
    text = report_sarif(report_with(finding(name, file=f"{name}.py", line=3, function=name, operators=[name])))
    hold_to_standard(text)
    assert "\x1b" not in text


# -- which file a name means ---------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> SourceFiles:
    root = tmp_path / "project"
    for path in ("train.py", "src/net/model.py", "src/net/util.py", "tests/util.py", ".venv/lib/hidden.py",
                 "env/site-packages/torch/functional.py"):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    return SourceFiles(root)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("train.py", "train.py"),
        ("src/net/model.py", "src/net/model.py"),
        # Relative to a folder of sys.path.
        ("net/model.py", "src/net/model.py"),
        ("model.py", "src/net/model.py"),
        # As it was on another machine.
        ("/builds/42/project/src/net/model.py", "src/net/model.py"),
        ("/home/ci/project/train.py", "train.py"),
        # Two could be meant.
        ("util.py", ""),
        ("tests/util.py", "tests/util.py"),
        # A file of that name elsewhere is another file.
        ("/usr/lib/python3/train.py", ""),
        ("/etc/passwd", ""),
        ("../x.py", ""),
        # Not here: said as it was recorded.
        ("serve.py", "serve.py"),
        ("hidden.py", "hidden.py"),
        ("", ""),
        ("a\0b.py", "a\0b.py"),
    ],
)
def test_a_name_means_the_file_that_ends_like_it(files: SourceFiles, name: str, path: str) -> None:
    assert files.find(name) == path


def test_a_full_path_below_the_root_is_that_file(files: SourceFiles, tmp_path: Path) -> None:
    assert files.find(str(tmp_path / "project" / "tests" / "util.py")) == "tests/util.py"
    assert files.find(str(tmp_path / "project" / "new.py")) == "new.py"
    assert files.find(str(tmp_path / "elsewhere.py")) == ""
