"""pytest plugin: budgets on what a test does. Inert unless a test asks: nothing else is imported, nothing is recorded.

    @pytest.mark.lanewise(max_launches=40, max_waits=0, no=["SYN101"])
    def test_forward(lanewise):
        recorded = lanewise(model, batch)          # called a few times, recorded, held to the mark
        assert recorded.launches < 30

A marked test that does not use the fixture is recorded as a whole. Times are decided by an interval over the recorded
steps: one process says little about the next, so a limit that cannot be decided is reported and fails nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lanewise.compare.check import CheckReport
    from lanewise.compare.sides.run import Run
    from lanewise.report.model import Report
    from lanewise.trace.model import Trace

__all__ = ["LIMITS", "Recorded", "Recorder"]

LIMITS: dict[str, tuple[str, str]] = {
    "max_launches": ("launches", "max"),
    "max_kernels": ("kernels_per_step", "max"),
    "max_copies": ("copies", "max"),
    "max_waits": ("waits", "max"),
    "max_operators": ("operators", "max"),
    "max_step_us": ("step_time", "max_us"),
    "max_device_us": ("device_time", "max_us"),
    "max_memory_mb": ("memory_peak", "max_mb"),
    "min_busy_share": ("busy_share", "min"),
}
"""Keyword of the mark -> budget and its limit (see `lanewise.compare.budget`)."""

_MARK = "lanewise"
_FIXTURE = "lanewise"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    limits = ", ".join(f"{name}=..." for name in LIMITS)
    config.addinivalue_line("markers", f"{_MARK}({limits}, no=[codes]): budgets on what the test runs, per step")


class Recorded:
    """One recording.

    Attributes:
        trace: the recorded trace. path: its file.
        run: what it did per step.
    """

    def __init__(self, path: Path) -> None:
        from lanewise.compare.diff import run_of
        from lanewise.diagnose.settings import load_settings
        from lanewise.trace.reader import read

        self.path = path
        self.trace: Trace = read(str(path), cache=False)
        self._settings = load_settings()
        self.run: Run = run_of(self.trace, settings=self._settings)

    @property
    def report(self) -> Report:
        """What `lanewise explain` says."""
        from lanewise.diagnose.explain import explain

        return explain(self.trace, settings=self._settings)

    @property
    def codes(self) -> set[str]:
        """Codes of the findings that hold."""
        return {finding.code for finding in self.run.findings if finding.kind != "note"}

    @property
    def launches(self) -> float:
        """Launches per step; 0 on a machine without a device."""
        return self.run.counts.get("launches", 0.0)

    @property
    def operators(self) -> int:
        """Operators per step, on a machine without a device; 0 with one."""
        return 0 if self.run.work.device else len(self.run.work.at)

    @property
    def step_us(self) -> float:
        """Step time, without the profiler where it was measured, us."""
        return self.run.step_ns / 1e3

    def check(self, **limits: Any) -> CheckReport:
        """Decide limits, written as in the mark. Raises UsageError for one that does not exist."""
        from lanewise.compare.budget import parse_budgets
        from lanewise.compare.check import check
        from lanewise.compare.sides.arm import Arm

        return check(Arm("this test", [self.run]), parse_budgets(_table(limits), source=f"mark {_MARK}"))


class Recorder:
    """The fixture: records a callable and holds it to the mark of the test.

    Attributes:
        folder: where traces are written. recordings: those of this test so far.
    """

    def __init__(self, node: pytest.Item, folder: Path) -> None:
        self._node = node
        self.folder = folder
        self.recordings: list[Recorded] = []

    def __call__(self, target: Callable[..., Any], /, *args: Any, steps: int = 10, **kwargs: Any) -> Recorded:
        """Call `target(*args, **kwargs)` until `steps` calls are recorded, and fail the test if the mark is exceeded.

        A few calls before are left out (they compile and fill caches) and some are timed without the profiler.
        """
        from lanewise.capture.profiling.profiler import Flags
        from lanewise.capture.recorder import Recorder as Recording
        from lanewise.capture.recording import Options
        from lanewise.capture.schedule import Plan

        plan = Plan(skip=2, timed_min=5, timed_max=10, timed_seconds=0.5, warmup=1, active_min=steps, active_max=steps)
        recording = Recording(
            Options(plan=plan, flags=Flags(memory=True), out=self.folder, name=f"call{len(self.recordings)}")
        )
        with recording:
            for _ in range(plan.skip + plan.timed_max + plan.warmup + steps + 1):
                target(*args, **kwargs)
                recording.step()
        return self.keep(recording)

    def keep(self, recording: Any) -> Recorded:
        """Read a finished recording and hold it to the mark."""
        from lanewise.errors import LanewiseError

        try:
            if recording.path is None:
                raise LanewiseError(recording.problem or "nothing was recorded: the test ran nothing of torch")
            recorded = Recorded(recording.path)
            self.recordings.append(recorded)
            mark = self._node.get_closest_marker(_MARK)
            if mark is not None and mark.kwargs:
                _hold(self._node, recorded, mark.kwargs)
        except LanewiseError as error:
            pytest.fail(f"lanewise: {error}", pytrace=False)
        return recorded


@pytest.fixture(name=_FIXTURE)
def lanewise_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Records a callable: `recorded = lanewise(model, batch)`; see `lanewise.pytest_plugin.Recorder`."""
    return Recorder(request.node, tmp_path / "lanewise")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Record a marked test as a whole if it does not use the fixture."""
    if pyfuncitem.get_closest_marker(_MARK) is None or _FIXTURE in pyfuncitem.fixturenames:
        return (yield)
    from lanewise.capture.recorder import record

    config: Any = pyfuncitem.config
    recorder = Recorder(pyfuncitem, config._tmp_path_factory.mktemp("lanewise"))
    recording = record(out=recorder.folder, name="test", whole=True, memory=True)
    with recording:
        outcome = yield
    recorder.keep(recording)
    return outcome


def _hold(node: pytest.Item, recorded: Recorded, limits: Mapping[str, Any]) -> None:
    """Fail the test for every limit that is exceeded; report those that cannot be decided."""
    from lanewise.show.check.check_text import summary_line
    from lanewise.show.safe_text import clean

    report = recorded.check(**limits)
    over = [result for result in report.results if result.status == "over"]
    open_ = [result for result in report.results if result.status in {"undecided", "skipped"}]
    if open_:
        node.add_report_section("call", "lanewise", "\n".join(clean(result.sentence, 500) for result in open_))
    if over:
        lines = [summary_line(report), *(f"  {clean(result.sentence, 500)}" for result in over)]
        lines.append(f"  more: lanewise explain {recorded.path}")
        pytest.fail("\n".join(lines), pytrace=False)


def _table(limits: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of the mark as a table of budgets."""
    from lanewise.errors import UsageError

    table: dict[str, Any] = {}
    for name, value in limits.items():
        if name == "no":
            table["forbid"] = [value] if isinstance(value, str) else list(value)
        elif name in LIMITS:
            budget, limit = LIMITS[name]
            table.setdefault(budget, {})[limit] = value
        else:
            raise UsageError(f"mark {_MARK} has no {name}; it has: {', '.join([*LIMITS, 'no'])}")
    return table
