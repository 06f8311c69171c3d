"""What warps wait for, on kernels that were measured on a card: by their samples, by Nsight Compute, and by their code."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.machine_code.agreement import agreement

from lanewise.machine_code.limiter import Limiter
from lanewise.machine_code.stall_reasons import MEANINGS, expected_stalls, stall_called, top_stall

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "machine-code"
STALLS, SAMPLED, WRITTEN = (
    json.loads((MEASURED / f"{name}.json").read_text()) for name in ("stalls", "sampled", "agreement")
)


def test_samples_have_the_top_reason_of_nsight_compute() -> None:
    found = agreement(STALLS, SAMPLED["kernels"])
    assert found["of"] >= 30
    assert found["samples_agree"] >= 0.9 * found["of"]
    assert found["limit_agrees"] >= 0.9 * found["of"]
    assert found == WRITTEN


def test_every_reason_of_a_card_is_explained() -> None:
    names = {name for kernel in STALLS.values() for name in kernel["stalls"]}
    names |= {name.removesuffix("_not_issued") for one in SAMPLED["kernels"].values() for name in one["reasons"]}
    assert {stall_called(name) for name in names} == set(MEANINGS)


def test_a_warp_that_could_issue_waits_for_nothing() -> None:
    assert top_stall({"not_selected": 9.0, "selected": 5.0, "wait": 2.0, "barrier": 1.0}) == "wait"
    assert top_stall({"not_selected": 9.0, "wait": 0.0}) == ""


def test_idle_multiprocessors_show_in_no_warp() -> None:
    limits = [Limiter("tail", True, ""), Limiter("memory", False, "")]
    assert expected_stalls(limits) == expected_stalls(limits[1:]) != frozenset()
    assert expected_stalls([]) == frozenset()
