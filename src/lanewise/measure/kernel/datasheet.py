"""What a card can do at most: dense datasheet rates, each with where it comes from.

A card that is not in the table has no peak: never another card's. The name alone does not decide (`H100 PCIe` and
`H100 80GB HBM3` differ by a quarter, and a slice of a card carries the whole card's name), so the number of
multiprocessors must agree, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PEAKS", "Peak", "peak_called", "peak_of"]


@dataclass(frozen=True)
class Peak:
    """Peak rates of one card, dense (without structured sparsity); 0 where the card has no such unit or nobody says.

    Attributes:
        card: what we call it.
        half: bf16 and fp16 with fp32 accumulation on the tensor cores, FLOP/s.
        tf32: fp32 inputs on the tensor cores, FLOP/s.
        fp8: FLOP/s.
        fp32: plain units, FLOP/s.
        bandwidth: device memory, bytes/s.
        sms: multiprocessors or compute units.
        l2: last-level cache, bytes.
        link: to the other cards of a machine, each way, bytes/s; 0 where that depends on the machine.
        source: where the numbers come from.
        verified: whether all numbers were checked against the maker's datasheet.
    """

    card: str
    half: float
    tf32: float
    fp8: float
    fp32: float
    bandwidth: float
    sms: int
    l2: float
    source: str
    verified: bool = True
    link: float = 0.0

    def flop_rate(self, dtype: str, *, tensor_cores: bool = True) -> float:
        """Peak FLOP/s for matrix work on inputs of a type (torch's name); 0 if unknown."""
        if dtype in {"c10::BFloat16", "c10::Half", "at::BFloat16", "at::Half"}:
            return self.half
        if dtype == "float":
            return self.tf32 if tensor_cores and self.tf32 else self.fp32
        return self.fp8 if dtype.startswith("c10::Float8") else 0.0


def _card(
    card: str,
    half: float,
    tf32: float,
    fp8: float,
    fp32: float,
    bandwidth: float,
    sms: int,
    l2: float,
    source: str,
    verified: bool = True,
    *,
    link: float = 0.0,
) -> Peak:
    """A row in the units of datasheets: TFLOP/s, GB/s, MB."""
    tera = 1e12
    return Peak(
        card,
        half * tera,
        tf32 * tera,
        fp8 * tera,
        fp32 * tera,
        bandwidth * 1e9,
        sms,
        l2 * 1e6,
        source,
        verified,
        link * 1e9,
    )


_NVLINK_3, _NVLINK_4, _NVLINK_5 = 300.0, 450.0, 900.0
"""All links of an SXM card, each way, GB/s: half of what datasheets state, which is both ways together."""

# Pattern of the device name -> card. First match decides; the values are checked by hand against the sources.
PEAKS: tuple[tuple[re.Pattern[str], Peak], ...] = tuple(
    (re.compile(pattern), peak)
    for pattern, peak in (
        (r"H100 PCIe", _card("H100 PCIe", 756, 378, 1513, 51, 2000, 114, 50, "NVIDIA H100 PCIe product brief")),
        (r"H100 NVL", _card("H100 NVL", 835, 417, 1671, 60, 3900, 132, 50, "NVIDIA H100 datasheet", False)),
        (
            r"H100 80GB HBM3|H100 SXM",
            _card(
                "H100 SXM5 80GB", 989.4, 494.7, 1979, 67, 3350, 132, 50, "NVIDIA H100 datasheet, dense", link=_NVLINK_4
            ),
        ),
        (
            r"H200(?! NVL)",
            _card("H200 SXM", 989.4, 494.7, 1979, 67, 4800, 132, 50, "NVIDIA H200 datasheet, dense", link=_NVLINK_4),
        ),
        (
            r"A100-SXM\d?-40GB",
            _card("A100 SXM 40GB", 312, 156, 0, 19.5, 1555, 108, 40, "NVIDIA A100 datasheet", link=_NVLINK_3),
        ),
        (
            r"A100-SXM\d?-80GB",
            _card("A100 SXM 80GB", 312, 156, 0, 19.5, 2039, 108, 40, "NVIDIA A100 datasheet", link=_NVLINK_3),
        ),
        (r"A100 80GB PCIe", _card("A100 PCIe 80GB", 312, 156, 0, 19.5, 1935, 108, 40, "NVIDIA A100 datasheet")),
        (r"A100-PCIE-40GB", _card("A100 PCIe 40GB", 312, 156, 0, 19.5, 1555, 108, 40, "NVIDIA A100 datasheet")),
        (r"\bL40S\b", _card("L40S", 362, 183, 733, 91.6, 864, 142, 96, "NVIDIA L40S datasheet")),
        (r"\bL4\b", _card("L4", 121, 60, 242.5, 30.3, 300, 58, 48, "NVIDIA L4 datasheet", False)),
        (
            r"GeForce RTX 4090$",
            _card("RTX 4090", 165.2, 82.6, 330.3, 82.6, 1008, 128, 72, "NVIDIA Ada whitepaper, fp32 sums", False),
        ),
        (
            r"\bB200\b",
            _card("B200", 2250, 1125, 4500, 75, 8000, 148, 126.5, "NVIDIA Blackwell datasheet", False, link=_NVLINK_5),
        ),
        (r"MI300X", _card("MI300X", 1307.4, 653.7, 2614.9, 163.4, 5300, 304, 256, "AMD MI300X datasheet")),
        (r"MI325X", _card("MI325X", 1307, 654, 2615, 163, 6000, 304, 256, "AMD MI325X datasheet", False)),
        (r"MI350X", _card("MI350X", 2300, 0, 4600, 0, 8000, 256, 256, "AMD MI350 datasheet", False)),
        (r"MI355X", _card("MI355X", 2500, 0, 5000, 0, 8000, 256, 256, "AMD MI355 datasheet", False)),
        (r"\bA10G\b", _card("A10G", 70, 35, 0, 31.2, 600, 80, 6, "statements of AWS and NVIDIA", False)),
        (r"Tesla T4$", _card("T4", 65, 0, 0, 8.1, 300, 40, 4, "NVIDIA T4 datasheet; fp16 only", False)),
    )
)


def peak_of(name: str, sms: int) -> Peak | None:
    """The peak of a card by name and number of multiprocessors as the trace gives them; None if not in the table."""
    if "MIG" in name:
        return None
    for pattern, peak in PEAKS:
        if pattern.search(name):
            return peak if peak.sms == sms else None
    return None


def peak_called(name: str) -> Peak | None:
    """The first card of the table whose name has these words in it: `H200`, `a100 pcie`; None if there is none."""
    words = set(name.lower().split())
    return next((peak for _, peak in PEAKS if words and words <= set(peak.card.lower().split())), None)
