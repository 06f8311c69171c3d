"""What the page holds of predictions: bounded, and as long as the steps that are predicted."""

from __future__ import annotations

import numpy as np
import pytest

import lanewise
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.diagnose.what_if.scenarios import scenarios
from lanewise.report.gain import helps
from lanewise.show.page.before_after import before_after_block
from lanewise.show.page.packing import unpack
from tests.support.builder import TraceBuilder
from tests.support.corpus import DATA

NAMES = ("03_mnist_train_stack", "07_bad_item_loop", "07_bad_pageable_copy", "07_bad_unfused_pointwise_chain")


@pytest.mark.parametrize("name", NAMES)
def test_rows_fill_the_steps_and_no_more(name: str) -> None:
    facts = facts_of(lanewise.read(DATA / f"{name}.json.gz", cache=False))
    report = report_of(facts)
    block = before_after_block(facts, report)
    columns, extra = unpack(block)
    assert len(block) < 100_000
    codes = [one["code"] for one in extra["scenarios"]]
    first = [finding.code for finding in report.findings if helps(finding)][:5]
    assert codes == ["", *first, *(["all"] if len(first) > 1 else [])]
    assert sum(one["rows"] for one in extra["scenarios"]) == len(columns["lane"])
    end = columns["start"] + columns["duration"]
    at = 0
    for one in extra["scenarios"]:
        mine = slice(at, at + one["rows"])
        at += one["rows"]
        assert columns["start"][mine].min() >= 0
        assert end[mine].max() <= 1.02 * one["step_us"] * 1e3
        assert columns["lane"][mine].max() < len(extra["lanes"])
        assert columns["name"][mine].max() < len(extra["names"])
        assert columns["kind"][mine].max() < len(extra["kinds"])


def test_what_happens_in_a_step_is_all_of_its_work() -> None:
    facts = facts_of(lanewise.read(DATA / "03_mnist_train_stack.json.gz", cache=False))
    for one in scenarios(facts, report_of(facts)):
        if len(one.mended) > 1:
            continue
        work = ~one.graph.on_host
        per_step = one.graph.duration[work].sum() / one.graph.steps
        shown = one.table.duration[~one.graph.on_host[one.table.node]].sum()
        assert shown == pytest.approx(per_step, rel=0.15), one.code  # steps differ a little


def test_nothing_to_mend_is_an_empty_block() -> None:
    facts = facts_of(TraceBuilder().build())
    columns, extra = unpack(before_after_block(facts, report_of(facts)))
    assert extra["scenarios"] == []
    assert not any(np.asarray(column).size for column in columns.values())
