"""Waits for the device after every layer; `--good` lets the host run ahead."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(20)]).to(args.device)
    x = torch.randn(64, 256, device=args.device)

    def step():
        y = x
        for layer in model:
            y = layer(y)
            if on_gpu and not args.good:
                torch.cuda.synchronize()
        return y

    with torch.no_grad():
        for _ in range(args.steps):
            y = step()
    print(f"synchronize: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
