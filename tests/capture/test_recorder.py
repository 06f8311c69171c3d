"""`lanewise.record` as context manager, decorator and handler, in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lanewise.capture.recorder import Recorder, handler, record  # noqa: E402
from lanewise.errors import LanewiseError, UsageError  # noqa: E402
from tests.capture.boundaries.test_step_boundaries import mlp, nothing_installed, train  # noqa: E402


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANEWISE_DEBUG", "1")
    yield
    assert nothing_installed()
    assert not torch.autograd._profiler_enabled()
    assert not list(tmp_path.rglob(".recording-*"))


def steps_of(recorder: Recorder) -> list[str]:
    return sorted({name for name in recorder.trace.names if name.startswith("ProfilerStep")})


def test_a_training_loop_is_recorded_and_explained() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with record(active=4) as recorder:
        train(model, optimizer, 60)
    assert recorder.path == Path("lanewise-out/trace.json.gz").absolute()
    recorded = recorder.recorded
    assert recorded is not None
    assert (recorded.step_source, recorded.step_label, recorded.active) == ("optimizer", "SGD", 4)
    assert recorded.unprofiled_step_us is not None
    assert recorded.distortion is not None
    assert recorded.environment["versions"]["torch"] == torch.__version__
    assert len(steps_of(recorder)) == 4
    report = recorder.explain()
    assert report.steps.count == 4
    assert recorder.trace.metadata["lanewise"]["unprofiled_step_us"] == recorded.unprofiled_step_us


def test_steps_said_by_the_program() -> None:
    x = torch.ones(8, 8)
    with record(quick=True) as recorder:
        for _ in range(20):
            torch.add(x, x)
            recorder.step()
    assert recorder.recorded is not None
    assert (recorder.recorded.step_source, recorder.recorded.active) == ("call", 3)


@pytest.mark.parametrize("form", ["bare", "called"])
def test_a_decorated_function_is_recorded_at_its_first_call(form: str) -> None:
    def work(n: int, *, twice: bool = False) -> int:
        """Works."""
        model = mlp()
        train(model, torch.optim.SGD(model.parameters(), 0.1), n)
        return 2 * n if twice else n

    decorated = record(work) if form == "bare" else record(quick=True)(work)
    assert (decorated.__name__, decorated.__doc__) == ("work", "Works.")
    assert decorated(50, twice=True) == 100
    recorder = decorated.recorder
    first = recorder.path
    assert first is not None
    assert decorated(5) == 5
    assert recorder.path == first


def test_a_handler_takes_every_cycle_of_torchs_own_profiler() -> None:
    taken = handler("cycles", name="mine")
    x = torch.ones(8, 8)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=2)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=taken, record_shapes=True) as profiler:
        for _ in range(12):
            torch.add(x, x)
            profiler.step()
    assert sorted(os.listdir("cycles")) == ["mine-2.json.gz", "mine.json.gz"]
    assert taken.recorded is not None
    assert (taken.recorded.step_source, taken.recorded.active) == ("profiler", 3)
    assert taken.recorded.flags["shapes"]
    assert taken.explain().steps.count == 3


def test_record_itself_is_a_handler_too() -> None:
    recorder = record(out="here")
    with torch.profiler.profile(on_trace_ready=recorder):
        torch.ones(8, 8).sum()
    assert recorder.path == Path("here/trace.json.gz")
    assert recorder.explain().verdict


def test_an_exception_passes_and_what_was_recorded_is_kept() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = record(active=200)  # more than 48 steps can hold: only the exception ends it

    def program() -> None:
        with recorder:
            for n in range(1000):
                train(model, optimizer, 1)
                if n == 48:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert recorder.recorded is not None
    assert recorder.recorded.stopped_by == "exception"
    assert len(steps_of(recorder)) == recorder.recorded.active < 200
    assert recorder.explain().verdict


def test_operators_without_steps_are_recorded_whole() -> None:
    x = torch.ones(8, 8)
    with record(whole=True) as recorder:
        for _ in range(10):
            torch.add(x, x)
    assert recorder.recorded is not None
    assert (recorder.recorded.step_source, recorder.recorded.active) == ("none", 0)
    assert recorder.trace.names.count("aten::add") == 1
    assert recorder.explain().verdict


def cut_by_size(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recording of a whole program that is stopped as it would grow too large."""
    from lanewise.capture.file import size

    monkeypatch.setattr(size.TraceSize, "predicted", lambda self, inside=False: 300_000_000)
    x = torch.ones(8, 8)
    with record(whole=True) as recorder:
        for _ in range(100_000):
            torch.add(x, x)
            if not torch.autograd._profiler_enabled():
                break
        else:
            pytest.fail("nothing stopped the recording")
    return recorder


def test_a_whole_recording_is_cut_when_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = cut_by_size(monkeypatch)
    assert recorder.recorded is not None
    assert recorder.recorded.stopped_by == "size"


def test_what_was_cut_is_kept_where_it_cannot_be_recorded_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that was cut lost its device records: its host rows are all that there will be."""
    from lanewise.capture.profiling import faults

    lost = faults.Fault(code="no-device-records", sentence="no device record")
    monkeypatch.setattr(faults, "find", lambda *given: [lost])
    recorder = cut_by_size(monkeypatch)
    assert recorder.recorded is not None
    assert [fault.code for fault in recorder.recorded.faults] == ["no-device-records"]
    assert "aten::add" in recorder.trace.names


def test_too_few_steps_say_what_to_do() -> None:
    with record() as recorder:
        torch.ones(8, 8).sum()
    assert recorder.path is None
    assert "quick=True" in recorder.problem
    with pytest.raises(LanewiseError, match="whole=True"):
        recorder.explain()
    with pytest.raises(LanewiseError, match="whole=True"):
        recorder.save("x.json.gz")


def test_a_recorder_is_used_once() -> None:
    recorder = record(whole=True)
    with recorder:
        torch.ones(3).sum()
    with pytest.raises(UsageError, match="has been used"):
        recorder.start()
    with pytest.raises(UsageError, match="at least 1"):
        record(active=0)
    with pytest.raises(UsageError, match="decorates a function"):
        record()(5)


def test_saving_elsewhere_never_overwrites() -> None:
    with record(whole=True) as recorder:
        torch.ones(3).sum()
    kept = recorder.save("kept/mine.json.gz")
    assert kept.exists()
    with pytest.raises(LanewiseError, match="exists"):
        recorder.save(kept)
    recorder.save(kept, force=True)


def test_nested_recorders_do_not_fight() -> None:
    x = torch.ones(8, 8)
    with record(whole=True) as outer, record(whole=True, name="inner") as inner:
        torch.add(x, x)
    assert outer.path is not None
    assert inner.path is None
    assert "another torch profiler" in inner.problem


def test_a_program_that_profiles_itself_keeps_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = record(name="ours")
    with recorder:
        train(model, optimizer, 5)
        with torch.profiler.profile() as theirs:
            train(model, optimizer, 5)
        theirs.export_chrome_trace("theirs.json.gz")
        count = len(theirs.key_averages())
    assert count > 5
    assert recorder.path == Path("theirs.json.gz").absolute()
    assert recorder.explain().verdict


def test_rows_that_the_program_only_printed_are_saved_for_it() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = record(name="ours")
    with recorder:
        train(model, optimizer, 20)
        with torch.profiler.profile() as theirs:
            train(model, optimizer, 5)
        assert theirs.key_averages()
    assert recorder.path == Path("lanewise-out/ours.json.gz").absolute()
    assert recorder.recorded is not None
    assert recorder.recorded.stopped_by == "profiler"
    assert recorder.recorded.unprofiled_step_us is not None


def test_their_profiler_in_the_middle_of_our_recording_ends_ours() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = record(active=1000)
    with recorder:
        while not torch.autograd._profiler_enabled():
            train(model, optimizer, 1)
        train(model, optimizer, 3)
        with torch.profiler.profile() as theirs:
            train(model, optimizer, 2)
        assert theirs.key_averages()
    assert recorder.recorded is not None
    assert recorder.recorded.stopped_by == "profiler"
    assert recorder.recorded.active == 3


def test_their_steps_are_steps_and_time_the_program() -> None:
    x = torch.ones(8, 8)
    recorder = record()
    with recorder:
        schedule = torch.profiler.schedule(wait=10, warmup=1, active=3, repeat=1)
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler("own")) as profiler:
            for _ in range(20):
                torch.add(x, x)
                profiler.step()
    assert recorder.path == Path("own/trace.json.gz").absolute()
    report = recorder.explain()
    assert report.steps.count == 3
    assert report.regime.unprofiled


def test_a_forked_child_is_left_alone() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    read, write = os.pipe()
    with record(active=5) as recorder:
        train(model, optimizer, 10)
        child = os.fork()
        if child == 0:
            try:
                train(model, optimizer, 60)
                os.write(write, b"%d" % len(list(Path().rglob("*.json*"))))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        train(model, optimizer, 50)
    assert os.read(read, 10) == b"0"
    assert recorder.path is not None


def test_an_unwritable_folder_sends_the_trace_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with record(out="file", whole=True) as recorder:
        torch.ones(3).sum()
    assert recorder.path is not None
    assert recorder.path.parent != tmp_path
    recorder.path.unlink()


def test_flags_end_up_in_the_trace() -> None:
    model = mlp()
    with record(stacks=True, memory=True, quick=True) as recorder:
        train(model, torch.optim.SGD(model.parameters(), 0.1), 20)
    assert recorder.recorded is not None
    assert recorder.recorded.flags == {
        "shapes": True,
        "stacks": True,
        "memory": True,
        "sync_events": False,
        "all_threads": False,
    }
    assert recorder.recorded.faults == []
    assert len(recorder.trace["python_args"]["event"]) > 0
    assert len(recorder.trace["memory"]["time"]) > 0


def test_the_demo_programs_are_explained_and_their_traces_stay(tmp_path: Path) -> None:
    from lanewise.capture.demo import record_demo

    for name in ("mlp", "matmul_add"):
        report = record_demo(name, tmp_path)
        assert Path(report.source.path).absolute() == tmp_path / f"demo-{name}.json.gz"
        assert Path(report.source.path).exists()
        assert report.steps.count >= 3  # as many as fit into the time, on a busy machine, too
        assert report.regime.unprofiled


def test_without_torch_recording_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a))
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(LanewiseError, match="pip install torch"):
        record().start()


def test_step_marks_do_not_cross_the_optimizers_own_annotation(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with record(out=tmp_path, active=30) as recorder:
        for _ in range(70):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    trace = recorder.trace
    assert trace.nesting.crossing == 0
    marks = [(trace.name_of(i), int(trace.start[i]), int(trace.end[i])) for i in range(len(trace))]
    steps = [mark for mark in marks if mark[0].startswith("ProfilerStep#")]
    inner = [mark for mark in marks if mark[0].startswith("Optimizer.step#")]
    assert len(steps) == len(inner) == 30
    for (_, begin, end), (_, inner_begin, inner_end) in zip(sorted(steps), sorted(inner), strict=True):
        assert begin <= inner_begin < inner_end <= end
    assert torch.autograd.profiler.record_function.__exit__.__code__.co_name == "__exit__"


def test_a_handler_does_not_count_the_step_that_stop_cuts_off(tmp_path: Path) -> None:
    # After the last `step()` torch opens one more step, which holds nothing; it would be the fastest of all.
    h = handler(tmp_path)
    x = torch.ones(64, 64)
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=10), on_trace_ready=h) as p:
        for _ in range(6):
            torch.mm(x, x)
            p.step()
    assert h.recorded is not None
    assert h.recorded.active == 4
    assert list(h.trace.steps.number) == [2, 3, 4, 5]
    assert h.recorded.steps_before == 2


def test_a_handler_that_cannot_write_warns_and_lets_the_program_go_on(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file in the way")
    h = handler(tmp_path / "out")

    def train() -> None:
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=2)
        with torch.profiler.profile(schedule=schedule, on_trace_ready=h) as p:
            for _ in range(3):
                torch.ones(3).sum()
                p.step()

    with pytest.warns(UserWarning, match="saved no trace"):
        train()
    assert h.path is None
    assert "saved no trace" in h.problem


def test_the_handler_serves_a_trainer_with_callbacks(tmp_path: Path) -> None:
    """The way in which HF Trainer and Lightning drive a profiler: entered, stepped and left from callbacks."""
    h = handler(tmp_path, name="trainer")
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=2, warmup=2, active=5, repeat=2), on_trace_ready=h, record_shapes=True
    )
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    profiler.start()
    for _ in range(20):
        with torch.profiler.record_function("run_training_batch"):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        profiler.step()
    profiler.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trainer-2.json.gz", "trainer.json.gz"]
    assert h.recorded is not None
    assert (h.recorded.active, h.recorded.step_source) == (5, "profiler")
    assert h.explain().verdict
