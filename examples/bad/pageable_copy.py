"""Copies ordinary host memory to the device and waits for it; `--good` pins the memory and does not wait."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--megabytes", type=int, default=None, help="64 on a GPU, 1 on the CPU unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    rows = (args.megabytes or (64 if on_gpu else 1)) * 256
    batch = torch.randn(rows, 1024)
    weight = torch.randn(1024, 64, device=args.device)
    if args.good and on_gpu:
        batch = batch.pin_memory()

    def step():
        x = batch.to(args.device, non_blocking=args.good, copy=True)
        return x @ weight

    for _ in range(args.steps):
        y = step()
    print(f"pageable_copy: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
