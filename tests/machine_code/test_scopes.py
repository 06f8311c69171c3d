"""Scopes of Triton kernels, as Proton writes them: by scope and warp, as text, as data and as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.reading.kernel import kernel
from lanewise.errors import InputError
from lanewise.machine_code.sampled.scopes import Span, read_scopes, scoped_kernels


def event(
    scope: str, begin: float, clocks: float, *, block: int = 0, warp: int = 0, kernel: str = "sums"
) -> dict[str, Any]:
    return {
        "cat": kernel, "name": scope, "ph": "X", "pid": f"{kernel} Core7 CTA{block}", "tid": f"warp {warp} (line 0)",
        "ts": begin / 1000, "dur": clocks / 1000, "cname": "good", "args": {"call_stack": []},
    }  # fmt: skip


EVENTS = [
    event("loop", 0, 900), event("load", 10, 300), event("load", 400, 300), event("store", 900, 100),
    event("loop", 0, 500, warp=1), event("store", 500, 500, warp=1),
    event("loop", 50, 900, block=3),
    event("<b>", 0, 10, kernel="other"),
    {"cat": "call_path", "name": "x", "ph": "X", "pid": "Kernel Call Path", "tid": "path 0", "ts": 0, "dur": 5},
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "train.scopes.json"
    file.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": EVENTS}))
    return file


def spans_of(events: list[dict[str, Any]]) -> list[Span]:
    return [Span("sums", 0, 0, one["name"], 1000 * one["ts"], 1000 * one["dur"]) for one in events]


def run(*words: str) -> str:
    done = CliRunner().invoke(kernel, words, catch_exceptions=False, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_clocks_of_a_scope_are_added_up_over_blocks_and_by_warp(path: Path) -> None:
    sums, other = scoped_kernels(read_scopes(path))
    assert (sums.name, sums.blocks, other.name) == ("sums", 2, "other")
    by_name = {scope.name: scope for scope in sums.scopes}
    assert sums.scopes[0].name == "loop"
    loop = by_name["loop"]
    assert (loop.spans, loop.longest) == (3, pytest.approx(900))
    assert loop.warps == {0: pytest.approx(900), 1: pytest.approx(500)}
    # Two warps of 1000 clocks and one of 900.
    assert loop.share == pytest.approx(2300 / 2900)
    assert by_name["load"].share == pytest.approx(600 / 2900)
    assert {span.block for span in sums.drawn} == {0}


def test_launches_are_kept_apart() -> None:
    later = [event(one["name"], 1000 * one["ts"] + 1e6, 1000 * one["dur"]) for one in EVENTS[:4]]
    (sums,) = scoped_kernels(spans_of([*EVENTS[:4], *later]))
    assert {scope.name: round(scope.share, 2) for scope in sums.scopes} == {"loop": 0.9, "load": 0.6, "store": 0.1}
    assert len(sums.drawn) == 4


def test_what_proton_wrote_on_a_card_is_read() -> None:
    (sums,) = scoped_kernels(read_scopes(Path(__file__).parent / "two_blocks.scopes.json"))
    assert (sums.name, sums.blocks) == ("scoped_sums", 2)
    shares = {scope.name: scope.share for scope in sums.scopes}
    assert shares["tiles"] > 0.9
    assert shares["tiles"] + shares["sum"] == pytest.approx(1, abs=0.01)
    assert set(sums.scopes[0].warps) == {0, 1, 2, 3}
    assert {span.warp for span in sums.drawn} == {0, 1, 2, 3}


def test_as_text(path: Path) -> None:
    text = run(str(path))
    assert "sums 2 blocks" in text
    assert "79 % loop: 767 clocks on average, 900 at most, 3 times; 900 in warp 0, 500 in warp 1" in text
    assert "other" not in run(str(path), "--name", "sums")


def test_as_data(path: Path) -> None:
    data = json.loads(run(str(path), "--json"))
    assert data["schema"] == "lanewise.scopes/1"
    assert data["kernels"][0]["scopes"][0]["warps"] == {"0": pytest.approx(900), "1": pytest.approx(500)}


def test_as_a_page_with_a_row_for_each_warp(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(str(path), "-o", str(page))
    html = page.read_text()
    assert html.count("<svg ") == 2
    assert html.count("<rect ") == 6 + 1
    assert ">warp 1</text>" in html
    assert "<title>load: 300 clocks</title>" in html
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("text", "said"), [("[1", "no file of scopes"), ("{}", "no file of scopes"), ('{"traceEvents": []}', "no scopes")]
)
def test_what_has_no_scopes_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.scopes.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as stop:
        run(str(path))
    assert "\n" not in str(stop.value)
