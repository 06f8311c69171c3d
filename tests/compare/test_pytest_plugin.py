"""The pytest plugin: inert until asked; then it records, holds the mark, and says what it could not decide."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest

pytest_plugins = "pytester"

# Not by importing it: the outer process must not load torch twice.
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="records a program")

MODEL = """
import pytest, torch
torch.set_num_threads(1)
model, batch = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(2, 8)
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """pytest in a process of its own, with the plugin loaded as an installation loads it, or by hand."""
    installed = any(entry.value == "lanewise.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "lanewise.pytest_plugin")
    return pytester.runpytest_subprocess(*plugin, "--strict-markers", "-p", "no:cacheprovider", *args)


def test_it_is_inert_unless_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys
        def test_nothing_is_imported():
            assert "lanewise.pytest_plugin" in sys.modules
            ours = {name for name in sys.modules if name.startswith("lanewise.")}
            assert ours <= {"lanewise.pytest_plugin", "lanewise._version"}
            assert not {"numpy", "polars", "torch", "msgspec"} & set(sys.modules)
    """)
    run(pytester).assert_outcomes(passed=1)


def test_the_mark_and_the_fixture_are_documented(pytester: pytest.Pytester) -> None:
    assert "max_launches=..." in run(pytester, "--markers").stdout.str()
    assert "Records a callable" in run(pytester, "--fixtures").stdout.str()


@needs_torch
def test_the_fixture_records_a_callable(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MODEL
        + """
def test_it(lanewise):
    recorded = lanewise(model, batch, steps=4)
    assert recorded.path.exists()
    assert recorded.run.steps == 4
    assert recorded.operators >= 2
    assert recorded.launches == 0
    assert recorded.step_us > 0
    assert recorded.report.schema == "lanewise.report/2"
    assert not recorded.check(max_operators=1).passed
"""
    )
    run(pytester).assert_outcomes(passed=1)


@needs_torch
def test_the_mark_passes_and_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MODEL
        + """
@pytest.mark.lanewise(max_operators=100, no=["SYN"])
def test_within(lanewise):
    lanewise(model, batch, steps=3)

@pytest.mark.lanewise(max_operators=1)
def test_over(lanewise):
    lanewise(model, batch, steps=3)

@pytest.mark.lanewise(max_operators=100)
def test_whole_within():
    model(batch)

@pytest.mark.lanewise(max_operators=1)
def test_whole_over():
    model(batch)
"""
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, failed=2)
    text = result.stdout.str()
    assert text.count("Over budget in 1 run: operators.") >= 2
    assert "allowed at most 1" in text
    assert "more: lanewise explain " in text
    assert "Traceback" not in text


@needs_torch
def test_a_failure_of_the_test_itself_is_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MODEL
        + """
@pytest.mark.lanewise(max_operators=1)
def test_it():
    model(batch)
    raise KeyError("mine")
"""
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "KeyError: 'mine'" in result.stdout.str()
    assert "Over budget" not in result.stdout.str()


@needs_torch
def test_what_cannot_be_decided_is_reported_and_fails_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MODEL
        + """
@pytest.mark.lanewise(max_launches=3)
def test_it(lanewise):
    lanewise(model, batch, steps=3)
"""
    )
    result = run(pytester, "-rP")
    result.assert_outcomes(passed=1)
    assert "launches per step: not in this recording" in result.stdout.str()


@needs_torch
def test_a_mistake_in_the_mark_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MODEL
        + """
@pytest.mark.lanewise(max_lanches=3)
def test_it(lanewise):
    lanewise(model, batch, steps=3)
"""
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "lanewise: mark lanewise has no max_lanches; it has: max_launches" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
