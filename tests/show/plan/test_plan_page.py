"""The pages of a plan and of what `lanewise fix` suggests: everything that was tried is there, and nothing is markup."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from lanewise.fix.model import SCHEMA, ArmTime, Attempt, Check, PlanReport, Shown, Timing
from lanewise.show.page import static_page
from lanewise.show.page.html import Bundle
from lanewise.show.plan.fix_page import Fixed, fix_html
from lanewise.show.plan.plan_page import plan_html
from lanewise.show.plan.plan_text import plan_json, plan_markdown, print_plan
from tests.support.command import lanewise

pytest.importorskip("libcst", reason="edits sources")
from lanewise.edit.edit import Suggestion

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
STYLE = ':root{--good:#1a7f4b}:root[data-theme="dark"]{--good:#57c98f}table{width:100%}'


@pytest.fixture(autouse=True)
def _style(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The pages are the same where the report page was not built."""
    monkeypatch.setattr(static_page, "bundle", lambda: Bundle("", STYLE))


class Read(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.classes: dict[str, list[str]] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open = dict(attrs).get("class") or ""

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append(data)
            self.classes.setdefault(self._open, []).append(data)


def timing(ratio: float) -> Timing:
    return Timing(ratio, ratio * 0.98, ratio * 1.02, 0.01, 1e-6, "faster", 100.0, 100.0 / ratio, 20)


def plan(name: str = "cuda-graph") -> PlanReport:
    attempts = [
        Attempt(
            name,
            "graph",
            "whole",
            "one launch per call",
            "kept",
            "faster",
            "exact",
            checks=[Check("C1 values", True, "9 calls, equal in every bit"), Check("C4 edges", False, "raises")],
            timing=timing(2.5),
            prepare_s=0.5,
            repaid_after=42,
            shown=[Shown("a CUDA graph is replayed", True, "1 graph launches per call")],
            notes=["a note"],
        ),
        Attempt("compile", "compile", "whole", "compiled", "out of budget", "stopped after 5 s"),
    ]
    return PlanReport(
        SCHEMA, "0.1.0", "Model", "inference", "latency", {"card": "NVIDIA H200", "torch": "2.11.0"}, attempts, [name],
        [ArmTime("eager", 100.0, 99.0, 101.0, 60), ArmTime("plan", 40.0, 39.0, 41.0, 60)], timing(2.5), timing(1.2),
        "compile", "double precision", ["a note on the whole"], "it takes 60 us less", 21.0, 40.0,
    )  # fmt: skip


def test_the_page_of_a_plan_has_every_candidate_with_outcome_reason_and_evidence() -> None:
    page = plan_html(plan())
    read = Read(page)
    said = " ".join(read.text)
    for part in (
        "cuda-graph makes it 2.50x as fast as it was", "2.50x (2.45-2.55)", "42 calls", "out of budget",
        "stopped after 5 s",
        "C1 values", "equal in every bit", "a CUDA graph is replayed", "it takes 60 us less", "NVIDIA H200", "a note",
        "double precision", "there was no time left to try it",
    ):  # fmt: skip
        assert part in said, part
    assert read.classes["text kept"] == ["kept"]
    assert "script" not in read.tags
    assert "default-src 'none'" in page
    assert "prefers-color-scheme:dark){:root{--good:#57c98f}" in page
    assert said.index("eager") > said.index("cuda-graph"), "the fastest way comes first"


def test_the_page_of_a_script_has_its_diff_with_both_sides_marked() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = b.item()\n+a = b\n"
    read = Read(
        fix_html([Fixed(Path("x.py"), [Suggestion("item", 1, "waits", False, ("SYN101",))], diff, None, False)])
    )
    assert "-a = b.item()" in read.text
    assert "+a = b" in read.text
    assert read.tags.count("ins") == 2
    assert read.tags.count("del") == 2
    assert "One change of x.py suggested. Nothing was recorded yet." in read.text
    assert "SYN101" in read.text
    assert "Nothing to suggest for y.py." in Read(fix_html([Fixed(Path("y.py"), [], "", None, False)])).text


def test_names_are_text_and_never_markup() -> None:
    suggestion = Suggestion(HOSTILE, 1, HOSTILE, True, (HOSTILE,))
    for page in (
        plan_html(plan(HOSTILE)),
        fix_html([Fixed(Path(HOSTILE.replace("/", "")), [suggestion], f"+{HOSTILE}\n", None, True)]),
    ):
        read = Read(page)
        assert not {"script", "img"} & set(read.tags)
        assert not [name for name, _ in read.attributes if name.startswith("on")]
        assert "alert(1)" in " ".join(read.text)
        assert "\u202e" not in page
        assert "\x1b" not in page


@pytest.mark.parametrize("width", [60, 100, 200])
def test_in_a_terminal_every_reason_is_there_in_full_whatever_its_width(width: int) -> None:
    reason = f"products are computed with {'very ' * 100}few bits"
    report = plan()
    attempts = [*report.attempts, Attempt("bf16", "precision", "whole", "bfloat16", "refused", reason)]
    report = msgspec.structs.replace(report, attempts=attempts, before_after=f"{'fewer ' * 120}operators")
    printed = " ".join(text_of(report, width).split())
    assert reason in printed
    assert report.before_after in printed
    assert "bf16: bfloat16" in printed
    assert "plan: cuda-graph" in printed
    assert "…" not in printed[printed.index("bf16: bfloat16") :]  # tables mark what did not fit; sentences are whole
    page = " ".join(" ".join(Read(plan_html(report)).text).split())
    assert reason in page
    assert report.before_after in page
    assert reason in plan_markdown(report)


def test_a_plan_of_nothing_has_no_empty_tables_and_says_why() -> None:
    report = msgspec.structs.replace(plan(), attempts=[], winner=[], final=[], against_eager=None, notes=["no time"])
    printed = text_of(report, 100)
    assert "Model, inference: nothing was tried." in printed
    assert "no time" in printed
    assert "What was tried" not in printed
    assert "What was tried" not in plan_html(report)
    assert "What was tried" not in plan_markdown(report)


def text_of(report: PlanReport, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_plan(report, console)
    return console.export_text()


def test_options_may_follow_a_plan_which_is_no_program_and_takes_no_arguments(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_json(plan()))
    for words, code, said in (
        (["plan.json", "--json"], 0, '"schema": "lanewise.plan/1"'),
        (["plan.json", "--json", "-o", "again.json"], 0, ""),
        (["--json", "plan.json"], 0, '"schema": "lanewise.plan/1"'),
        (["plan.json"], 0, "cuda-graph makes it 2.50x"),
        (["plan.json", "more"], 2, "plan.json is a plan, which takes no arguments: more"),
        (["plan.json", "--magic"], 2, "No such option"),
    ):
        done = lanewise("fix", *words, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert said in done.stdout + done.stderr
    assert (tmp_path / "again.json").exists()
