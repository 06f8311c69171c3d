"""FLOP and bytes of each kernel, and the least time they can take on a card.

Bytes count each distinct element once in each direction; a multiply-add is two operations. The bound of a call is the
larger of operations over the card's arithmetic peak and bytes over its memory bandwidth, plus what a launch costs.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CARDS",
    "Card",
    "Cost",
    "batched_linear_cost",
    "card_named",
    "gated_linear_cost",
    "gated_mlp_cost",
    "layout_cost",
    "linear_cost",
    "mlp_cost",
    "norm_backward_cost",
    "norm_cost",
    "pointwise_cost",
    "softmax_backward_cost",
    "softmax_cost",
]


@dataclass(frozen=True, slots=True)
class Card:
    """Datasheet peaks: dense bf16 TFLOP/s, memory GB/s, L2 in MB."""

    bf16_tflop_per_s: float
    memory_gb_per_s: float
    l2_mb: float


CARDS: dict[str, Card] = {
    "NVIDIA H100 80GB HBM3": Card(989.4, 3350.0, 50.0),
    "NVIDIA H100 PCIe": Card(756.0, 2000.0, 50.0),
    "NVIDIA H200": Card(989.4, 4800.0, 50.0),
    "NVIDIA A100-SXM4-80GB": Card(312.0, 2039.0, 40.0),
    "NVIDIA A100 80GB PCIe": Card(312.0, 1935.0, 40.0),
    "NVIDIA B200": Card(2250.0, 8000.0, 126.5),
}


def card_named(name: str) -> Card | None:
    """Peaks of a card by its exact name; an unknown card has none, never another card's."""
    return CARDS.get(name)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call has to do: floating-point operations and bytes through memory."""

    flop: float
    bytes: float

    def floor_us(self, card: Card) -> float:
        """Physics: no correct call on cold inputs is faster than this."""
        return max(self.flop / card.bf16_tflop_per_s / 1e6, self.bytes / card.memory_gb_per_s / 1e3)


def pointwise_cost(elements: int, operations: int, inputs_bytes: float, output_bytes: float) -> Cost:
    return Cost(float(elements * operations), inputs_bytes + output_bytes)


def layout_cost(elements: int, itemsize: int) -> Cost:
    return Cost(0.0, 2.0 * elements * itemsize)


def softmax_cost(rows: int, cols: int, itemsize: int) -> Cost:
    return Cost(5.0 * rows * cols, 2.0 * rows * cols * itemsize)


def softmax_backward_cost(rows: int, cols: int, itemsize: int) -> Cost:
    return Cost(4.0 * rows * cols, 3.0 * rows * cols * itemsize)


def norm_cost(rows: int, cols: int, itemsize: int, *, rms: bool, residual: bool = False) -> Cost:
    passes = 4 if residual else 2
    weights = cols * itemsize * (1 if rms else 2)
    return Cost((5.0 if rms else 8.0) * rows * cols, float(passes * rows * cols * itemsize + weights))


def norm_backward_cost(rows: int, cols: int, itemsize: int, *, rms: bool) -> Cost:
    weights = cols * itemsize * (2 if rms else 3)
    return Cost((10.0 if rms else 14.0) * rows * cols, float(3 * rows * cols * itemsize + weights))


def linear_cost(m: int, n: int, k: int, itemsize: int, *, bias: bool = True, residual: bool = False) -> Cost:
    moved = m * k + n * k + m * n * (2 if residual else 1) + (n if bias else 0)
    return Cost(2.0 * m * n * k, float(moved * itemsize))


def batched_linear_cost(batch: int, m: int, n: int, k: int, itemsize: int) -> Cost:
    return Cost(2.0 * batch * m * n * k, float(batch * (m * k + n * k + m * n + n) * itemsize))


def gated_linear_cost(m: int, n: int, k: int, itemsize: int) -> Cost:
    return Cost(4.0 * m * n * k, float((m * k + 2 * n * k + m * n) * itemsize))


def gated_mlp_cost(m: int, d: int, h: int, o: int, itemsize: int) -> Cost:
    return Cost(2.0 * m * h * (2 * d + o), float((m * (d + o) + h * (2 * d + o)) * itemsize))


def mlp_cost(m: int, d: int, h: int, o: int, itemsize: int) -> Cost:
    return Cost(2.0 * m * h * (d + o), float((m * (d + o) + h * (d + o) + h + o) * itemsize))
