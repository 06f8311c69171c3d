"""Everything in a trace is data: no field of it ever runs, changes the page's structure, or leaves the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.page.html import json_for_html, report_html
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.trace.reading_losses import Reading
from tests.support.builder import H100, TraceBuilder
from tests.web.waiting import until

Open = Callable[..., Any]

PAYLOADS = [
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!--<script>window.pwned=1//",
    '"><svg onload=window.pwned=1>',
    "javascript:window.pwned=1",
    "'-window.pwned=1-'",
    "${window.pwned=1}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u2028window.pwned=1\u2029",
    "__proto__",
    "\u202e\u2066gnp.exe\u200b",
    "\x00\x1b[2Jcontrol\x07",
    "`x` *y* [z](javascript:window.pwned=1) |",
    "=cmd|' /C calc'!A0",
    "a" * 100_000,
]


def planted(payload: str) -> Trace:
    """A trace with a payload in every field that holds text."""
    b = TraceBuilder(
        metadata={
            "deviceProperties": [{**H100, "name": payload}],
            "cuda_driver_version": payload,
            "traceName": payload,
            "lanewise": {
                "schema": 1,
                "lanewise": payload,
                "unprofiled_step_us": 900.0,
                "step_label": payload,
                "command": [payload],
                "environment": {payload: payload, "gpu": {"name": payload}},
                "faults": [{"code": payload, "sentence": payload}],
            },
        }
    )
    for _ in range(3):
        with b.step(), b.frame(f"{payload}.py(1): {payload}"), b.frame(f"nn.Module: {payload}"), b.span(payload):
            for _ in range(25):
                with b.op(payload, dims=[[payload]], types=[payload], strides=[[payload]], concrete=[payload]):
                    b.launch(payload)
            b.copy(source="pageable")
            with b.op("aten::item"):
                b.synchronize()
    text = b.text(payload)
    b.row("memory", time=10, lane=0, bytes=5, address=1, allocated=5, reserved=9, device_type=1, device_id=0)
    b.row("counters", name=b._name(payload), key_text=text, time=10, value=1.0, lane=0)
    call = b.launch(payload)[1]
    b.row(
        "collective_args",
        event=call,
        collective_text=text,
        dtype_text=text,
        group_text=text,
        description_text=text,
        ranks_text=text,
        in_elements=1,
        out_elements=1,
        group_size=2,
        rank=0,
        sequence_number=1,
        asynchronous=0,
    )
    b.row(
        "triton_args",
        event=call,
        kernel_file_text=text,
        kernel_hash_text=text,
        grid_text=text,
        num_warps=4,
        num_stages=2,
    )
    b.row("sync_args", event=call, sync_text=text, wait_on_stream=1, wait_on_record=-1, wait_on_event=-1)
    b.lane("host", payload[:60], payload[:60])
    trace = b.build(
        reading=Reading(
            source=f"/somewhere/{payload}.json", generation=payload, digest=payload, unknown_categories={payload: 3}
        )
    )
    trace.reading.lose(payload, payload)
    trace.reading.repair(payload, payload)
    lanes = trace["lanes"]
    labels = lanes["label"].copy()
    labels[:] = payload[:128]
    lanes["label"] = labels  # type: ignore[index]
    return trace


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_payload_in_every_field_does_nothing_in_any_view(payload: str, page_of: Open) -> None:
    page = page_of(planted(payload)).page
    base = page.url.split("#")[0]
    for hash_ in (
        "",
        "#view=timeline",
        "#view=calls",
        "#view=tables&table=operators",
        "#view=tables&table=kernels",
        "#view=tables&table=memory",
    ):
        page.evaluate(f"location.hash = '{hash_}'")
        page.wait_for_timeout(60)
        closed = page.locator("details:not([open]) > summary:visible")
        for _ in range(6):  # each click takes one of them away
            if closed.count():
                closed.first.click()
        rows = page.locator("tr.clickable")
        if rows.count():
            rows.first.click()
        if "timeline" in hash_:
            page.locator(".canvas-box canvas").focus()
            for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "m"):
                page.keyboard.press(key)
                page.wait_for_timeout(15)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("Object.prototype.pwned === undefined && ({}).length === undefined")
    # Nothing but what the page itself is made of.
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, form, base').length") == 0
    links = page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    assert page.url.split("#")[0] == base
    shown = page.evaluate("document.body.innerText")
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", shown)
    assert "a" * 2_000 not in shown


def test_invalid_unicode_in_the_file_is_mended_and_shown(page_of: Open, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(
        b'{"schemaVersion":1,"traceEvents":['
        b'{"ph":"X","cat":"cpu_op","name":"lone \\ud800 half","pid":1,"tid":1,"ts":1,"dur":5},'
        b'{"ph":"X","cat":"cpu_op","name":"bytes \xff\xfe\xc0\xaf","pid":1,"tid":1,"ts":10,"dur":5}]}'
    )
    page = page_of(read(str(path), cache=False)).page
    assert "repaired" in page.locator(".notes").inner_text()
    page.evaluate("location.hash = '#view=tables&table=operators'")
    page.locator("tbody td").first.wait_for()
    text = page.locator("tbody").inner_text()
    assert "lone" in text
    assert "bytes" in text


def test_names_without_end_do_not_widen_a_view(page_of: Open) -> None:
    page = page_of(planted("A" * 100_000)).page
    for view in ("overview", "timeline", "calls", "tables"):
        page.evaluate(f"location.hash = '#view={view}'")
        page.locator("main").wait_for()
        page.wait_for_timeout(80)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, view
        page.keyboard.press("ArrowRight")  # in the timeline: what is selected is shown below
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, view


def test_names_with_markup_are_shown_as_text(page_of: Open) -> None:
    page = page_of(planted("<b>bold</b>"), "#view=tables&table=kernels").page
    assert "<b>bold</b>" in page.locator("tbody").inner_text()
    assert page.locator("tbody b").count() == 0


def test_the_policy_stops_what_would_slip_through(page_of: Open) -> None:
    watched = page_of(planted("harmless"))
    page = watched.page
    attempts = {
        "inline script": "const s = document.createElement('script'); s.append('window.pwned=1'); "
        "document.body.append(s)",
        "handler": "document.body.setAttribute('onclick', 'window.pwned=1'); document.body.click()",
        "markup": "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>')",
        "evaluation": "(0, eval)('window.pwned=1')",
        "request": "fetch('http://127.0.0.1:9/').then(() => { window.pwned = 1 })",
        "picture": "new Image().src = 'http://127.0.0.1:9/x.png'",
    }
    page.evaluate(
        "window.stopped = []; document.addEventListener('securitypolicyviolation', "
        "e => window.stopped.push(e.violatedDirective))"
    )
    for name, code in attempts.items():
        before = page.evaluate("window.stopped.length")
        # A listener runs in the page's own world, under its policy.
        page.evaluate(f"new Promise(done => setTimeout(() => {{ try {{ {code} }} catch {{}} done() }}))")
        until(page, f"window.stopped.length > {before}", seconds=5)
        assert page.evaluate("window.pwned") is None, name
    watched.problems.clear()


def test_a_page_asks_for_nothing_but_itself(open_page: Open, tmp_path: Path) -> None:
    facts = facts_of(planted("plain"))
    path = tmp_path / "report.html"
    path.write_text(report_html(facts, report_of(facts)), encoding="utf-8")
    page = open_page("about:blank").page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    for view in ("overview", "timeline", "calls", "tables"):
        page.evaluate(f"location.hash = '#view={view}'")
        page.wait_for_timeout(150)
    assert asked == [path.as_uri()]


def test_json_in_the_page_cannot_end_its_element() -> None:
    text = json_for_html({"x": "</script><!--\u2028\u2029&\ud800"})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()


def test_a_page_names_no_folder_and_no_other_host() -> None:
    trace = planted("plain")
    facts = facts_of(trace)
    html = report_html(facts, report_of(facts))
    assert "/somewhere" not in html
    head = html[: html.index("</head>")]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', head)
    assert policy
    assert "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    # No address but the names of XML vocabularies, which nothing loads.
    assert set(re.findall(r"https?://[\w.-]+", html)) <= {"http://www.w3.org"}
