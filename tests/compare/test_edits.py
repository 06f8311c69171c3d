"""One edit of a program at a time: the comparison finds it, says what it is, and reports nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lanewise.compare.model import Change, Difference
from lanewise.compare.outcome.descriptions import change_label
from tests.compare.programs import (
    HEAD,
    LAYER,
    PROGRAM,
    Do,
    change,
    change_all,
    compare_traces,
    delete,
    fuse,
    insert,
    pointwise,
    record,
)

FIRST = len(HEAD)
PER = len(LAYER)
POW, MEAN, RSQRT, MM, ATTENTION, MM2, ADD, SILU, MUL = (FIRST + i for i in range(PER))
RELU = Do("aten::relu", pointwise("relu_kernel<c10::BFloat16>"), 2.9)


def layers(place: int) -> list[int]:
    """The same place in every layer."""
    return [place + PER * layer for layer in range(4)]


@dataclass(frozen=True)
class Edit:
    """An edit, and all that a comparison may say about device work: (how, words of the ops, times)."""

    name: str
    b: tuple[Do, ...]
    expected: set[tuple[str, str, int]]
    a: tuple[Do, ...] = PROGRAM
    a_more: dict[str, Any] = field(default_factory=dict)
    b_more: dict[str, Any] = field(default_factory=dict)


NAIVE = (
    Do("aten::bmm", "nvjet_sm90_tst_64x32_TNT", 18.0),
    Do("aten::div", pointwise("div_kernel"), 9.0),
    Do("aten::_softmax", "void softmax_warp_forward<float, 10>()", 14.0),
    Do("aten::bmm", "nvjet_sm90_tst_32x64_NNT", 19.0),
)
RMS = "triton_red_fused_mean_pow_rsqrt_2"
GATE = "triton_poi_fused_mul_silu_3"
EVERYWHERE = "triton_poi_fused_add_mul_silu_4"
EDITS = [
    Edit("insert one kernel", insert(PROGRAM, SILU, RELU), {("new", "relu", 1)}),
    Edit("insert one at the beginning", insert(PROGRAM, 0, RELU), {("new", "relu", 1)}),
    Edit(
        "insert one in every layer",
        tuple(d for do in PROGRAM for d in ((do, RELU) if do == LAYER[0] else (do,))),
        {("new", "relu", 4)},
    ),
    Edit("insert a copy", insert(PROGRAM, MM, Do("aten::clone", "", 5.0, kind="DtoD")), {("new", "Memcpy DtoD", 1)}),
    Edit("insert a set", insert(PROGRAM, MM, Do("aten::mm", "", 0.8, kind="set", size=4)), {("new", "Memset", 1)}),
    Edit("delete one of several equal kernels", delete(PROGRAM, ADD + PER), {("gone", "add", 1)}),
    Edit(
        "delete a whole layer",
        delete(PROGRAM, *range(FIRST + PER, FIRST + 2 * PER)),
        {("gone", word, 1) for word in ("pow", "mean", "rsqrt", "add", "silu", "mul")}
        | {
            ("gone", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", 1),
            ("gone", "nvjet_sm90_tst_64x64_64x8_1x2_h_bz_NNT", 1),
            ("gone", "pytorch_flash::flash_fwd_kernel", 1),
        },
    ),
    Edit(
        "rename by noise",
        change_all(PROGRAM, SILU, name=PROGRAM[SILU].name.replace("std::array", "at::detail::Array")),
        {("name", "silu", 4)},
    ),
    Edit(
        "another tile for a product",
        change(PROGRAM, MM, name=LAYER[3].name.replace("128x64", "192x96")),
        {("kernel", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT → nvjet_sm90_tst_192x96_64x8_1x2_h_bz_TNT", 1)},
    ),
    Edit(
        "fuse a pair in every layer",
        fuse(PROGRAM, [(x, x + 1) for x in layers(SILU)], GATE, 4.4),
        {("fused", f"silu + mul → {GATE}", 4)},
    ),
    Edit(
        "fuse a reduction chain once",
        fuse(PROGRAM, [(POW, MEAN, RSQRT)], RMS, 4.8),
        {("fused", f"pow + mean + rsqrt → {RMS}", 1)},
    ),
    Edit(
        "fuse across a product",
        fuse(PROGRAM, [(POW + PER, MEAN + PER, RSQRT + PER), (ADD, SILU, MUL)], EVERYWHERE, 6.0),
        set(),
    ),
    Edit(
        "rename by a compiler",
        fuse(PROGRAM, [(x,) for x in layers(SILU)], "triton_poi_fused_silu_0", 3.5),
        {("fused", "silu → triton_poi_fused_silu_0", 4)},
    ),
    Edit(
        "split a generated kernel",
        PROGRAM,
        {("split", f"{GATE} → silu + mul", 4)},
        a=fuse(PROGRAM, [(x, x + 1) for x in layers(SILU)], GATE, 4.4),
    ),
    Edit("reorder two kernels", (*PROGRAM[:SILU], PROGRAM[MUL], PROGRAM[SILU], *PROGRAM[MUL + 1 :]), set()),
    Edit("slow one kernel down by 5 %", change_all(PROGRAM, ATTENTION, us=30.0 * 1.05), set()),
    Edit("speed one kernel up by 5 %", change_all(PROGRAM, MM, us=21.0 * 0.95), set()),
    Edit("another grid", change_all(PROGRAM, ADD, grid=(528, 1, 1)), {("launch", "add", 4)}),
    Edit("a copy twice the size", change(PROGRAM, 0, size=2 << 20, us=24.0), {("size", "Memcpy HtoD", 1)}),
    Edit("pinned instead of pageable", PROGRAM, {("size", "Memcpy HtoD", 1)}, a=change(PROGRAM, 0, source="pageable")),
    Edit(
        "an addend into the epilogue",
        (
            *PROGRAM[:MM2],
            Do("aten::addmm", "", 2.0, kind="DtoD"),
            Do("aten::addmm", LAYER[5].name.replace("_bz_", "_badd_"), 14.3, grid=(64, 2, 1)),
            *PROGRAM[ADD + 1 :],
        ),
        {
            (
                "absorbed",
                "nvjet_sm90_tst_64x64_64x8_1x2_h_bz_NNT + add → Memcpy DtoD + nvjet_sm90_tst_64x64_64x8_1x2_h_badd_NNT",
                1,
            )
        },
    ),
    Edit(
        "attention by hand instead of one kernel",
        PROGRAM,
        {
            (
                "fused",
                "nvjet_sm90_tst_64x32_TNT + div + _softmax + nvjet_sm90_tst_32x64_NNT → pytorch_flash::flash_fwd_kernel",
                1,
            )
        },
        a=(*PROGRAM[:ATTENTION], *NAIVE, *PROGRAM[ATTENTION + 1 :]),
    ),
    Edit("replay a graph", PROGRAM, set(), b_more={"graph": (FIRST, len(PROGRAM) - 1)}),
    Edit("more host time", PROGRAM, set(), b_more={"host_us": 300.0}),
]


def reported(difference: Difference) -> set[tuple[str, str, int]]:
    """Everything about device work that is not "as before"."""

    def words(c: Change) -> str:
        return change_label(c).split(" (", 1)[0] if c.times > 1 else change_label(c)

    return {(c.how, words(c), c.times) for c in difference.device if c.how != "same"}


def timed(difference: Difference) -> dict[str, str]:
    """Verdict words on kernels that run as before."""
    return {
        c.b[0].operator: c.ratio.verdict
        for c in difference.device
        if c.how == "same" and c.ratio is not None and c.ratio.verdict in {"faster", "slower"}
    }


def compare_seeds(edit: Edit, a: int, b: int) -> Difference:
    """The comparison of the two programs, recorded with these noises."""
    left, right = record(edit.a, a, **edit.a_more), record(edit.b, b, **edit.b_more)
    return compare_traces(left, right, anyway=True).differences[0]


CHECKS: dict[str, Callable[[Difference], None]] = {}


def special(name: str) -> Callable[[Callable[[Difference], None]], Callable[[Difference], None]]:
    """Register what an edit must show beyond its expected set (or instead, where that is empty)."""

    def register(check: Callable[[Difference], None]) -> Callable[[Difference], None]:
        CHECKS[name] = check
        return check

    return register


@special("slow one kernel down by 5 %")
def _slower(d: Difference) -> None:
    assert timed(d) == {"aten::_scaled_dot_product_flash_attention": "slower"}
    assert reported(d) == set()


@special("speed one kernel up by 5 %")
def _faster(d: Difference) -> None:
    assert timed(d) == {"aten::mm": "faster"}
    assert [c.b[0].name for c in d.device if c.ratio is not None and c.ratio.verdict == "faster"] == [LAYER[3].name]
    assert reported(d) == set()


@special("replay a graph")
def _graph(d: Difference) -> None:
    assert reported(d) == set()
    assert timed(d) == {}
    counts = {c.key: (c.a, c.b) for c in d.counts}
    assert counts["launches"] == (len(PROGRAM), 4)
    assert counts["kernels"][0] == counts["kernels"][1]
    assert d.coverage.matched_share == 1.0


@special("more host time")
def _host(d: Difference) -> None:
    assert reported(d) == set()
    assert timed(d) == {}
    by_key = {item.key: item.ns for item in d.waterfall.items}
    assert by_key["host"] == pytest.approx(300_000, rel=0.05)
    assert abs(by_key.get("compute", 0)) < 10_000
    assert d.step.verdict == "slower"


@special("reorder two kernels")
def _reorder(d: Difference) -> None:
    found = reported(d)
    assert len(found) == 1
    assert next(iter(found))[0] == "moved"
    assert timed(d) == {}


@special("fuse across a product")
def _across(d: Difference) -> None:
    found = {(c.how, tuple(op.operator for op in c.a)) for c in d.device if c.how != "same"}
    assert found == {
        ("fused", ("aten::add", "aten::silu", "aten::mul")),
        ("fused", ("aten::pow", "aten::mean", "aten::rsqrt")),
    }
    # The name of the second one does not list what it covers: it is matched by order alone, and says so.
    assert {c.sure for c in d.device if c.how == "fused" and len(c.a) == 3} == {True, False}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_the_edit_is_found_and_nothing_else(edit: Edit) -> None:
    difference = compare_seeds(edit, 1, 2)
    if edit.name in CHECKS:
        CHECKS[edit.name](difference)
        return
    assert reported(difference) == edit.expected
    assert timed(difference) == {}
    assert difference.changed == any(how not in {"name"} for how, _, _ in edit.expected)
    assert difference.verdict


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 10))])
def test_the_same_program_twice_differs_in_nothing(seed: int) -> None:
    difference = compare_traces(record(PROGRAM, 100 + seed), record(PROGRAM, 200 + seed)).differences[0]
    assert reported(difference) == set()
    assert timed(difference) == {}
    assert not difference.changed


def test_another_clock_is_told_apart_from_another_program() -> None:
    difference = compare_traces(record(PROGRAM, 1), record(PROGRAM, 2, slower=1.06)).differences[0]
    assert timed(difference) == {}
    assert difference.common == pytest.approx(1 / 1.06, abs=0.01)
