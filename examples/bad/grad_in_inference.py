"""Infers with gradients on, so that a graph for a backward pass is recorded and thrown away; `--good` turns them
off."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(12)]).eval().to(args.device)
    x = torch.randn(32, 128, device=args.device)

    with torch.inference_mode(args.good):
        for _ in range(args.steps):
            y = model(x)
    print(f"grad_in_inference: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
