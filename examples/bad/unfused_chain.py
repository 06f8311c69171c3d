"""Thirty rounds of sin, multiply, add: 90 tiny kernels in a row; `--good` compiles them into one."""

import argparse

import torch


def chain(x, w, b):
    for _ in range(30):
        x = torch.sin(x) * w + b
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    x, w, b = (torch.randn(1024, 16, device=args.device) for _ in range(3))
    call = torch.compile(chain) if args.good else chain

    def step():
        return call(x, w, b)

    with torch.no_grad():
        for _ in range(args.steps):
            y = step()
    print(f"unfused_chain: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
