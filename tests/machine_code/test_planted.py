"""What limits planted kernels, and that nothing is said against good ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.machine_code.limiter import limits_of
from tests.machine_code.listings import LISTED, kernel_of

DEFECTS = [name for name, listed in LISTED.items() if listed["defect"]]
GOOD = [name for name, listed in LISTED.items() if not listed["defect"]]


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_what_limits_the_kernel(name: str) -> None:
    first = limits_of(kernel_of(name)).limits[0]
    assert (first.name, first.defect) == (LISTED[name]["limiter"], True)
    assert first.why
    assert first.advice


@pytest.mark.parametrize("name", GOOD)
def test_a_good_kernel_has_no_defect(name: str) -> None:
    limits = limits_of(kernel_of(name)).limits
    assert [one.name for one in limits if one.defect] == []
    assert limits[0].name == LISTED[name]["limiter"]


def test_there_are_enough_of_both() -> None:
    assert len(DEFECTS) >= 15
    assert len(GOOD) >= 10


def test_a_defect_is_named_with_its_line() -> None:
    place = limits_of(kernel_of("chase")).limits[0].place
    assert place is not None
    source = Path(__file__).with_name("planted.py").read_text().splitlines()
    assert "tl.load(next_ + at)" in source[place.line - 1]


def test_occupancy_is_that_of_registers_shared_memory_and_warps() -> None:
    # 108 registers for 256 threads: 2 blocks' worth of 65,536; 98,304 bytes of shared memory: 2 of 228 KiB.
    product = limits_of(kernel_of("product"))
    assert (product.kernel.registers, product.kernel.shared, product.kernel.threads) == (108, 98304, 256)
    assert (product.resident, product.occupancy) == (2, 0.25)
    spilled = limits_of(kernel_of("too_large_a_tile"))
    assert (spilled.kernel.registers, spilled.resident, spilled.kept_out_by) == (255, 2, "registers")
    assert spilled.kernel.stack > 0
