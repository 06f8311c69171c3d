"""What a kernel would gain, were its defects mended: what its units do now in a pass through its hottest stretch, beside
what would be left for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from lanewise.machine_code.disassembly import Instruction
from lanewise.machine_code.features import DOUBLE, MULTIPLY_ADDS, SHARED_LOADS, SPILLS, Features
from lanewise.machine_code.limiter import CARDS, Verdict, resident_blocks
from lanewise.machine_code.throughput import (
    CLOCK,
    KNOWN,
    Work,
    clocks_of,
    is_alu,
    is_half_rate,
    is_indexed,
    work_of,
)
from lanewise.measure.kernel.datasheet import Peak

__all__ = ["Gain", "gain_of"]

_WIDEST = 128
"""Bits of a thread's load."""
_BY_CONSTANT = 0.25
"""Of the instructions of a division that are left when the divisor is a constant."""
_WORDS_PER_PRODUCT = 6 / 32
"""Words that a thread loads for each of its multiply-adds on tensor cores: four and two for a product of 16 by 8 by 8."""
_PER_MATRIX = 32
"""Multiply-adds of a warp for each such product."""
_UNPREDICTED = frozenset({"atomics", "synchronous copies", "exact sine and cosine"})
"""How many meet at one address, and how large angles are, only the data says; of barriers the model knows nothing."""
_WORTH_SAYING = 1.05


@dataclass(frozen=True, slots=True)
class Gain:
    """Of mending all defects of a kernel.

    Attributes:
        times: how many times as fast the kernel would be.
        seconds: of a launch now; 0 where nobody says, and a loop runs as often as only the launch knows.
    """

    times: float
    seconds: float

    @property
    def mended_seconds(self) -> float:
        """Of a launch then; 0 if unknown."""
        return self.seconds / self.times


def gain_of(verdict: Verdict, grid: int, card: Peak, *, seconds: float = 0.0) -> Gain | None:
    """The gain for a launch of so many blocks on a card, that takes so long (0: unknown). None where there is none, or
    nothing can be said: a card whose rates are not known, a grid or block of unknown size, atomics."""
    names = {one.name for one in verdict.limits if one.defect}
    kernel = verdict.kernel
    if not names or names & _UNPREDICTED or kernel.code.capability != KNOWN or not (verdict.resident and grid):
        return None
    per_block = -(-kernel.threads // 32)
    busy, most = min(grid, card.sms), -(-grid // card.sms)
    blocks = min(verdict.resident, most)
    now = clocks_of(work_of(verdict.features), blocks * per_block, busy, card)
    work, more = _mended(verdict, names)
    resident = _resident_then(verdict, names)
    blocks = resident if names & {"occupancy", "too few blocks"} else min(resident, blocks)
    then = clocks_of(work, max(1, blocks) * per_block, card.sms, card)
    if not now or not then:
        return None
    times = more * now / then * card.sms / busy
    if "tail" in names:
        times *= most * card.sms / grid
    if not seconds and verdict.features.loop is None:
        seconds = grid * per_block / busy * now / CLOCK
    return Gain(times, seconds) if times >= _WORTH_SAYING else None


def _mended(verdict: Verdict, names: set[str]) -> tuple[Work, float]:
    """What is left to do in a pass, and how much more data it is for."""
    features, more = verdict.features, 1.0
    if "uncoalesced loads" in names:
        features = replace(features, reads=())
    if names & {"uncoalesced stores", "narrow stores"}:
        features = replace(features, writes=())
    if "bank conflicts" in names:
        features = replace(features, shared=())
    if "latency" in names:
        features = replace(features, chained=None)
    if "spills" in names:
        features = _with(features, tuple(map(_kept, features.body)))
    if "double precision" in names:
        features = _with(features, tuple(_single(one) for one in features.body if not _converts(one)))
    work = work_of(features)
    if "narrow loads" in names:
        loads = features.loads + features.staged
        more = _WIDEST * loads.total() / sum(bits * number for bits, number in loads.items())
        work = replace(work, moved=work.moved * more, flying=work.flying * more)
    if "integer division" in names:
        divided = sum(is_alu(one) or is_half_rate(one) for one in features.body) * (1 - _BY_CONSTANT)
        work = replace(work, issue=work.issue - divided / 4, integer=work.integer * _BY_CONSTANT, convert=0.0)
    if "no tensor cores" in names:
        work = _on_tensor_cores(features, work)
    if "divergence" in names:
        part = features.active
        work = replace(work, issue=work.issue * part, integer=work.integer * part, multiply=work.multiply * part)
    return work, more


def _with(features: Features, body: tuple[Instruction, ...]) -> Features:
    return replace(features, body=body, count=Counter(one.name for one in body))


def _kept(one: Instruction) -> Instruction:
    """A value that was in local memory: in a register, or, where it is chosen by another, in shared memory."""
    if one.name not in SPILLS:
        return one
    if is_indexed(one):
        return replace(one, opcode="LDS" if one.name == "LDL" else "STS")
    return replace(one, opcode="NOP")


def _single(one: Instruction) -> Instruction:
    return replace(one, opcode="FFMA") if one.name in DOUBLE else one


def _converts(one: Instruction) -> bool:
    return one.name == "F2F" and "F64" in one.modifiers


def _on_tensor_cores(features: Features, work: Work) -> Work:
    """The same product: multiply-adds become products of matrices, for which less is loaded from shared memory."""
    multiplied = features.number(MULTIPLY_ADDS)
    loads = features.number(SHARED_LOADS)
    rounds = sum(max(1, one.width // 32) for one in features.body if one.name in SHARED_LOADS)
    fewer = min(rounds, multiplied * _WORDS_PER_PRODUCT)
    matrices = multiplied / _PER_MATRIX
    issue = work.issue + (fewer + matrices - multiplied - loads) / 4
    return replace(work, issue=issue, multiply=0.0, tensor=matrices, shared=work.shared - rounds + fewer)


def _resident_then(verdict: Verdict, names: set[str]) -> int:
    """Blocks that a multiprocessor holds with the defects mended."""
    kernel = verdict.kernel
    if "occupancy" in names:
        threads = CARDS[kernel.code.capability][0]
        few = replace(kernel, registers=min(kernel.registers, 65536 // threads), shared=0)
        return resident_blocks(few)[0]
    if "spills" not in names:
        return verdict.resident
    if any(one.name in SPILLS and is_indexed(one) for one in verdict.features.body):
        return resident_blocks(replace(kernel, shared=kernel.shared + kernel.stack * kernel.threads))[0]
    return resident_blocks(replace(kernel, registers=min(255, kernel.registers + kernel.stack // 4)))[0]
