"""Casts to single precision and back around every layer; `--good` stays in one type."""

import argparse

import torch
from torch import nn


class Casting(nn.Module):
    def __init__(self, width, cast):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.cast = cast

    def forward(self, x):
        if not self.cast:
            return torch.relu(self.linear(x))
        return torch.relu(self.linear(x).float()).to(x.dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    width, batch = (1024, 8192) if args.device.startswith("cuda") else (64, 64)
    model = nn.Sequential(*[Casting(width, not args.good) for _ in range(16)]).to(args.device, torch.bfloat16)
    x = torch.randn(batch, width, device=args.device, dtype=torch.bfloat16)

    with torch.no_grad():
        for _ in range(args.steps):
            y = model(x)
    print(f"cast_churn: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
