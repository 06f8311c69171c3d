"""The GitHub action's own script, run as the runner would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

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
