"""Sends forty small tensors to the device one by one; `--good` packs them into one."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    parts = [torch.randn(64) for _ in range(40)]
    weight = torch.randn(64, 64, device=args.device)

    def step():
        if args.good:
            rows = torch.stack(parts).to(args.device, copy=True)
        else:
            rows = torch.stack([part.to(args.device, copy=True) for part in parts])
        return rows @ weight

    for _ in range(args.steps):
        y = step()
    print(f"many_copies: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
