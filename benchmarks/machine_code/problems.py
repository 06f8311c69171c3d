"""What each kernel of `planted.cu` is launched on: data larger than the card's cache, and the same for its mended twin."""

from __future__ import annotations

from collections.abc import Callable

import torch
from benchmarks.machine_code.driver import Argument

__all__ = ["PROBLEMS", "SAME"]

M = 1 << 20
ROUNDS = 512
Problem = tuple[list[Argument], list[Argument], torch.Tensor, torch.Tensor]
"""Arguments of the kernel and of its twin, and what each writes."""


def _floats(number: int) -> torch.Tensor:
    return torch.rand(number, device="cuda")


def _whole(number: int, kind: torch.dtype = torch.int32, top: int = 100_000) -> torch.Tensor:
    return torch.randint(0, top, (number,), device="cuda").to(kind)


def _pair(size: int, make: Callable[[torch.Tensor], list[Argument]], kind: torch.dtype = torch.float32) -> Problem:
    """The same arguments for both, but for where they write."""
    outs = [torch.zeros(size, device="cuda", dtype=kind) for _ in range(2)]
    return make(outs[0]), make(outs[1]), outs[0], outs[1]


def _row_sums() -> Problem:
    x = _floats(64 * M)
    return _pair(65536, lambda out: [x, out, 65536, 1024])


def _square(x_size: int = 8192) -> Problem:
    x = _floats(x_size**2)
    return _pair(x_size**2, lambda out: [x, out, x_size])


def _own_words() -> Problem:
    x = _floats(2112 * 2048)
    return _pair(2112 * 2048, lambda out: [x, out, 64])


def _one_field() -> Problem:
    records = _floats(256 * M)
    field = records.view(-1, 16)[:, 0].contiguous()
    outs = [torch.zeros(16 * M, device="cuda") for _ in range(2)]
    return [records, outs[0], 16 * M], [field, outs[1], 16 * M], outs[0], outs[1]


def _bytes() -> Problem:
    x = _whole(256 * M, torch.uint8, 256)
    return _pair(256 * M, lambda out: [x, out, 256 * M], torch.uint8)


def _sum_of_halves() -> Problem:
    x = _whole(256 * M, torch.int16, 30_000)
    return _pair(2112 * 128, lambda out: [x, out, 256 * M], torch.int32)


def _sums(number: int, size: int, top: int = 0) -> Problem:
    x = _whole(number, top=top) if top else _floats(number)
    return _pair(size, lambda out: [x, out, number], torch.int32 if top else torch.float32)


def _held_values() -> Problem:
    x, factors = _floats(64 * M), _floats(160 * 128)
    return _pair(2112 * 128, lambda out: [x, factors, out, 64 * M])


def _rounds(number: int, rounds: int) -> Problem:
    x = _floats(number)
    return _pair(number, lambda out: [x, out, rounds])


def _chase() -> Problem:
    threads, rounds = 1056 * 256, 256
    # Each number says where the next one of the same thread is.
    x = (torch.arange(threads * rounds, device="cuda", dtype=torch.int32) + threads) % (threads * rounds)
    return _pair(threads, lambda out: [x, out, rounds], torch.int32)


def _divisions() -> Problem:
    x = _whole(64 * M)
    return _pair(1056 * 256, lambda out: [x, out, 64 * M, 96], torch.int32)


def _product() -> Problem:
    a, b = _floats(4096**2), _floats(4096**2)
    return _pair(4096**2, lambda out: [a, b, out, 4096])


def _few_rows() -> Problem:
    x = _floats(64 * M)
    return _pair(16, lambda out: [x, out, 4 * M])


def _units() -> Problem:
    x = _floats(1120 * 1024)
    return _pair(1120 * 1024, lambda out: [x, out, ROUNDS, 1120])


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "row_sums": _row_sums,
    "transpose": _square,
    "tile_columns": _square,
    "own_words": _own_words,
    "one_field": _one_field,
    "swapped_indices": _square,
    "bytes": _bytes,
    "sum_of_halves": _sum_of_halves,
    "too_few_registers": lambda: _sums(16 * M, 264 * 1024),
    "local_array": lambda: _sums(64 * M, 792 * 256, top=100_000),
    "too_much_shared": lambda: _sums(64 * M, 4224 * 64),
    "held_values": _held_values,
    "odd_and_even": lambda: _rounds(M, ROUNDS),
    "one_sum": lambda: _sums(16 * M, 32),
    "chase": _chase,
    "double_constant": lambda: _rounds(M, 1024),
    "divisions": _divisions,
    "plain_product": _product,
    "few_rows": _few_rows,
    "units": _units,
}
SAME = frozenset(
    {"row_sums", "transpose", "tile_columns", "own_words", "one_field", "swapped_indices", "bytes", "double_constant"}
    | {"plain_product", "units"}
)
"""Of which the twin writes the same numbers, to a hundredth: the others are launched with another number of threads, add up
into what is there, or do something else to other threads."""
