"""Sleeps in every step, as slow augmentation or logging would; `--good` leaves that out of the loop."""

import argparse
import time

import torch
from torch import nn


def write_log(seconds):
    time.sleep(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(args.device)
    x = torch.randn(64, 256, device=args.device)

    with torch.no_grad():
        for _ in range(args.steps):
            y = model(x)
            if not args.good:
                write_log(args.milliseconds / 1000)
    print(f"host_stall: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
