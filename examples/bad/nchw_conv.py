"""Half-precision convolutions in NCHW, which the library converts to NHWC and back; `--good` is channels-last."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--batch", type=int, default=None, help="32 on a GPU, 2 on the CPU unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    width, size, batch = (64, 56, args.batch or 32) if on_gpu else (8, 16, args.batch or 2)
    layers = []
    for _ in range(9):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*layers).eval().to(args.device, torch.float16 if on_gpu else torch.float32)
    x = torch.randn(batch, width, size, size, device=args.device, dtype=torch.float16 if on_gpu else torch.float32)
    if args.good:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    with torch.no_grad():
        for _ in range(args.steps):
            y = model(x)
    print(f"nchw_conv: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
