"""AdamW that walks the parameters one by one in Python; `--good` updates them all in one fused pass."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(args.layers)]).to(args.device)
    choice = {"fused": True} if args.good else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **choice)
    x = torch.randn(32, 64, device=args.device)

    for _ in range(args.steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    print(f"optimizer_loop: {args.steps} steps")


if __name__ == "__main__":
    main()
