"""Documentation of the diagnoses, from their docstrings."""

from __future__ import annotations

import textwrap

import msgspec

from lanewise.diagnose.registry import builtin_rules, find_rule
from lanewise.diagnose.rule import Rule
from lanewise.diagnose.rules.snippets import snippets

__all__ = ["first_sentence", "meaning", "rule_json", "rule_list", "rule_markdown", "rule_text"]

_RECORDED = "A test records both on the CPU: only the slow one has the finding."
_RUN = (
    "A test runs both on the CPU, with the same result. So small, and without a GPU, a recording of the slow one need not "
    "have the finding."
)
_BOTH_RUN = "A test runs both on the CPU, with the same result."

_WIDEST = 120
"""Longer lines are hard to read."""

_HEADINGS = frozenset({"Costs", "Fix", "Verify", "Silent", "Source"})


def rule_list(width: int | None = None) -> str:
    """All rules, one a line, or as many as it needs in a width."""
    rows = [f"{rule.code}  {rule.name:32} {first_sentence(rule)}" for rule in builtin_rules()]
    if width is None:
        return "\n".join(rows)
    return "\n".join(textwrap.fill(row, width, subsequent_indent=" " * 6, break_on_hyphens=False) for row in rows)


def rule_text(code: str, width: int = _WIDEST) -> str:
    """The documentation of one rule, its sentences wrapped. Raises UsageError for an unknown code."""
    rule = find_rule(code)
    head = f"{rule.code} {rule.name}"
    thresholds = [f"  {name} = {value}" for name, value in rule.thresholds.items()]
    tail = ["", "Thresholds (settings may change them):", *thresholds] if thresholds else []
    code_lines = [
        line
        for name, piece in _pieces(rule)
        for line in ("", f"{name}:", *(f"    {one}".rstrip() for one in piece.splitlines()))
    ]
    return "\n".join([head, "=" * len(head), "", _wrapped(rule.document, min(width, _WIDEST)), *code_lines, *tail])


def _wrapped(document: str, width: int) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in document.split("\n\n"))
    return "\n\n".join(textwrap.fill(one, width, break_long_words=False, break_on_hyphens=False) for one in paragraphs)


def rule_markdown(rule: Rule) -> str:
    """The documentation page of one rule."""
    lines = [f"# {rule.code} {rule.name}", ""]
    for paragraph in rule.document.split("\n\n"):
        text = " ".join(paragraph.split())
        heading, colon, rest = text.partition(": ")
        known = colon and heading in _HEADINGS
        lines += [f"**{heading}.** {rest}" if known else text, ""]
    for name, piece in _pieces(rule):
        lines += [f"**{name}.**", "", "```python", piece, "```", ""]
    if example := snippets().get(rule.code):
        lines += [_RECORDED if example.on_cpu else _BOTH_RUN if rule.kind == "validity" else _RUN, ""]
    if rule.of_tree is not None:
        lines += ["A tree of `lanewise watch` is asked the same, from sums: what it gives is a bound.", ""]
    if rule.thresholds:
        lines += ["| threshold | default |", "|---|---|"]
        lines += [f"| `{name}` | `{value}` |" for name, value in rule.thresholds.items()]
        lines.append("")
    return "\n".join(lines)


def _pieces(rule: Rule) -> list[tuple[str, str]]:
    """Two pieces of a program, and what they are: a rule about the recording has nothing slow."""
    example = snippets().get(rule.code)
    if example is None:
        return []
    names = ("Misleading", "Sound") if rule.kind == "validity" else ("Slow", "Fast")
    return list(zip(names, (example.slow.strip(), example.fast.strip()), strict=True))


def meaning(rule: Rule) -> str:
    """What a rule means: its documentation down to the first heading, on one line."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in rule.document.split("\n\n")]
    headed = (at for at, text in enumerate(paragraphs) if text.partition(": ")[0] in _HEADINGS)
    return " ".join(paragraphs[: next(headed, len(paragraphs))])


def rule_json(code: str | None) -> str:
    """One rule or all of them as data."""
    rules = builtin_rules() if code is None else (find_rule(code),)
    data = [
        {
            "code": r.code,
            "name": r.name,
            "kind": r.kind,
            "title": r.title,
            "document": r.document,
            "thresholds": r.thresholds,
            "of_tree": r.of_tree is not None,
            **({"slow": s.slow, "fast": s.fast} if (s := snippets().get(r.code)) else {}),
        }
        for r in rules
    ]
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def first_sentence(rule: Rule) -> str:
    """What a rule is, in one sentence."""
    return rule.document.split("\n", 1)[0]
