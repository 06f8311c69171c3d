"""How a warp's accesses to memory lie, and which of its threads run what."""

from __future__ import annotations

import pytest

from lanewise.machine_code.accesses import Access, accesses_of, touched
from tests.machine_code.listings import code_of

THREAD = ("S2R R0, SR_TID.X", "S2R R1, SR_CTAID.X")
LOAD = "LDG.E R9, desc[UR4][R4.64]"


def load(*instructions: str) -> Access | None:
    """What is known of a load behind these instructions."""
    return accesses_of(code_of(*THREAD, *instructions, LOAD)).by_index.get(len(THREAD) + len(instructions))


@pytest.mark.parametrize(
    ("instructions", "apart"),
    [
        (["IMAD R2, R1, 0x400, R0", "IMAD.WIDE R4, R2, 0x4, R6"], 4),
        (["LEA R4, P0, R0, UR4, 0x2", "LEA.HI.X R5, R0, UR5, RZ, 0x2, P0"], 4),
        (["IMAD.SHL.U32 R2, R0, 0x4, RZ", "LOP3.LUT R2, R2, 0x1fc, RZ, 0xc0, !PT", "IMAD.WIDE R4, R2, 0x4, R6"], 16),
        (["SHF.L.U32 R4, R0, 0xc, RZ"], 4096),
        (["IADD3 R4, P0, R0, UR4, RZ"], 1),
        (["IADD3 R2, -R0, 0x7f, RZ", "IMAD.WIDE R4, R2, 0x8, R6"], -8),
        (["MOV R3, 0x2", "IMAD.WIDE R4, R0, R3, c[0x0][0x160]"], 2),
        (["HFMA2.MMA R3, -RZ, RZ, 0, 1.1920928955078125e-07", "IMAD.WIDE R4, R0, R3, c[0x0][0x160]"], 2),
        (["IMAD R2, R0, c[0x0][0x170], RZ", "IMAD.WIDE R4, R2, 0x4, R6"], "far"),
        (["LDC R3, c[0x0][0x228]", "IMAD R2, R0, R3, RZ", "IMAD.WIDE R4, R2, 0x4, R6"], "far"),
        (["LOP3.LUT R2, R1, 0x7f, R0, 0xf8, !PT", "IMAD R4, R2, 0x3, RZ"], 3),
        (["IMAD.WIDE R4, R1, 0x4, R6"], 0),
        (["SHF.R.U32.HI R2, RZ, 0x5, R0", "IMAD.WIDE R4, R2, 0x4, R6"], 0),
    ],
)
def test_how_far_apart_threads_load(instructions: list[str], apart: int | str) -> None:
    access = load(*instructions)
    assert access is not None
    base = access.base
    assert ("far" if base is not None and base.far is not None else access.apart) == apart


@pytest.mark.parametrize(
    ("instructions", "sectors"),
    [
        # A row of 16 numbers twice; eight threads a row of 128 bytes; neighbours exchanged; two rows, anywhere.
        (["LOP3.LUT R2, R0, 0xf, RZ, 0xc0, !PT", "IMAD.WIDE R4, R2, 0x4, R6"], 2),
        (["SHF.R.U32.HI R2, RZ, 0x3, R0", "IMAD.WIDE R4, R2, 0x80, R6"], 4),
        (["LOP3.LUT R2, R0, 0x1, RZ, 0x3c, !PT", "IMAD.WIDE R4, R2, 0x4, R6"], 4),
        (
            [
                "SHF.R.U32.HI R2, RZ, 0x4, R0",
                "LOP3.LUT R3, R0, 0xf, RZ, 0xc0, !PT",
                "IMAD R2, R2, c[0x0][0x170], R3",
                "IMAD.WIDE R4, R2, 0x4, R6",
            ],
            4,
        ),
        (["IMAD R2, R0, R0, RZ", "IMAD.WIDE R4, R2, 0x4, R6"], 32),
        (["ISETP.LT.U32.AND P1, PT, R0, 0x30, PT", "SEL R2, R0, RZ, P1", "IMAD.WIDE R4, R2, 0x4, R6"], 3),
        (["SHF.L.U32 R2, R1, 0x4, RZ", "LOP3.LUT R2, R2, 0xfffffff0, R0, 0xe2, !PT", "IMAD.WIDE R4, R2, 0x20, R6"], 16),
        (["PRMT R9, R0, 0x7710, RZ", "MOV R4, R1"], 1),
    ],
)
def test_how_much_of_memory_a_warp_touches(instructions: list[str], sectors: int) -> None:
    access = load(*instructions)
    assert access is not None
    assert access.pieces == sectors


@pytest.mark.parametrize(
    "instructions",
    [
        ["LDG.E R2, desc[UR4][R6.64]", "IMAD.WIDE R4, R2, 0x4, R6"],
        ["MOV R4, R0", "@P0 MOV R4, R1"],
        ["LDS R3, [R1]", "IMAD R2, R0, R3, RZ", "IMAD.WIDE R4, R2, 0x4, R6"],
        ["SHFL.BFLY PT, R4, R0, 0x1, 0x1f"],
        ["IMAD R2, R0, c[0x0][0x170], RZ", "LOP3.LUT R4, R2, 0x7, RZ, 0xc0, !PT"],
    ],
)
def test_of_what_was_loaded_or_chosen_nothing_is_said(instructions: list[str]) -> None:
    assert load(*instructions) is None


def test_what_several_loads_touch_is_counted_once() -> None:
    fields = [f"LDG.E R{9 + k}, desc[UR4][R4.64+{hex(4 * k)}]" for k in range(3)]
    found = accesses_of(code_of(*THREAD, "IMAD.WIDE R4, R0, 0xc, R6", *fields)).by_index.values()
    assert [access.pieces for access in found] == [12, 12, 12]
    assert touched(found) == 12


def test_an_address_chosen_under_a_condition_is_known_where_it_is_used_under_the_same_one() -> None:
    chosen = ("LDG.E R4, desc[UR4][R6.64]", "IMAD.WIDE R2, R0, 0x10, R6", "@!P0 MOV R4, R2")
    store = "@!P0 STG.E desc[UR4][R4.64], R9"

    def stored(*instructions: str) -> list[int | None]:
        code = code_of(*THREAD, *chosen, *instructions)
        return [
            access.apart for at, access in accesses_of(code).by_index.items() if code.instructions[at].name == "STG"
        ]

    assert stored(store) == [16]
    assert stored(store.replace("!P0", "!P1")) == []
    assert stored("ISETP.GE.AND P0, PT, R7, 0x1, PT", store) == []
    assert stored("LDG.E R4, desc[UR4][R6.64]", store) == []


def test_bits_that_are_turned_round_run_the_other_way() -> None:
    turned = ("LOP3.LUT R2, RZ, R0, RZ, 0x33, !PT", "IADD3 R2, R2, R7, RZ", "IMAD.WIDE R4, R2, 0x8, R6")
    found = load(*turned)
    assert found is not None
    assert (found.apart, found.pieces) == (-8, 8)


def test_the_blocks_part_of_a_number_stays_in_it() -> None:
    """`a | b & c` of a block's and a thread's number: the thread's alone decides no branch."""
    both = ("SHF.L.U32 R1, R1, 0xa, RZ", "LOP3.LUT R2, R1, 0x7f, R0, 0xf8, !PT", "ISETP.GE.AND P0, PT, R2, 0x30, PT")
    assert active(*both, "@P0 EXIT", "FADD R3, R3, R3")[-2] == 1


def test_of_a_copy_to_shared_memory_the_global_address_counts() -> None:
    code = code_of(*THREAD, "IMAD.WIDE R4, R0, 0x10, R6", "LDGSTS.E.BYPASS.128 [R1], desc[UR4][R4.64], P0")
    assert [access.apart for access in accesses_of(code).by_index.values()] == [16]


@pytest.mark.parametrize(
    ("instructions", "load", "rounds"),
    [
        (["IMAD R4, R0, 0x4, R7"], "LDS R9, [R4]", 1),
        (["IMAD R4, R0, 0x80, R7"], "LDS R9, [R4]", 32),
        (["IMAD R4, R0, 0x84, R7"], "LDS R9, [R4+0x40]", 1),
        (["IMAD R4, R0, 0x8, R7"], "LDS R9, [R4]", 2),
        (["IMAD R4, R0, 0x8, R7"], "LDS.64 R10, [R4]", 2),
        (["IMAD R4, R0, 0x10, R7"], "LDS.128 R12, [R4]", 4),
        (["IMAD R4, R0, 0x20, R7"], "STS.128 [R4], R12", 8),
        (["MOV R4, R7"], "LDS R9, [R4]", 1),
        (["SHF.R.U32.HI R2, RZ, 0x3, R0", "IMAD R4, R2, 0x100, R7"], "LDS R9, [R4]", 4),
    ],
)
def test_threads_that_meet_in_a_bank_take_rounds(instructions: list[str], load: str, rounds: int) -> None:
    (access,) = accesses_of(code_of(*THREAD, *instructions, load)).by_index.values()
    assert access.pieces == rounds


def test_rows_of_a_block_that_is_narrower_than_a_warp() -> None:
    code = code_of("S2R R0, SR_TID.X", "S2R R1, SR_TID.Y", "LEA R2, R1, R0, 0x8", "IMAD.WIDE R4, R2, 0x4, R6", LOAD)
    assert accesses_of(code, (16, 16, 1)).by_index[4].pieces == 4
    assert accesses_of(code, (8, 32, 1)).by_index[4].pieces == 4
    (access,) = accesses_of(
        code_of("S2R R1, SR_TID.Y", "IMAD.WIDE R4, R1, 0x80, R6", LOAD), (16, 16, 1)
    ).by_index.values()
    assert access.pieces == 2


def test_what_changes_in_a_loop_is_known_only_in_part() -> None:
    step = ("MOV R5, RZ", ".L_x_0:", "IMAD R2, R0, R5, RZ", "IMAD.WIDE R4, R2, 0x4, R6", "IADD3 R5, R5, 0x1, RZ")
    code = code_of(*THREAD, *step, LOAD, "@P0 BRA `(.L_x_0)")
    (access,) = accesses_of(code).by_index.values()
    assert access.pieces == 32


def active(*instructions: str) -> list[float]:
    return accesses_of(code_of(*THREAD, *instructions, "EXIT")).active[len(THREAD) :].tolist()


ODD = ("LOP3.LUT R2, R0, 0x1, RZ, 0xc0, !PT", "ISETP.NE.U32.AND P0, PT, R2, 0x1, PT")


def test_threads_part_at_a_branch_and_meet_behind_it() -> None:
    both = ("@P0 BRA `(.L_x_1)", "FADD R3, R3, R3", "BRA `(.L_x_2)", ".L_x_1:", "FMUL R3, R3, R3", ".L_x_2:")
    assert active(*ODD, *both) == [1, 1, 1, 0.5, 0.5, 0.5, 1]
    assert active(*ODD, "@!P0 FADD R3, R3, R3") == [1, 1, 0.5, 1]
    assert active("LOP3.LUT P0, RZ, R0, 0x3, RZ, 0xc0, !PT", "@P0 EXIT", "FADD R3, R3, R3") == [1, 1, 0.25, 0.25]


def test_a_warp_does_not_part_where_all_its_threads_do_the_same() -> None:
    per_warp = ("SHF.R.U32.HI R2, RZ, 0x5, R0", "ISETP.NE.U32.AND P0, PT, R2, 0x1, PT")
    first_only = ("ISETP.NE.AND P0, PT, R0, RZ, PT",)
    bound = ("ISETP.GE.AND P0, PT, R0, c[0x0][0x170], PT",)
    for guard in (per_warp, first_only, bound):
        assert set(active(*guard, "@P0 EXIT", "FADD R3, R3, R3")) <= {0.0, 1.0}
