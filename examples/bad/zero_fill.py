"""Fills every gradient with zeros before each step; `--good` drops the gradients, which is the default."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    width = 1024 if args.device.startswith("cuda") else 128
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(20)]).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
    x = torch.randn(8, width, device=args.device)

    for _ in range(args.steps):
        optimizer.zero_grad(set_to_none=args.good)
        model(x).square().mean().backward()
        optimizer.step()
    print(f"zero_fill: {args.steps} steps")


if __name__ == "__main__":
    main()
