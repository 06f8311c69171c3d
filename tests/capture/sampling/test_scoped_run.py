"""`lanewise run --scopes`: what stands around Proton, by one that writes what it is told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lanewise.cli.recording import scoped_run
from tests.machine_code.test_scopes import EVENTS
from tests.support.command import lanewise as command


class Proton(ModuleType):
    """Writes its events where it was told to; knows when it was switched off."""

    def __init__(self) -> None:
        super().__init__("triton.profiler")
        self.asked: dict[str, Any] = {}
        self.off_after: int | None = None
        self.launches = 0

    def start(self, name: str, **asked: Any) -> int:
        self.asked = {"name": name, **asked}
        return 5

    def deactivate(self, session: int) -> None:
        assert session == 5
        assert self.off_after is None
        self.off_after = self.launches

    def finalize(self, session: int) -> None:
        assert session == 5
        if self.launches:
            Path(f"{self.asked['name']}.chrome_trace").write_text(json.dumps({"traceEvents": EVENTS}))


@pytest.fixture
def proton(monkeypatch: pytest.MonkeyPatch) -> Proton:
    made, language, triton = Proton(), ModuleType("triton.profiler.language"), ModuleType("triton")
    hooks: list[Any] = []
    language.enable_semantic = made.__dict__.setdefault("semantics", []).append  # type: ignore[attr-defined]
    made.language = language  # type: ignore[attr-defined]
    triton.profiler = made  # type: ignore[attr-defined]
    triton.knobs = SimpleNamespace(runtime=SimpleNamespace(launch_exit_hook=SimpleNamespace(add=hooks.append)))  # type: ignore[attr-defined]
    made.__dict__["hooks"] = hooks
    for module in (triton, made, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def go(proton: Proton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *launched: str) -> list[str]:
    said: list[str] = []
    ended: list[Any] = []
    monkeypatch.setattr(scoped_run, "say", said.append)
    monkeypatch.setattr("lanewise.cli.recording.explain_kernels.say", said.append)
    monkeypatch.setattr(scoped_run.atexit, "register", ended.append)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    scoped_run.start({"out": str(tmp_path / "out"), "name": "train", "explain": True, "kernel": "sums"})
    for name in launched:
        proton.launches += 1
        for hook in proton.__dict__["hooks"]:
            hook(SimpleNamespace(data={"name": name}))
    ended[0]()
    return said


def test_some_launches_of_the_kernel_are_timed_and_written(
    proton: Proton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = go(proton, tmp_path, monkeypatch, "other", "sums", "other", "sums", "sums", "sums")
    assert proton.asked["backend"] == "instrumentation"
    assert proton.off_after == 4
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert names == ["train-rank1.scopes.json"]
    assert said.startswith("next: lanewise kernel ")


def test_a_kernel_that_was_not_launched_is_said(
    proton: Proton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert go(proton, tmp_path, monkeypatch, "other") == ["nothing was timed inside of kernels: sums was not launched"]


def test_without_triton_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(scoped_run, "say", said.append)
    monkeypatch.setattr("lanewise.cli.recording.explain_kernels.say", said.append)
    monkeypatch.setitem(sys.modules, "triton", None)
    scoped_run.start({"out": str(tmp_path), "name": "train", "explain": True, "kernel": "sums"})
    assert len(said) == 1
    assert "Proton comes with `pip install triton`" in said[0]


def test_it_goes_with_nothing_that_records_steps() -> None:
    pytest.importorskip("torch")
    done = command("run", "--scopes", "sums", "--sample", "-c", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lanewise: --sample records no steps: leave out --scopes\n"
