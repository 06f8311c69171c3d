"""The GitHub action's own script, run as the runner would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.compare.files import write_trace
from tests.support.corpus import REPOSITORY

ACTION = REPOSITORY / "action.yml"
MORE = (("aten::mm", "gemm_kernel", 20.0), ("aten::relu", "relu_kernel", 4.0), ("aten::add", "add_kernel", 5.0))


def script() -> str:
    """The last `run: |` block."""
    text = ACTION.read_text()
    return textwrap.dedent(text[text.rindex("run: |") + len("run: |") :])


def act(folder: Path, traces: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    names = re.findall(r"(LANEWISE_\w+): \$\{\{ inputs\.(\w+) \}\}", ACTION.read_text())
    defaults = {"undecided": "pass", "traces": traces, **inputs}
    variables = {variable: defaults.get(name, "") for variable, name in names}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script()],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, **variables, "PATH": path},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lanewise.toml").write_text("[budget]\nlaunches = 2\n")
    return tmp_path


def test_it_passes_and_fails(project: Path) -> None:
    write_trace(project / "a b.json", seed=1)
    write_trace(project / "c.json", seed=2)
    good = act(project, "a b.json\nc.json\n")
    assert (good.returncode, "Within budget in 2 runs" in good.stdout) == (0, True), good.stderr
    write_trace(project / "more.json", seed=3, kernels=MORE)
    bad = act(project, "more.json", sarif="out.sarif", benchmark="out.json")
    assert bad.returncode == 1
    assert bad.stdout.startswith("::error file=lanewise.toml,line=2,")
    assert (project / "out.sarif").exists()
    assert (project / "out.json").exists()


def test_an_input_is_never_run(project: Path) -> None:
    result = act(project, "x.json; touch pwned\n$(touch pwned)\n`touch pwned`", baseline="$(touch pwned)")
    assert result.returncode == 3
    assert not (project / "pwned").exists()


def test_inputs_reach_the_script_as_variables_only() -> None:
    assert "${{" not in script()


def run_as_a_runner(action: dict[str, Any], folder: Path, given: dict[str, str]) -> tuple[int, list[str]]:
    """All steps of a composite action: inputs filled in, conditions obeyed. Its exit code, and the steps that ran."""
    assert not given.keys() - action["inputs"].keys()
    inputs = {name: given.get(name, one.get("default", "")) for name, one in action["inputs"].items()}
    missing = [name for name, one in action["inputs"].items() if one.get("required") and name not in given]
    assert not missing

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)

    ran: list[str] = []
    for step in action["runs"]["steps"]:
        condition = step.get("if", "inputs.traces != ''")
        name, wanted = re.fullmatch(r"inputs\.(\w+) != '(.*)'", condition).groups()  # type: ignore[union-attr]
        if inputs[name] == wanted:
            continue
        assert step["shell"] == "bash"
        variables = {key: filled(value) for key, value in step.get("env", {}).items()}
        path = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        code = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", filled(step["run"])],
            cwd=folder,
            env={**os.environ, **variables, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")},
            stdout=(folder / "log.txt").open("a"),
            timeout=120,
        ).returncode
        ran.append(step["name"])
        if code:
            return code, ran
    return 0, ran


def test_the_whole_action_runs_as_the_documented_workflow_calls_it(project: Path) -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load(ACTION.read_text())
    (workflow,) = re.findall(r"```yaml\n(on: .*?)```", (REPOSITORY / "docs" / "ci.md").read_text(), re.DOTALL)
    steps = yaml.safe_load(workflow)["jobs"]["performance"]["steps"]
    (given,) = [step["with"] for step in steps if "lanewise@" in step.get("uses", "")]
    (project / "old").mkdir()
    (project / "new").mkdir()
    write_trace(project / "old" / "train.json", seed=1)
    write_trace(project / "new" / "train.json", seed=2, kernels=MORE)
    code, ran = run_as_a_runner(action, project, given)
    assert (code, ran) == (1, ["Check"])
    assert "::error file=lanewise.toml,line=2," in (project / "log.txt").read_text()
    assert "| " in (project / "summary.md").read_text()
    assert (project / given["sarif"]).exists()
    assert (project / given["benchmark"]).exists()


def test_the_action_installs_what_it_is_told_to(project: Path) -> None:
    yaml = pytest.importorskip("yaml")
    write_trace(project / "train.json", seed=1)
    (project / "bin").mkdir()
    stand_in = project / "bin" / "python"
    stand_in.write_text(
        f'#!/bin/sh\ncase "$*" in *"pip install"*) echo "$*" >pip.txt ;; *) exec {sys.executable} "$@" ;; esac\n'
    )
    stand_in.chmod(0o755)
    code, ran = run_as_a_runner(yaml.safe_load(ACTION.read_text()), project, {"traces": "train.json"})
    assert (code, ran) == (0, ["Install lanewise", "Check"])
    assert (project / "pip.txt").read_text() == "-m pip install --quiet lanewise\n"
