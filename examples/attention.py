"""Causal attention, written out or through one of the backends of scaled_dot_product_attention.

`naive` masks with masked_fill, which copies the scores first; `inplace` uses masked_fill_.
"""

import argparse
import contextlib
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def naive(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def inplace(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores.masked_fill_(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["naive", "inplace", "default", *BACKENDS], default="naive")
    parser.add_argument("--batch", type=int, default=None, help="8 on a GPU, 2 on the CPU unless given")
    parser.add_argument("--heads", type=int, default=None, help="16 on a GPU, 4 on the CPU unless given")
    parser.add_argument("--sequence", type=int, default=None, help="1024 on a GPU, 128 on the CPU unless given")
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    on_gpu = args.device.startswith("cuda")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    batch = args.batch or (8 if on_gpu else 2)
    heads = args.heads or (16 if on_gpu else 4)
    sequence = args.sequence or (1024 if on_gpu else 128)
    q, k, v = (torch.randn(batch, heads, sequence, args.head_size, device=args.device, dtype=dtype) for _ in range(3))
    mask = torch.ones(sequence, sequence, dtype=torch.bool, device=args.device).triu(1)
    chosen = sdpa_kernel(BACKENDS[args.backend]) if args.backend in BACKENDS else contextlib.nullcontext()

    def step():
        if args.backend == "naive":
            return naive(q, k, v, mask)
        if args.backend == "inplace":
            return inplace(q, k, v, mask)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    with torch.no_grad(), chosen:
        for _ in range(args.steps):
            step()
    print(f"attention: {args.steps} steps of {args.backend} on {args.device}")


if __name__ == "__main__":
    main()
