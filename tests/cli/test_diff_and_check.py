"""`lanewise diff`, `check` and `baseline`: output, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compare.files import CARD, write_trace
from tests.support.command import lanewise as run

MORE = (("aten::mm", "gemm_kernel", 20.0), ("aten::relu", "relu_kernel", 4.0), ("aten::add", "add_kernel", 5.0))


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    return write_trace(tmp_path / "net_before.json", seed=1), write_trace(
        tmp_path / "net_after.json", seed=2, kernels=MORE
    )


def test_diff_says_what_changed(traces: tuple[Path, Path]) -> None:
    result = run("diff", *traces)
    assert (result.returncode, result.stderr) == (0, "")
    assert "relu new" in " ".join(result.stdout.split())
    assert "2 launches became 3" in " ".join(result.stdout.split())
    assert "step of before" in result.stdout
    assert "\x1b" not in result.stdout


def test_diff_json_is_one_versioned_object(traces: tuple[Path, Path]) -> None:
    data = json.loads(run("diff", *traces, "--json").stdout)
    assert data["schema"] == "lanewise.diff/1"
    (difference,) = data["differences"]
    assert {"verdict", "step", "waterfall", "counts", "device", "coverage", "findings", "environment"} <= set(
        difference
    )
    water = difference["waterfall"]
    assert water["a_ns"] + sum(item["ns"] for item in water["items"]) == water["b_ns"]
    assert [c["how"] for c in difference["device"] if c["how"] not in {"same"}] == ["new"]


def test_diff_markdown_and_files(traces: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "diff.md"
    assert run("diff", *traces, "--format", "md", "-o", out).returncode == 0
    assert out.read_text().startswith("## after against before")
    again = run("diff", *traces, "--format", "md", "-o", out)
    assert (again.returncode, "--force" in again.stderr) == (2, True)


def test_diff_of_three(traces: tuple[Path, Path], tmp_path: Path) -> None:
    third = write_trace(tmp_path / "net_third.json", seed=3)
    text = run("diff", *traces, third).stdout
    assert "after against before" in text
    assert "third against before" in text


def test_diff_takes_directories_of_repeats(tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for seed in range(4):
            write_trace(tmp_path / side / f"run{seed}.json", seed=seed + 10 * ord(side))
    data = json.loads(run("diff", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert data["base"]["runs"] == 4
    assert data["differences"][0]["step"]["unit"] == "runs"
    assert not data["differences"][0]["changed"]


def refused(*args: str | Path, code: int, said: str, cwd: Path | None = None) -> None:
    result = run(*args, cwd=cwd)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr


def test_diff_errors_are_one_line(traces: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = traces
    other = write_trace(tmp_path / "other.json", card={**CARD, "name": "NVIDIA A100-SXM4-80GB"})
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    nonsense = tmp_path / "nonsense.json"
    nonsense.write_text("not a trace")
    refused("diff", before, code=2, said="needs two sides")
    refused("diff", before, before, code=2, said="hold the same recording")
    refused("diff", before, other, code=2, said="card differs")
    refused("diff", before, empty, code=3, said="no step, no operator and no device work")
    refused("diff", before, nonsense, code=3, said="nonsense.json")
    refused("diff", before, tmp_path / "missing.json", code=3, said="missing.json")
    refused("diff", before, after, "--step-time", "5", code=2, said="1 step time for 2 sides")
    assert run("diff", before, other, "--anyway").returncode == 0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.lanewise.budget]\nbaseline = "base.json"\nlaunches = { max_increase = 0 }\nkernels = "same"\n'
    )
    saved = run("baseline", "save", write_trace(tmp_path / "old.json", seed=1), "-o", tmp_path / "base.json")
    assert saved.returncode == 0
    assert "1 run" in saved.stderr
    return tmp_path


def test_check_passes_and_fails_with_its_exit_code(project: Path) -> None:
    same = run("check", write_trace(project / "new.json", seed=2), cwd=project)
    assert same.returncode == 0
    assert "Within budget in 1 run" in same.stdout
    more = run("check", write_trace(project / "more.json", seed=3, kernels=MORE), cwd=project)
    assert more.returncode == 1
    assert "Over budget in 1 run: launches, kernels" in more.stdout
    assert more.stderr == ""


def test_check_writes_what_github_reads(project: Path) -> None:
    trace = write_trace(project / "more.json", seed=3, kernels=MORE)
    summary, sarif, data = project / "summary.md", project / "out.sarif", project / "benchmark.json"
    result = run("check", trace, "--github", "--sarif", sarif, "--benchmark", data, cwd=project,
                 GITHUB_STEP_SUMMARY=str(summary))  # fmt: skip
    assert result.returncode == 1
    commands = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert commands[0].startswith("::error file=pyproject.toml,line=3,title=lanewise launches::launches per step: 3")
    assert summary.read_text().startswith("## lanewise: Over budget")
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    entries = json.loads(data.read_text())
    assert {"name", "unit", "value"} <= set(entries[0])


def test_check_json(project: Path) -> None:
    data = json.loads(run("check", write_trace(project / "new.json", seed=2), "--json", cwd=project).stdout)
    assert (data["schema"], data["passed"]) == ("lanewise.check/1", True)


def test_check_errors_are_one_line(tmp_path: Path, project: Path) -> None:
    trace = write_trace(tmp_path / "new.json", seed=2)
    refused("check", trace, "--baseline", "gone.json", cwd=project, code=3, said="gone.json")
    (project / "pyproject.toml").write_text("[tool.lanewise.budget]\nlaunchs = 3\n")
    refused("check", trace, cwd=project, code=2, said="no budget 'launchs'")
    (project / "pyproject.toml").write_text('[tool.lanewise.budget]\nkernels = "same"\n')
    refused("check", trace, cwd=project, code=2, said="refers to a baseline")
    (project / "pyproject.toml").write_text("[project]\n")
    refused("check", trace, cwd=project, code=2, said="no budgets here or above")
    (project / "pyproject.toml").write_text("[[[")
    refused("check", trace, cwd=project, code=3, said="no TOML")


def test_undecided_may_fail(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.lanewise.budget]\nbaseline = "base.json"\nstep_time = { max_increase = 0.05 }\n'
    )
    trace = write_trace(project / "new.json", seed=2)
    assert run("check", trace, cwd=project).returncode == 0
    assert "undecided" in run("check", trace, cwd=project).stdout
    assert run("check", trace, "--undecided", "fail", cwd=project).returncode == 1
