"""Vector addition in Triton, three times: one block, any size with a mask, and an autotuned block size.

Needs Triton and a GPU. `TRITON_INTERPRET=1` runs it on the CPU through Triton's interpreter, for checking only.
"""

import argparse
import os
import sys

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    sys.exit("vector_add: Triton is not installed, nothing was run")


@triton.jit
def add_one_block(x, y, out, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets))


@triton.jit
def add_masked(x, y, out, n, TILE: tl.constexpr):
    offsets = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, inside) + tl.load(y + offsets, inside), inside)


tiles = [triton.Config({"TILE": 128}), triton.Config({"TILE": 256}), triton.Config({"TILE": 1024})]
add_tuned = triton.autotune(configs=tiles, key=["n"])(add_masked)


def run(version, x, y, out):
    n = x.numel()
    if version == "one-block":
        add_one_block[(1,)](x, y, out, SIZE=n)
    elif version == "masked":
        add_masked[(triton.cdiv(n, 1024),)](x, y, out, n, TILE=1024)
    else:
        add_tuned[lambda chosen: (triton.cdiv(n, chosen["TILE"]),)](x, y, out, n)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=["one-block", "masked", "autotuned"], default="masked")
    parser.add_argument("--size", type=int, default=None, help="1024 for one block, else 192311, unless given")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not args.device.startswith("cuda") and not interpreted:
        sys.exit("vector_add: Triton needs a GPU here, nothing was run (TRITON_INTERPRET=1 checks it on the CPU)")

    torch.manual_seed(0)
    n = args.size or (1024 if args.version == "one-block" else 192311)
    x, y = torch.randn(n, device=args.device), torch.randn(n, device=args.device)
    out = torch.empty_like(x)

    def step():
        run(args.version, x, y, out)

    for _ in range(args.steps):
        step()
    if not torch.equal(out, x + y):
        sys.exit("vector_add: wrong result")
    print(f"vector_add: {args.steps} steps of {args.version}, {n} elements on {args.device}")


if __name__ == "__main__":
    main()
