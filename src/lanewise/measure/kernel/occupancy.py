"""How many warps of a kernel fit on a multiprocessor, and how many waves its grid takes: from registers, shared memory,
block size and the device's limits.

The profiler's own estimate is not read: it is 0 for every kernel with more than 48 KiB of shared memory, and rounds
to 0 for small grids. The allocation granularities are those of NVIDIA's occupancy calculator; a test compares the
result with the profiler's estimate where that one is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.device import Device

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Occupancy", "occupancy"]

# Registers are handed out to warps in units of 256, warps to the four schedulers of an SM in turn.
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_SHARED_UNIT = 128
# From compute capability 8 on the system keeps 1 KiB of shared memory per block.
_SHARED_RESERVED = 1024

# Blocks per SM, by compute capability; 16 where it is not listed.
_BLOCKS_PER_SM = {
    (7, 0): 32,
    (7, 2): 32,
    (7, 5): 16,
    (8, 0): 32,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (9, 0): 32,
    (10, 0): 32,
    (10, 3): 32,
    (12, 0): 24,
}


@dataclass(frozen=True, eq=False)
class Occupancy:
    """One entry per row of `kernel_args`; -1 or NaN where the trace or the device does not tell.

    Attributes:
        blocks: blocks of the grid.
        resident: blocks that fit on one multiprocessor at a time.
        waves: grid over what the whole device holds at a time.
        limit: what keeps more blocks out: `registers`, `shared`, `warps` or `blocks`; "" if unknown.
    """

    blocks: np.ndarray
    resident: np.ndarray
    waves: np.ndarray
    limit: np.ndarray


def occupancy(facts: Core) -> Occupancy:
    """Occupancy of every kernel of a trace."""
    return occupancy_of(facts.trace["kernel_args"], facts.device)


def occupancy_of(args: Mapping[str, np.ndarray], device: Device) -> Occupancy:
    """Occupancy of kernels from their launch arguments on a device."""
    count = len(args["grid_x"])
    sizes = [args[name].astype(np.int64) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")]
    known = np.all([size > 0 for size in sizes], axis=0) if count else np.zeros(0, dtype=bool)
    grid_x, grid_y, grid_z, block_x, block_y, block_z = sizes
    blocks = np.where(known, grid_x * grid_y * grid_z, -1)
    resident = np.full(count, -1, dtype=np.int64)
    waves = np.full(count, np.nan)
    limit = np.full(count, "", dtype="U9")
    registers, shared = args["registers"].astype(np.int64), args["shared_memory"].astype(np.int64)
    known &= (registers >= 0) & (shared >= 0)
    if not _complete(device) or not known.any():
        return Occupancy(blocks, resident, waves, limit)

    warps = -(-(block_x * block_y * block_z) // device.warp)
    by_registers = np.full(count, np.iinfo(np.int64).max // 2)
    used = registers > 0
    per_warp = -(-registers * device.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    room = np.where(used, device.registers_per_sm // np.maximum(per_warp, 1) // _WARP_UNIT * _WARP_UNIT, 0)
    by_registers[used] = (room // np.maximum(warps, 1))[used]
    kept = _SHARED_RESERVED if device.compute >= (8, 0) else 0
    per_block = -(-(shared + kept) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = np.where(per_block > 0, device.shared_per_sm // np.maximum(per_block, 1), by_registers)
    by_warps = device.threads_per_sm // device.warp // np.maximum(warps, 1)
    by_blocks = np.full(count, _BLOCKS_PER_SM.get(device.compute, 16))
    candidates = np.stack((by_registers, by_shared, by_warps, by_blocks))
    least = candidates.min(axis=0)
    names = np.array(["registers", "shared", "warps", "blocks"])
    # A block that does not fit at all ran nevertheless: the arguments are not those of the kernel.
    fits = known & (least > 0)
    resident[fits] = least[fits]
    limit[fits] = names[candidates.argmin(axis=0)[fits]]
    waves[fits] = blocks[fits] / (least[fits] * device.sms)
    return Occupancy(blocks, resident, waves, limit)


def _complete(device: Device) -> bool:
    needed = (device.warp, device.sms, device.threads_per_sm, device.registers_per_sm, device.shared_per_sm)
    return device.vendor == "nvidia" and all(needed)
