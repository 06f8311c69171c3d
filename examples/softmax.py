"""Row-wise softmax: torch's operator, the same written as five operators, compiled, and one Triton kernel.

The Triton version keeps each row on the chip, so that it reads and writes memory once. It needs Triton and a GPU;
`TRITON_INTERPRET=1` runs it on the CPU through Triton's interpreter, for checking only.
"""

import argparse
import os
import sys

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def softmax_rows(x, out, columns, stride, TILE: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        offsets = tl.arange(0, TILE)
        inside = offsets < columns
        values = tl.load(x + row * stride + offsets, inside, other=-float("inf")).to(tl.float32)
        powers = tl.exp(values - tl.max(values, axis=0))
        result = powers / tl.sum(powers, axis=0)
        tl.store(out + row * stride + offsets, result.to(out.dtype.element_ty), inside)


def naive(x):
    powers = torch.exp(x - x.max(dim=1, keepdim=True).values)
    return powers / powers.sum(dim=1, keepdim=True)


def fused(x):
    rows, columns = x.shape
    out = torch.empty_like(x)
    tile = triton.next_power_of_2(columns)
    softmax_rows[(rows,)](x, out, columns, x.stride(0), TILE=tile, num_warps=min(32, max(4, tile // 512)))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=["torch", "naive", "compiled", "triton"], default="naive")
    parser.add_argument("--rows", type=int, default=None, help="4096 on a GPU, 64 on the CPU unless given")
    parser.add_argument("--columns", type=int, default=None, help="16384 on a GPU, 256 on the CPU unless given")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    if args.version == "triton" and triton is None:
        sys.exit("softmax: Triton is not installed, nothing was run")
    if args.version == "triton" and not on_gpu and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("softmax: Triton needs a GPU here, nothing was run (TRITON_INTERPRET=1 checks it on the CPU)")

    torch.manual_seed(0)
    shape = (args.rows or (4096 if on_gpu else 64), args.columns or (16384 if on_gpu else 256))
    x = torch.randn(shape, device=args.device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    versions = {
        "torch": lambda x: torch.softmax(x, dim=1),
        "naive": naive,
        "compiled": torch.compile(naive) if args.version == "compiled" else None,
        "triton": fused,
    }
    call = versions[args.version]

    def step():
        return call(x)

    with torch.no_grad():
        for _ in range(args.steps):
            y = step()
    if not torch.allclose(y.float(), torch.softmax(x.float(), dim=1), atol=1e-2 if on_gpu else 1e-6):
        sys.exit("softmax: wrong result")
    print(f"softmax: {args.steps} steps of {args.version}, {tuple(shape)} on {args.device}")


if __name__ == "__main__":
    main()
