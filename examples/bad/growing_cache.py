"""Concatenates a key-value cache that grows by one token per step; `--good` writes into one of fixed size."""

import argparse

import torch
import torch.nn.functional as F


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    heads, size, start = (32, 128, 2048) if on_gpu else (4, 16, 64)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    length = start + args.steps
    make = {"device": args.device, "dtype": dtype}
    keys, values = (torch.randn(1, heads, length if args.good else start, size, **make) for _ in range(2))
    token = torch.randn(1, heads, 1, size, **make)
    index = torch.arange(length, device=args.device)
    mask = torch.zeros(1, 1, 1, length, device=args.device, dtype=torch.bool)
    mask[..., :start] = True

    def step(n):
        nonlocal keys, values
        if args.good:
            at = index[start + n : start + n + 1]
            keys.index_copy_(2, at, token)
            values.index_copy_(2, at, token)
            mask[..., start + n] = True
            return F.scaled_dot_product_attention(token, keys, values, attn_mask=mask)
        keys, values = torch.cat([keys, token], dim=2), torch.cat([values, token], dim=2)
        return F.scaled_dot_product_attention(token, keys, values)

    with torch.no_grad():
        for n in range(args.steps):
            y = step(n)
    print(f"growing_cache: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
