"""Every example runs on the CPU, is recorded and explained: through `run`, context manager, decorator and handler."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lanewise.capture.outlook import look  # noqa: E402
from lanewise.capture.recorder import handler, record  # noqa: E402
from lanewise.fix.process_settings import put_back, settings  # noqa: E402

ROOT = Path(__file__).parents[2] / "examples"

# Examples as they are, with the source that must find their steps. Those that would compile with a C++ compiler are
# slow.
CASES: list[tuple[str, str, str]] = [
    ("matmul_add.py", "--steps 30", "function"),
    ("matmul_add.py", "--batch 4 --vector-bias --warmup --steps 30", "function"),
    ("linear.py", "--batch 8 --inputs 16 --outputs 16 --steps 30", "forward"),
    ("mlp.py", "--kind gelu --hidden 16 --inner 32 --batch 2 --steps 30", "forward"),
    ("mlp.py", "--kind swiglu --hidden 16 --inner 32 --batch 2 --steps 30", "forward"),
    ("mlp.py", "--kind geglu --hidden 16 --inner 32 --batch 2 --steps 30 --train", "optimizer"),
    ("attention.py", "--backend naive --sequence 16 --steps 30", "function"),
    ("attention.py", "--backend inplace --sequence 16 --steps 30", "function"),
    ("attention.py", "--backend math --sequence 16 --steps 30", "function"),
    ("attention.py", "--backend default --sequence 16 --steps 30", "function"),
    ("mnist.py", "--batch 2 --steps 15", "optimizer"),
    ("resnet.py", "--batch 1 --steps 15", "forward"),
    ("resnet.py", "--batch 1 --steps 15 --move-each-step --channels-last", "forward"),
    ("resnet.py", "--batch 1 --steps 15 --one-way", "forward"),
    ("llm.py", "prefill --steps 15", "forward"),
    ("llm.py", "decode --stop-test --steps 20", "forward"),
    ("llm.py", "decode --cache static --steps 20", "forward"),
    ("llm.py", "train --steps 15 --optimizer fused", "optimizer"),
    ("llm.py", "train --steps 15 --optimizer loop", "optimizer"),
    ("softmax.py", "--version torch --steps 30", "function"),
    ("softmax.py", "--version naive --steps 30", "function"),
]
COMPILED = {"unfused_chain --good", "recompile", "recompile --good", "graph_break", "graph_break --good"}
TRAINS = {"optimizer_loop", "loader_stall", "zero_fill"}
MODULES = {"host_stall", "nchw_conv", "cast_churn", "grad_in_inference", "model_moved", "synchronize"}

for _path in sorted((ROOT / "bad").glob("*.py")):
    for _flag in ("", " --good"):
        if _path.stem + _flag not in COMPILED:
            _source = "optimizer" if _path.stem in TRAINS else "forward" if _path.stem in MODULES else "function"
            _more = (
                " --layers 3"
                if _path.stem == "optimizer_loop"
                else " --milliseconds 1"
                if _path.stem == "host_stall"
                else ""
            )
            CASES.append(
                (f"bad/{_path.name}", f"--steps 30{_flag}{_more if not _flag or 'layers' in _more else ''}", _source)
            )


@pytest.fixture(autouse=True)
def _one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def runner(script: str, arguments: str) -> Callable[[], int]:
    def call() -> int:
        sys.argv = [script, *arguments.split(), "--device", "cpu"]
        runpy.run_path(str(ROOT / script), run_name="__main__")
        return 0

    return call


def step_function(script: str) -> str | None:
    return look((ROOT / script).read_text()).step or None


def recorded_by(way: str, script: str, arguments: str) -> Any:
    """A finished recorder, by one of the three ways that live in the program's process."""
    call = runner(script, arguments)
    if way == "handler":
        taken = handler()
        with torch.profiler.profile(on_trace_ready=taken, record_shapes=True):
            assert call() == 0
        return taken
    recorder = record(quick=True, step_on=step_function(script))
    if way == "decorator":
        assert recorder(call)() == 0
    else:
        with recorder:
            assert call() == 0
    return recorder


@pytest.mark.parametrize(("script", "arguments", "source"), CASES, ids=[f"{s} {a}" for s, a, _ in CASES])
def test_every_example_is_recorded_and_explained(
    script: str, arguments: str, source: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    way = ("context", "decorator", "handler")[sum(map(ord, request.node.name)) % 3]
    before = settings()
    recorder = recorded_by(way, script, arguments)
    put_back(before)  # an example chooses the precision of products, as a program may
    assert Path(script).stem in capsys.readouterr().out
    assert recorder.path is not None, recorder.problem
    recorded = recorder.recorded
    if way != "handler":
        assert (recorded.step_source, recorded.active) == (source, 3)
        assert recorded.unprofiled_step_us > 0
    report = recorder.explain()
    assert report.verdict
    assert not [finding for finding in report.findings if finding.code.startswith("ERR")]


def test_all_three_ways_were_taken() -> None:
    names = [f"test_every_example_is_recorded_and_explained[{s} {a}]" for s, a, _ in CASES]
    assert {sum(map(ord, name)) % 3 for name in names} == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["matmul_add.py", "mlp.py", "mnist.py", "llm.py", "bad/item_loop.py"])
def test_examples_through_the_command_line(script: str, tmp_path: Path) -> None:
    source = str(ROOT.parent / "src")
    words = [sys.executable, "-m", "lanewise", "run", "--quick", str(ROOT / script), "--steps", "20", "--device", "cpu"]
    done = subprocess.run(
        words,
        env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "evidence and tables" in done.stderr
    assert done.stdout.startswith(Path(script).stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("bad/recompile.py", "--steps 12"),
        ("bad/recompile.py", "--steps 30 --good"),
        ("bad/graph_break.py", "--steps 30"),
        ("bad/graph_break.py", "--steps 30 --good"),
        ("linear.py", "--compile --steps 30"),
        ("matmul_add.py", "--compile --steps 30"),
    ],
)
def test_compiled_examples(script: str, arguments: str) -> None:
    torch._dynamo.reset()
    recorder = recorded_by("context", script, arguments)
    torch._dynamo.reset()
    assert recorder.path is not None, recorder.problem
    assert recorder.explain().verdict


@pytest.mark.parametrize("script", ["vector_add.py", "softmax.py"])
def test_triton_examples_say_what_they_need(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # which the kernels' own tests set where Triton is installed
    sys.argv[:] = [script, *(["--version", "triton"] if script == "softmax.py" else []), "--device", "cpu"]
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert "nothing was run" in str(stop.value)


def test_examples_know_nothing_of_lanewise() -> None:
    for path in ROOT.rglob("*.py"):
        assert "lanewise" not in path.read_text(), path.name


def test_the_bad_programs_have_a_good_twin() -> None:
    for path in (ROOT / "bad").glob("*.py"):
        text = path.read_text()
        assert "--good" in text.split('"""')[1], path.name
        assert "args.good" in text, path.name
