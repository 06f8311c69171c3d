"""One nn.Linear in inference: the transpose is a stride, the bias goes into the GEMM, and nothing is left to fuse."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--inputs", type=int, default=1024)
    parser.add_argument("--outputs", type=int, default=1024)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default=None)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device.startswith("cuda") else torch.float32
    model = nn.Linear(args.inputs, args.outputs, device=args.device, dtype=dtype).eval()
    x = torch.randn(args.batch, args.inputs, device=args.device, dtype=dtype)
    call = torch.compile(model, mode=args.mode) if args.compile else model

    def step():
        return call(x)

    with torch.inference_mode():
        for _ in range(args.steps):
            y = step()
    print(f"linear: {args.steps} steps, output {tuple(y.shape)} on {args.device}")


if __name__ == "__main__":
    main()
