"""Moves the model to the device and back in every step; `--good` moves it once."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    width = 1024 if args.device.startswith("cuda") else 64
    # On the CPU there is nowhere to move to; a change of type copies all weights in the same way.
    there = {"device": args.device} if args.device != "cpu" else {"dtype": torch.float64}
    back = {"device": "cpu"} if args.device != "cpu" else {"dtype": torch.float32}
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(30)])
    x = torch.randn(16, width).to(**there)
    if args.good:
        model = model.to(**there)

    def step():
        if not args.good:
            model.to(**there)
        y = model(x)
        if not args.good:
            model.to(**back)
        return y

    with torch.no_grad():
        for _ in range(args.steps):
            y = step()
    print(f"model_moved: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
