"""What can go wrong around a watched program: one clear sentence, the fallback, and the program's own result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.capture.context import native_build as build  # noqa: E402
from lanewise.capture.context.native_build import BuildError  # noqa: E402
from lanewise.errors import InputError, LanewiseError, UsageError  # noqa: E402
from lanewise.tree.tree_file import load  # noqa: E402
from tests.capture.context.paths import calls  # noqa: E402
from tests.support.command import lanewise as command  # noqa: E402
from tests.support.descent import DESCENT  # noqa: E402

TRAIN = (
    DESCENT
    + """
import sys
model = torch.nn.Linear(4, 4)
optimizer = Descent(model.parameters())
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 60):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("done")
"""
)


def run(code: str, *options: str, folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(code)
    words = [sys.executable, "-m", "lanewise", "watch", *options, str(script)]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=170, env={**os.environ, **(env or {})}, check=False
    )


def test_a_script_is_watched_and_its_tree_read(tmp_path: Path) -> None:
    done = run(TRAIN, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "40 of 60 steps" in done.stderr
    tree = load(tmp_path / "train.lw")
    assert calls(tree, "aten::linear") > 0
    # Neither the command nor its libraries stand above the program.
    assert not any("click" in text or "lanewise/" in text for text in tree.strings)
    shown = command("tree", "--min-share", "0", "-n", "500", tmp_path / "train.lw")
    assert shown.returncode == 0
    assert "aten::addmm" in shown.stdout
    assert "of host time" in shown.stdout
    kept = (tmp_path / "train.lw").read_bytes()
    again = run(TRAIN, folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, "done\n")
    assert "train-2.lw" in again.stderr
    assert "--force" in again.stderr
    assert (tmp_path / "train.lw").read_bytes() == kept
    assert calls(load(tmp_path / "train-2.lw"), "aten::linear") > 0
    named = run("import torch\ntorch.ones(2).add(1)", "-o", "train.lw", folder=tmp_path)
    assert named.returncode == 0
    assert calls(load(tmp_path / "train-3.lw"), "aten::add") == 1


def test_no_compiler_is_one_sentence_and_the_fallback(tmp_path: Path) -> None:
    env = {"CXX": "no-such-compiler", "LANEWISE_CACHE_DIR": str(tmp_path / "cache")}
    done = run(TRAIN, "--every", "10", folder=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "no-such-compiler" in done.stderr
    assert "Traceback" not in done.stderr
    watched = load(tmp_path / "train.lw").info.watched
    assert watched is not None
    assert watched.way == "windows"
    assert "no-such-compiler" in watched.reason


def test_a_compiler_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    recipe = build.make_recipe(extra_flags=("-DLANEWISE_NO_SUCH", "-no-such-flag"))
    with pytest.raises(BuildError, match="cannot compile") as caught:
        build._build(recipe, lambda _: None)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "native").glob("*.so")) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(blocked))
    said: list[str] = []
    folder = build._writable_folder(said.append)
    assert folder.is_dir()
    assert "for this run only" in said[0]


def test_a_module_that_others_could_have_written_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"")
    path.chmod(0o666)
    assert not build._is_ours(path)
    path.chmod(0o644)
    assert build._is_ours(path)


def test_two_at_once_and_one_used_twice() -> None:
    said: list[str] = []
    with lanewise.watch(measure=False) as first, lanewise.watch(measure=False, log=said.append) as second:
        torch.ones(1).add(1)
    assert "another watch()" in second.problem
    assert said == [second.problem]
    assert calls(first.tree, "aten::add") == 1
    with pytest.raises(LanewiseError, match="another watch"):
        _ = second.tree
    with pytest.raises(UsageError, match="has been used"):
        first.start()
    with lanewise.watch(measure=False) as third:
        torch.ones(1).add(1)
    assert third.problem == ""


def test_beside_torch_profiler() -> None:
    x = torch.ones(2)
    with lanewise.watch(measure=False) as watcher, torch.profiler.profile() as profiler:
        x.add(x)
    assert calls(watcher.tree, "aten::add") == 1
    assert any(event.key == "aten::add" for event in profiler.key_averages())


def test_data_loader_workers_and_their_program(tmp_path: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader
data = list(torch.arange(16.).unbind())
total = sum(batch.sum().item() for batch in DataLoader(data, batch_size=4, num_workers=2))
print(total)
"""
    done = run(code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "120.0\n")


def test_an_exception_keeps_its_traceback_exit_code_and_tree(tmp_path: Path) -> None:
    done = run("import torch\ntorch.ones(2).add(1)\nraise SystemExit(5)", folder=tmp_path)
    assert done.returncode == 5
    assert calls(load(tmp_path / "train.lw"), "aten::add") == 1
    done = run("import torch\ntorch.ones(2).add(1)\n1 / 0", "--force", folder=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "lanewise/" not in done.stderr
    assert calls(load(tmp_path / "train.lw"), "aten::add") == 1


def test_interrupted_from_the_keyboard(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.ones(2)\nprint('ready', flush=True)\nwhile True: x.add(x)")
    process = subprocess.Popen(
        [sys.executable, "-m", "lanewise", "watch", str(script)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT
    assert "internal error" not in said
    assert calls(load(tmp_path / "train.lw"), "aten::add") > 0


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with lanewise.watch(tmp_path / "no" / "such" / "folder.lw", measure=False) as watcher:
        torch.ones(1).add(1)
    assert "cannot write" in watcher.problem
    assert calls(watcher.tree, "aten::add") == 1
    kept = watcher.save(tmp_path / "kept.lw")
    with pytest.raises(LanewiseError, match="exists"):
        watcher.save(kept)
    with pytest.raises(InputError):
        load(tmp_path / "none.lw")


@pytest.mark.parametrize(
    "wrong", [{"every": 3, "steps": 4}, {"every": -1}, {"steps": 0}, {"way": "magic"}, {"max_nodes": 10}]
)
def test_values_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        lanewise.watch(**wrong)  # type: ignore[arg-type]


def test_an_error_of_ours_never_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.capture.context.native import Native

    said: list[str] = []
    watcher = lanewise.watch(measure=False, way="native", log=said.append)
    with watcher:
        torch.ones(1).add(1)

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("ours")

        monkeypatch.setattr(Native, "tree", broken)
    assert watcher.problem == "nothing more is collected: RuntimeError: ours"
    assert not build.load().snapshot()["losses"]["errors"]


def test_nothing_ran() -> None:
    watcher = lanewise.watch()
    with pytest.raises(LanewiseError, match="nothing has been collected"):
        _ = watcher.tree
    watcher.stop()


def test_on_rocm_windows_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    watcher = lanewise.watch(measure=False, every=3, steps=1)
    with watcher:
        monkeypatch.setattr(torch.version, "hip", None)
        for _ in range(12):
            torch.ones(3).add(1)
            watcher.step()
    watched = watcher.tree.info.watched
    assert watched is not None
    assert watched.way == "windows"
    assert "ROCm" in watched.reason
