"""Large single-precision products without tensor cores; `--good` allows TF32."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--size", type=int, default=None, help="2048 on a GPU, 128 on the CPU unless given")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    size = args.size or (2048 if args.device.startswith("cuda") else 128)
    torch.set_float32_matmul_precision("high" if args.good else "highest")
    x, w = torch.randn(size, size, device=args.device), torch.randn(size, size, device=args.device)

    def step():
        return x @ w

    for _ in range(args.steps):
        y = step()
    print(f"single_precision: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
