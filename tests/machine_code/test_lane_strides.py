"""How far apart neighbouring threads access memory."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.machine_code.lane_strides import RUN_TIME, strides_of
from tests.machine_code.listings import code_of

THREAD = ("S2R R0, SR_TID.X", "S2R R1, SR_CTAID.X")
LOAD = "LDG.E R9, desc[UR4][R4.64]"


@pytest.mark.parametrize(
    ("instructions", "stride"),
    [
        (["IMAD R2, R1, 0x400, R0", "IMAD.WIDE R4, R2, 0x4, R6"], 4),
        (["LEA R4, P0, R0, UR4, 0x2", "LEA.HI.X R5, R0, UR5, RZ, 0x2, P0"], 4),
        (["IMAD.SHL.U32 R2, R0, 0x4, RZ", "LOP3.LUT R2, R2, 0x1fc, RZ, 0xc0, !PT", "IMAD.WIDE R4, R2, 0x4, R6"], 16),
        (["SHF.L.U32 R4, R0, 0xc, RZ"], 4096),
        (["IADD3 R4, P0, R0, UR4, RZ"], 1),
        (["IADD3 R2, -R0, 0x7f, RZ", "IMAD.WIDE R4, R2, 0x8, R6"], -8),
        (["MOV R3, 0x2", "IMAD.WIDE R4, R0, R3, c[0x0][0x160]"], 2),
        (["HFMA2.MMA R3, -RZ, RZ, 0, 1.1920928955078125e-07", "IMAD.WIDE R4, R0, R3, c[0x0][0x160]"], 2),
        (["IMAD R2, R0, c[0x0][0x170], RZ", "IMAD.WIDE R4, R2, 0x4, R6"], RUN_TIME),
        (["LDC R3, c[0x0][0x228]", "IMAD R2, R0, R3, RZ", "IMAD.WIDE R4, R2, 0x4, R6"], RUN_TIME),
        (["LOP3.LUT R2, R1, 0x7f, R0, 0xf8, !PT", "IMAD R4, R2, 0x3, RZ"], 3),
        (["IMAD.WIDE R4, R1, 0x4, R6"], 0),
        (["SHF.R.U32.HI R2, RZ, 0x5, R0", "IMAD.WIDE R4, R2, 0x4, R6"], 0),
        # No sums: what eight threads share, what was loaded, what a predicate decides.
        (["LOP3.LUT R2, R0, 0x7, RZ, 0xc0, !PT", "IMAD.WIDE R4, R2, 0x4, R6"], None),
        (["LDG.E R2, desc[UR4][R6.64]", "IMAD.WIDE R4, R2, 0x4, R6"], None),
        (["IMAD R2, R0, R0, RZ", "IMAD.WIDE R4, R2, 0x4, R6"], None),
        (["MOV R4, R0", "@P0 MOV R4, R1"], None),
        (["LDS R3, [R1]", "IMAD R2, R0, R3, RZ", "IMAD.WIDE R4, R2, 0x4, R6"], None),
    ],
)
def test_the_stride_of_an_address(instructions: list[str], stride: Any) -> None:
    found = strides_of(code_of(*THREAD, *instructions, LOAD))
    last = len(THREAD) + len(instructions)
    assert found.get(last, None) == stride


def test_of_a_copy_to_shared_memory_the_global_address_counts() -> None:
    code = code_of(*THREAD, "IMAD.WIDE R4, R0, 0x10, R6", "LDGSTS.E.BYPASS.128 [R1], desc[UR4][R4.64], P0")
    assert strides_of(code) == {3: 16}
