"""The slow and the fast piece of a rule's documentation run, and come to the same result."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lanewise.diagnose.registry import builtin_rules, find_rule
from lanewise.diagnose.rules.snippets import snippets
from lanewise.show.report.rule_pages import rule_markdown, rule_text

# Of these no piece of a program would say more than the page does.
WITHOUT = {
    "REG105": "every side has findings of its own",
    "REG106": "what is missing in the recording, its validity rules say",
    "MEA103": "a stall of the profiler itself",
    "MEA107": "clocks of the card",
    "MEA108": "another tool holds the device's counters",
    "MEA112": "a broken file",
    "CMP107": "depends on the operator",
    "KER101": "what to do with the kernel, its other findings say",
    "DIS105": "a setting of the library",
}


def test_every_rule_has_one_or_says_why_not() -> None:
    codes = {rule.code for rule in builtin_rules()}
    assert snippets().keys() | WITHOUT.keys() == codes
    assert not snippets().keys() & WITHOUT.keys()
    for code, snippet in snippets().items():
        assert f"```python\n{snippet.fast.strip()}\n```" in rule_markdown(find_rule(code))
        assert f"\n{'Misleading' if code.startswith('MEA') else 'Slow'}:\n    " in rule_text(code)


@pytest.fixture(scope="module")
def recorder() -> Iterator[ModuleType]:
    """A process group of one, and a compiler that is there and takes no time."""
    pytest.importorskip("torch")
    from benchmarks.diagnosis import snippets as recorder

    with recorder.one_process("cpu"):
        yield recorder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", snippets())
def test_both_come_to_the_same(code: str, recorder: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    snippet = snippets()[code]

    def result(piece: str) -> Any:
        torch.manual_seed(0)
        names: dict[str, Any] = {"torch": torch, "device": "cpu"}
        with recorder.as_before():
            exec(snippet.given + "\n" + piece, names)
        return names["y"].detach().float()

    slow, fast = result(snippet.slow), result(snippet.fast)
    torch.testing.assert_close(slow, fast, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [code for code, snippet in snippets().items() if snippet.on_cpu])
def test_a_recording_of_the_slow_one_has_the_finding_and_of_the_fast_one_has_not(
    code: str, recorder: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    snippet = snippets()[code]
    # What it costs is a few per cent of the step: one interrupted recording may miss it.
    assert any(code in recorder.found_in(snippet, snippet.slow) for _ in range(3))
    assert code not in recorder.found_in(snippet, snippet.fast)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [code for code, snippet in snippets().items() if not snippet.on_cpu])
def test_no_recording_of_a_fast_one_has_the_finding(
    code: str, recorder: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    if not recorder.is_a_step(code):
        pytest.skip("it is no step of a loop")
    assert code not in recorder.found_in(snippets()[code], snippets()[code].fast)
