"""The two timelines above each other: a step as it is, and as predicted with a finding mended."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import lanewise
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.micro import with_micro
from lanewise.report.gain import helps
from lanewise.report.quantity import format_quantity
from lanewise.show.page.server import PageServer
from tests.support.corpus import DATA
from tests.web.traces import training

Open = Callable[..., Any]
MNIST = DATA / "03_mnist_train_stack.json.gz"


def test_a_card_leads_to_the_step_with_it_mended(page_of: Open) -> None:
    trace = lanewise.read(MNIST, cache=False)
    report = lanewise.explain(trace)
    code = next(finding.code for finding in report.findings if helps(finding))
    page = page_of(trace).page
    page.locator(f"#finding-{code}").get_by_role("link", name="The step with it fixed").click()
    page.wait_for_selector(".step-state")
    now, then = page.locator(".step-state").all()
    prediction = lanewise.predict(trace, code)
    for box, state in ((now, prediction.now), (then, prediction.predicted)):
        heading = box.locator("h2").inner_text()
        assert with_micro(format_quantity("time", state.step_us * 1e3)) in heading
        assert state.regime in heading
        assert box.locator("svg rect.work").count() > 5
    assert code in then.locator("h2").inner_text()
    assert now.locator("rect.changed").count() > 0
    # One scale: the drawn lengths are as the times.
    ends = [float(box.locator("line.axis").get_attribute("x1")) - 120 for box in (now, then)]
    assert abs(ends[1] / ends[0] - prediction.predicted.step_us / prediction.now.step_us) < 0.01


def test_another_finding_or_all_of_them_is_chosen(page_of: Open) -> None:
    page = page_of(lanewise.read(MNIST, cache=False), "#view=predicted").page
    page.wait_for_selector(".step-state")
    options = page.locator("select option").all_inner_texts()
    assert len(options) > 2
    assert re.match(r"All \d together", options[-1])
    page.locator("select").select_option("all")
    page.get_by_role("heading", name=re.compile(r"^Predicted: All \d together fixed")).wait_for()
    assert "finding=ALL" in page.url
    page.go_back()
    page.get_by_role("heading", name=re.compile(r"^Predicted: [A-Z]{3}\d{3}")).wait_for()


def test_without_anything_to_mend_there_is_no_such_view(page_of: Open) -> None:
    trace = lanewise.read(DATA / "06_cuda_graph_replay.json.gz", cache=False)
    assert not any(helps(finding) for finding in lanewise.explain(trace).findings)
    page = page_of(trace, "#view=predicted").page
    page.get_by_text("Nothing was found that would shorten the step").wait_for()
    assert page.locator("nav a", has_text="Predicted").count() == 0


def test_a_server_computes_it_when_the_view_is_opened(open_page: Open) -> None:
    facts = facts_of(training(8))
    server = PageServer(facts, report_of(facts), max_slices=10)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        page = open_page(server.address + "#view=predicted").page
        page.wait_for_selector(".step-state svg rect.work")
        assert page.locator(".step-state").count() == 2
    finally:
        server.close()
        thread.join()
