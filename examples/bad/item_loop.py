"""Asks the device for a value 50 times per step; `--good` keeps the sum on the device and asks once."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    losses = torch.rand(50, device=args.device)

    def step():
        if args.good:
            return losses.sum()
        total = 0.0
        for loss in losses:
            total += loss.item()
        return total

    for _ in range(args.steps):
        total = step()
    print(f"item_loop: {float(total):.3f}")


if __name__ == "__main__":
    main()
