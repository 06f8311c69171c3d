"""What is concluded from code that no compiler here makes."""

from __future__ import annotations

from pathlib import Path

from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.features import MULTIPLY_ADDS
from lanewise.machine_code.limiter import Verdict, limits_of
from tests.machine_code.listings import code_of

LOAD = "LDG.E.128 R4, desc[UR4][R2.64]"


def verdict(
    *instructions: str, registers: int = 32, shared: int = 0, stack: int = 0, threads: int = 256, loop: bool = True
) -> Verdict:
    body = (".L_x_0:", *instructions, "@P0 BRA `(.L_x_0)") if loop else instructions
    return limits_of(Kernel(Path("a.cubin"), code_of(*body, "EXIT"), registers, shared, stack, (threads, 1, 1)))


def names(found: Verdict) -> list[str]:
    return [one.name for one in found.limits]


def test_too_few_warps_matter_where_too_few_loads_are_on_their_way() -> None:
    found = verdict(LOAD, "FADD R5, R4, R5", registers=128, threads=64)
    assert names(found)[0] == "memory"  # 8 blocks of 2 warps are a quarter: enough
    found = verdict(LOAD, "FADD R5, R4, R5", shared=100_000, threads=64)
    assert names(found)[0] == "occupancy"
    assert "100,000 bytes of shared memory" in found.limits[0].why
    many = verdict(*[LOAD] * 24, "FADD R5, R4, R5", shared=100_000, threads=64)
    assert "occupancy" not in names(many)


def test_hardly_a_warp_matters_without_loads_too() -> None:
    work = ("LDS R8, [R1]", "FADD R5, R8, R5")
    assert names(verdict(*work, shared=150_000, threads=128))[0] == "occupancy"
    assert "occupancy" not in names(verdict(*work, shared=50_000, threads=128))  # four blocks: four warps a scheduler


def test_a_product_out_of_shared_memory_may_be_limited_by_that() -> None:
    reused = ["LDS.128 R8, [R1]", *["FFMA R9, R8, R10, R9"] * 32]
    assert names(verdict(*reused))[0] == "no tensor cores"
    once = ["LDS R8, [R1]", "LDS R10, [R2]", "FFMA R9, R8, R10, R9"] * 16
    assert names(verdict(*once))[0] == "shared memory"


def test_indices_loaded_before_a_gather_are_no_chain_outside_of_loops() -> None:
    gather = ("LDG.E.64 R6, desc[UR4][R2.64]", "LEA R2, P0, R6, UR4, 0x2", LOAD)
    assert names(verdict(*gather))[0] == "latency"
    assert "latency" not in names(verdict(*gather, loop=False))


def test_data_that_is_summed_is_no_address() -> None:
    assert "latency" not in names(verdict(LOAD, "FADD R5, R4, R5", "IADD3 R2, P0, R2, 0x10, RZ"))


def test_spills_outside_of_loops_count_where_there_is_a_stack() -> None:
    spilled = ["STL [R1], R8", "STL [R1+0x4], R9", "LDL R8, [R1]", "LDL R9, [R1+0x4]"]
    assert names(verdict(LOAD, *spilled, loop=False, stack=16))[0] == "spills"


def test_without_a_block_size_nothing_is_said_of_occupancy() -> None:
    found = verdict(LOAD, threads=0)
    assert (found.resident, found.occupancy, found.kept_out_by) == (0, 0.0, "")


def test_constants_set_by_the_unit_for_halves_are_no_arithmetic() -> None:
    found = verdict(LOAD, *["HFMA2.MMA R3, -RZ, RZ, 0, 1.19e-07"] * 40)
    assert found.features.number(MULTIPLY_ADDS) == 0


def test_divisions_count_wherever_their_reciprocal_is() -> None:
    quotient = ("IMAD.HI.U32 R8, R6, R7, RZ", "IMAD R9, R8, R10, R7", "ISETP.GE.U32.AND P1, PT, R9, R10, PT")
    reciprocal = ("I2F.RP R5, R10", "MUFU.RCP R5, R5", "F2I.FTZ.U32.TRUNC.NTZ R6, R5")
    kernel = (*reciprocal, ".L_x_0:", LOAD, *quotient * 4, "@P0 BRA `(.L_x_0)")
    assert names(verdict(*kernel, loop=False))[0] == "integer division"
    prepared = (*reciprocal, ".L_x_0:", LOAD, *("IMAD.HI.U32 R8, R6, 0x51eb851f, RZ", *quotient[1:]) * 4)
    assert "integer division" not in names(verdict(*prepared, "@P0 BRA `(.L_x_0)", loop=False))
    assert "integer division" not in names(verdict(LOAD, *quotient * 4))
    called = "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_rem_s64)"
    assert names(verdict(LOAD, called))[0] == "integer division"


def test_tiles_that_are_waited_for_matter_where_few_blocks_are_there() -> None:
    copies = ("LDG.E.128 R4, desc[UR4][R2.64]", "STS.128 [R1], R4", "BAR.SYNC.DEFER_BLOCKING 0x0")
    products = ("HMMA.16816.F32 R8, R12, R16, R8",) * 8
    assert names(verdict(*copies, *products, registers=128))[0] == "synchronous copies"
    assert "synchronous copies" not in names(verdict(*copies, *products, registers=64))
    ahead = (copies[0], *products, *copies[1:])
    assert "synchronous copies" not in names(verdict(*ahead, registers=128))


def test_conflicts_outside_of_the_hottest_loop_count_where_they_take_longest() -> None:
    def kernel(stride: str, loops: int = 1) -> Verdict:
        apart = ("S2R R0, SR_TID.X", f"IMAD R21, R0, {stride}, R7", *["LDS R9, [R21]", "STS [R21], R9"] * 32)
        hot = (".L_x_0:", *["LDS.128 R8, [R22]", "FADD R5, R8, R5"] * loops, "@P0 BRA `(.L_x_0)")
        return verdict(*apart, *hot, loop=False)

    found = kernel("0x80").limits[0]
    assert found.name == "bank conflicts"
    assert "outside of its hottest loop" in found.why
    assert names(kernel("0x84"))[0] != "bank conflicts"
    assert names(kernel("0x80", loops=400))[0] != "bank conflicts"
