"""The slow and the fast piece of a rule's documentation run, and come to the same result."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.diagnose.registry import builtin_rules, find_rule
from lanewise.diagnose.rules.snippets import snippets
from lanewise.show.report.rule_pages import rule_markdown, rule_text

# What a user can change in a line or two; the others speak of settings, of hardware or of many processes.
FAMILIES = {"SYN": 7, "LAU": 2, "MEM": 5, "OPT": 4, "KER": 6, "CMP": 2}


def test_they_belong_to_rules_and_are_shown_with_them() -> None:
    assert snippets().keys() <= {rule.code for rule in builtin_rules()}
    for family, least in FAMILIES.items():
        assert sum(code.startswith(family) for code in snippets()) >= least
    for code, snippet in snippets().items():
        assert f"```python\n{snippet.fast.strip()}\n```" in rule_markdown(find_rule(code))
        assert "\nSlow:\n    " in rule_text(code)


@pytest.mark.parametrize("code", snippets())
def test_both_come_to_the_same(code: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    snippet = snippets()[code]

    def result(piece: str) -> Any:
        torch.manual_seed(0)
        names: dict[str, Any] = {"torch": torch, "device": "cpu"}
        exec(snippet.given + "\n" + piece, names)
        return names["y"].detach().float()

    slow, fast = result(snippet.slow), result(snippet.fast)
    torch.testing.assert_close(slow, fast, rtol=1e-4, atol=1e-5)
