"""What limits a kernel, as far as its code alone tells, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lanewise.machine_code.accesses import Access, touched
from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.disassembly import Place
from lanewise.machine_code.features import (
    ATOMICS,
    DOUBLE,
    MULTIPLY_ADDS,
    READS,
    SHARED,
    SHARED_LOADS,
    SPECIAL,
    SPILLS,
    WRITES,
    Features,
    features_of,
)
from lanewise.measure.device import Device
from lanewise.measure.kernel.datasheet import Peak
from lanewise.measure.kernel.occupancy import occupancy_of

__all__ = ["CARDS", "Limiter", "Verdict", "limits_of", "resident_blocks"]

# Limits per multiprocessor of data-centre and consumer cards by compute capability: threads, registers, bytes of shared
# memory (CUDA C++ programming guide, table of compute capabilities).
CARDS: dict[tuple[int, int], tuple[int, int, int]] = {
    (7, 0): (2048, 65536, 96 << 10),
    (7, 5): (1024, 65536, 64 << 10),
    (8, 0): (2048, 65536, 164 << 10),
    (8, 6): (1536, 65536, 100 << 10),
    (8, 7): (1536, 65536, 164 << 10),
    (8, 9): (1536, 65536, 100 << 10),
    (9, 0): (2048, 65536, 228 << 10),
    (10, 0): (2048, 65536, 228 << 10),
    (10, 3): (2048, 65536, 228 << 10),
    (12, 0): (1536, 65536, 100 << 10),
}

# Below this share of a multiprocessor's warps there are too few loads on their way to hide the memory's latency (Little's
# law: with 16 KiB of them per multiprocessor an H200 reaches four fifths of its rate, with 8 KiB half).
_LOW_OCCUPANCY = 0.25
_FEW_SPILLS = 0.02
"""Share of the instructions, outside of loops: a value that is put aside once for a whole tile costs nothing."""
_DIVIDES = 0.2
"""Share of the instructions that divide whole numbers: about ten for the reciprocal, twelve for each quotient, eighty for a
division of 64 bits."""
_RECIPROCAL, _QUOTIENT, _LONG_DIVISION = 10, 12, 80
_REDUCED, _REDUCES = 40, 0.25
"""Instructions of a sine of any angle, without those for large ones, and their share from which on they matter."""
_FEW_WARPS = 0.125
"""Two warps for each scheduler of a multiprocessor: where one waits, the other one does most of the time, too."""
_FEW_BLOCKS = 2
"""Blocks of a multiprocessor: of more, others multiply while one waits for its tile."""
_LOW_SHARE = 0.8
_CONFLICTS = 0.1
"""Rounds of shared memory in vain for each instruction of the stretch, from which on they matter."""
_LINES = 16
"""Lines of 128 bytes for a load of 4 bytes a thread, from which on finding them takes longer than memory does."""
_PARTS = 4
"""Stores to a piece of 32 bytes, from which on they take longer than one."""
_FEW_ACTIVE = 0.75
_ENOUGH_BITS_IN_FLIGHT = 16 * 1024 * 8

# A multiprocessor of an H100 issues 128 instructions of threads per clock and gets 14.5 bytes from memory.
_INSTRUCTIONS_PER_BYTE = 128 / 14.5


@dataclass(frozen=True, slots=True)
class Limiter:
    """One thing that holds a kernel back, or the unit that it keeps busy.

    Attributes:
        name: `spills`, `latency`, `atomics`, `double precision`, `tensor cores`, `no tensor cores`, `special functions`,
            `integer division`, `narrow loads`, `occupancy`, `shared memory`, `uncoalesced loads`, `uncoalesced stores`,
            `bank conflicts`, `divergence`, `too few blocks`, `tail`, `math` or `memory`.
        defect: whether something can be done about it; otherwise it is what a good kernel of its kind is limited by.
        why: what the code shows. advice: what to do; "" for nothing. place: where in the source.
    """

    name: str
    defect: bool
    why: str
    advice: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a kernel's code says.

    Attributes:
        kernel: the code. features: of its hottest loop. limits: what limits it, the most important first; never empty.
        resident: blocks that a multiprocessor holds at a time; 0 if unknown. occupancy: share of its warps, 0 if unknown.
        kept_out_by: what keeps more blocks out: `registers`, `shared`, `warps`, `blocks`; "" if unknown.
    """

    kernel: Kernel
    features: Features
    limits: tuple[Limiter, ...]
    resident: int
    occupancy: float
    kept_out_by: str


def limits_of(kernel: Kernel, *, grid: int = 0, card: Peak | None = None) -> Verdict:
    """The verdict on one kernel; with the blocks of a launch and the card (0, None: unknown), on that launch, too."""
    features = features_of(kernel.code, kernel.block)
    resident, occupancy, kept_out_by = resident_blocks(kernel)
    found = list(_limits(kernel, features, resident, occupancy, kept_out_by))
    if grid and card is not None:
        found += _of_grid(grid, card)
    limits = tuple(sorted(found, key=lambda one: not one.defect))
    return Verdict(kernel, features, limits, resident, occupancy, kept_out_by)


def _of_grid(grid: int, card: Peak) -> Iterator[Limiter]:
    """Multiprocessors that have nothing to do, from the begin or at the end."""
    most = -(-grid // card.sms)
    share = grid / (most * card.sms)
    if grid < card.sms:
        yield Limiter(
            "too few blocks",
            True,
            f"{grid} blocks leave {card.sms - grid} of {card.sms} multiprocessors ({card.card}) without work",
            "divide the work among more blocks: smaller tiles, or a sum in parts (split-K, one more axis of the grid)",
        )
    elif share < _LOW_SHARE:
        yield Limiter(
            "tail",
            True,
            f"{grid} blocks on {card.sms} multiprocessors ({card.card}): some do {most} of them, and on average they do "
            f"{grid / card.sms:.2f}: {_percent(1 - share)} of the time they wait for the last ones",
            f"a grid that is a multiple of {card.sms}, smaller tiles, or as many blocks as fit that take one tile after "
            "the other",
        )


def resident_blocks(kernel: Kernel) -> tuple[int, float, str]:
    """Blocks that a multiprocessor holds, their share of its warps, and what keeps out more; 0, 0, "" if unknown."""
    limits = CARDS.get(kernel.code.capability)
    if limits is None or kernel.threads <= 0 or kernel.registers <= 0:
        return 0, 0.0, ""
    threads, registers, shared = limits
    device = Device("", "nvidia", kernel.code.capability, 1, 0, 32, threads, registers, shared)
    one = np.ones(1, dtype=np.int64)
    args = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_y", "block_z"), one)
    args |= {"block_x": one * kernel.threads, "registers": one * kernel.registers, "shared_memory": one * kernel.shared}
    found = occupancy_of(args, device)
    resident = max(0, int(found.resident[0]))
    return resident, min(1.0, resident * -(-kernel.threads // 32) * 32 / threads), str(found.limit[0])


def _limits(kernel: Kernel, features: Features, resident: int, occupancy: float, kept_out_by: str) -> Iterator[Limiter]:
    where = "in its hottest loop" if features.loop is not None else "in its code"
    spills = features.number(SPILLS)
    everywhere = sum(one.name in SPILLS for one in kernel.code.instructions)
    if spills or (kernel.stack and everywhere >= max(4, _FEW_SPILLS * len(kernel.code.instructions))):
        yield Limiter(
            "spills",
            True,
            f"{spills or everywhere} accesses to local memory {where if spills else 'outside of its loops'}: values that "
            f"no longer fit into its {kernel.registers} registers ({kernel.stack} bytes of stack per thread)",
            "give it fewer values to keep: a smaller tile, more warps for the same tile, or a higher limit on registers",
            features.place_of(SPILLS),
        )
    if features.chained is not None and features.loop is not None:
        yield Limiter(
            "latency",
            True,
            f"a load {where} takes its address from what another one there has loaded: they wait one after the other",
            "load indices ahead of the data that they point to, or keep what is pointed to in shared memory",
            features.chained.place,
        )
    yield from _of_threads(features, where)
    atomics, double, special = (features.number(names) for names in (ATOMICS, DOUBLE, SPECIAL))
    reciprocals, quotients, multiplied = features.reciprocals, features.quotients, features.multiplied
    if atomics and atomics >= 0.02 * features.size:
        yield Limiter(
            "atomics",
            True,
            f"{atomics} atomic operations {where}: those to one address are done one after another",
            "add up within a warp or a block first, and write once per block",
            features.place_of(ATOMICS),
        )
    if double > features.reductions:
        yield Limiter(
            "double precision",
            True,
            f"{double} operations in double precision {where}, 2 to 64 times as slow as in single",
            "a constant such as `1e-5` or a float64 argument spreads: keep to float32 where the result allows",
            features.place_of(DOUBLE),
        )
    if features.tensor:
        opcode = features.tensor.most_common(1)[0][0]
        yield Limiter("tensor cores", False, f"{features.tensor.total()} {opcode} {where}")
        if features.waits_for_copies is not None and 0 < resident <= _FEW_BLOCKS:
            yield Limiter(
                "synchronous copies",
                True,
                "each round of its hottest loop loads a tile, waits for it, and multiplies then: no load is on its way "
                f"while the tensor cores work, and a multiprocessor holds {_blocks(resident)} only",
                "copy the next tile meanwhile: `num_stages=3` in Triton, `cp.async` or TMA into a second buffer in CUDA",
                features.waits_for_copies.place,
            )
    elif _is_product(features):
        yield Limiter(
            "no tensor cores",
            True,
            f"{multiplied} multiply-adds {where}, {_percent(multiplied / features.size)} of its "
            "instructions, and none on tensor cores, which are 8 to 16 times as fast",
            "`tl.dot` on 16-bit inputs, or on float32 with `input_precision='tf32'`; in CUDA C++ mma or CUTLASS",
            features.place_of(MULTIPLY_ADDS),
        )
    divides = _RECIPROCAL * reciprocals + _QUOTIENT * quotients
    called = _LONG_DIVISION * features.long_divisions
    every = features.size + called
    if divides + called and divides + called >= _DIVIDES * every:
        yield Limiter(
            "integer division",
            True,
            f"whole numbers are divided {where}: about {min(divides + called, every)} of its {every} instructions",
            "divide by a constant or a power of two, or carry the quotient along instead of dividing in every round",
            features.dividing,
        )
    elif features.reductions and _REDUCED * features.reductions >= _REDUCES * features.size:
        yield Limiter(
            "exact sine and cosine",
            True,
            f"{features.reductions} sines, cosines or tangents {where} are computed for angles of any size: some "
            f"{_REDUCED} instructions each, and many times as many for large ones",
            "look them up where they are few (a table that is computed once), or, where angles are small, the fast ones: "
            "`__sinf`, `--use_fast_math`, `libdevice.fast_sinf`",
        )
    elif special >= 4 and special >= 0.1 * features.size:
        yield Limiter(
            "special functions",
            False,
            f"{special} roots, exponentials or reciprocals {where}, {_percent(special / features.size)} "
            "of its instructions: that unit does a quarter of what the others do",
        )
    yield from _of_memory(kernel, features, resident, occupancy, kept_out_by, where)


def _apart(accesses: tuple[Access, ...], number: int) -> Access | None:
    """The worst of accesses, where most of a number are known to waste what memory sends, or what its cache looks up."""
    least = sum(access.least for access in accesses)
    # Within a line it is no matter of how far, but of how much each thread takes.
    wasted = touched(accesses) >= 2 * least and any(access.lines > 1 for access in accesses)
    # The cache finds one line in a clock, in which memory sends a ninth of one.
    slow = sum(access.lines >= _LINES * max(1, access.size / 4) for access in accesses) >= 0.5 * number
    if not accesses or len(accesses) < 0.5 * number or not (wasted or slow):
        return None
    return max(accesses, key=lambda access: access.pieces / access.least)


def _of_lines(features: Features, where: str) -> Iterator[Limiter]:
    """Accesses of a warp to memory that lie apart: of each 32 bytes, little is used."""
    loads = sum(features.loads.values()) + sum(features.staged.values())
    stores = sum(features.stores.values())
    for name, verb, accesses, number, names in (
        ("uncoalesced loads", "load", features.reads, loads, READS),
        ("uncoalesced stores", "store", features.writes, stores, WRITES),
    ):
        access = _apart(accesses, number)
        if access is None:
            continue
        far = "in different places" if access.apart is None else f"{abs(access.apart):,} bytes apart"
        if access.base is not None and access.base.far is not None:
            far = "at a distance known only at run time"
        yield Limiter(
            name,
            True,
            f"{where}, neighbouring threads {verb} {access.size} bytes each, {far}: a warp moves {access.pieces} pieces of "
            f"32 bytes at a time, where {access.least} would do",
            "let neighbouring threads take neighbouring elements: exchange the loops or the axes of the tile, or pass "
            "through shared memory",
            features.place_of(names),
        )


def _of_banks(features: Features, where: str) -> Iterator[Limiter]:
    """Accesses of a warp to shared memory that meet in a bank."""
    accesses, place = features.shared, features.place_of(SHARED)
    rounds, least = _rounds_of(accesses)
    if rounds < 2 * least or rounds - least < _CONFLICTS * features.size:
        if not features.conflicting:
            return
        accesses, where = tuple(access for _, access in features.conflicting), "outside of its hottest loop"
        place = features.conflicting[0][0].place
        rounds, least = _rounds_of(accesses)
    worst = max(accesses, key=lambda access: access.pieces / access.least)
    apart = f" ({abs(worst.apart):,} bytes apart)" if worst.apart else ""
    yield Limiter(
        "bank conflicts",
        True,
        f"threads of a warp meet in a bank of shared memory {where}: {rounds} rounds for what would take {least}; the "
        f"worst access{apart} takes {worst.pieces} instead of {worst.least}",
        "make the rows of the tile one element longer, or swizzle the columns (`column ^ row`)",
        place,
    )


def _rounds_of(accesses: tuple[Access, ...]) -> tuple[int, int]:
    """Rounds that accesses to shared memory take, and at best."""
    return sum(one.pieces for one in accesses), sum(one.least for one in accesses)


def _of_threads(features: Features, where: str) -> Iterator[Limiter]:
    """Threads of a warp that part."""
    if features.active > _FEW_ACTIVE:
        return
    yield Limiter(
        "divergence",
        True,
        f"the threads of a warp part by their number: on average {_percent(features.active)} of them run what is {where}, "
        "the others wait",
        "let all threads of a warp do the same: decide by the warp's number (`threadIdx.x / 32`), not by the thread's",
        features.parting,
    )


def _blocks(number: int) -> str:
    return f"{number} blocks" if number > 1 else "one block"


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"


def _most(number: int, every: int) -> bool:
    return number >= 0.5 * every and (number >= 2 or number == every > 0)


def _is_product(features: Features) -> bool:
    moved = sum(width * number for width, number in (features.loads + features.staged).items())
    multiplied = features.multiplied
    # In a product each element that is loaded is used many times; what normalises or activates uses it once or twice.
    return (
        multiplied >= 16
        and multiplied >= 0.3 * features.size
        and multiplied >= 4 * moved / 32
        and features.number(SHARED_LOADS) < 0.5 * multiplied
        and (bool(moved) or features.number(SHARED) > 0)
    )


def _few_warps(why: str, more: str = "") -> Limiter:
    return Limiter("occupancy", True, why, f"smaller tiles, or more warps for a tile{more}")


def _split(features: Features) -> Access | None:
    """The worst of the stores, if together they fill pieces of memory of which each writes a small part: a store goes on to
    the next cache as it is."""
    stores = features.writes
    least = sum(access.least for access in stores)
    most = len(stores) >= max(2, 0.5 * features.stores.total())
    if not most or sum(access.pieces for access in stores) < _PARTS * least or touched(stores) >= 2 * least:
        return None
    return max(stores, key=lambda access: access.pieces / access.least)


def _narrow(features: Features, number: int, size: int, where: str) -> Limiter:
    every = features.loads.total() + features.staged.total()
    return Limiter(
        "narrow loads",
        True,
        f"{number} of {every} global loads {where} bring a thread at most {size} bytes, where 16 are possible",
        "let a thread load neighbouring elements: contiguous, 16-byte aligned, in a number known to be a multiple",
        features.place_of(READS),
    )


_KEPT_OUT_BY = {
    "registers": "its {} registers per thread",
    "shared": "its {1:,} bytes of shared memory",
    "warps": "the size of a block",
    "blocks": "the size of a block",
}


def _of_memory(
    kernel: Kernel, features: Features, resident: int, occupancy: float, kept_out_by: str, where: str
) -> Iterator[Limiter]:
    moved = features.loads + features.staged
    yield from _of_lines(features, where)
    yield from _of_banks(features, where)
    bits = sum(width * number for width, number in moved.items())
    computing = features.tensor or _is_product(features)
    in_flight = bits * kernel.threads * resident
    stored = sum(width * number for width, number in features.stores.items())
    # Memory that is busy with stores has less time for loads.
    few = bits > 0 and 0 < in_flight < _ENOUGH_BITS_IN_FLIGHT * bits / (bits + stored)
    tiny = sum(number for width, number in moved.items() if width <= 16)
    narrow = sum(number for width, number in moved.items() if width <= 32)
    computes = features.size > _INSTRUCTIONS_PER_BYTE * (bits + stored) / 8
    kept_out = _KEPT_OUT_BY.get(kept_out_by, "").format(kernel.registers, kernel.shared)
    held = f"a multiprocessor holds {resident} of its blocks, {_percent(occupancy)} of its warps, because of {kept_out}"
    if features.chained is not None:
        pass
    elif _most(tiny, moved.total()):
        yield _narrow(features, tiny, 2, where)
    elif few and 0 < occupancy < _LOW_OCCUPANCY and kept_out and not features.tensor:
        more = "; or more loads at a time per thread (unrolling, async copies)"
        yield _few_warps(f"{held}: too few loads are on their way at a time", more)
    elif not bits and 0 < occupancy <= _FEW_WARPS and kept_out and not features.tensor:
        yield _few_warps(f"{held}: while one waits, hardly another one works")
    elif few and not computes and _most(narrow, moved.total()):
        yield _narrow(features, narrow, 4, where)
    elif (access := _split(features)) is not None:
        yield Limiter(
            "narrow stores",
            True,
            f"a thread stores {access.size} bytes at a time, and its next {access.size} beside them {where}: each store "
            f"writes to a part of {access.pieces} pieces of 32 bytes, where {access.least} would do",
            "let a thread store up to 16 neighbouring bytes at once: a `float4`; in Triton `tl.join`, or a last axis",
            features.place_of(WRITES),
        )
    if features.number(SHARED) >= 0.3 * features.size and not computing:
        yield Limiter(
            "shared memory",
            False,
            f"{features.number(SHARED)} of {features.size} instructions {where} go to shared memory",
            "",
            features.place_of(SHARED),
        )
    if computing or features.number(DOUBLE):
        return
    if computes:
        what = f"for {(bits + stored) // 8} bytes that a thread moves" if bits + stored else "and no byte moved"
        yield Limiter("math", False, f"{features.size} instructions {where} {what}")
    else:
        by_width = sorted(moved.items(), reverse=True)
        said = ", ".join(f"{number} load{'s' * (number > 1)} of {width // 8} bytes" for width, number in by_width)
        yield Limiter("memory", False, f"it mostly moves data; per thread {where}: {said or 'no loads'}")
