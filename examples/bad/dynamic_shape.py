"""Selects rows by a mask, whose count the host must wait for; `--good` multiplies by the mask instead."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    x = torch.randn(512, 128, device=args.device)
    weight = torch.randn(128, 128, device=args.device)

    def step():
        y = x
        for _ in range(8):
            keep = y[:, 0] > 0
            y = y * keep[:, None] if args.good else torch.cat([y[keep], y[~keep]])
            y = torch.tanh(y @ weight)
        return y

    for _ in range(args.steps):
        y = step()
    print(f"dynamic_shape: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
