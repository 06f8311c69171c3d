"""A transformer's MLP: GELU with biases, SwiGLU or GeGLU without. Compiling fuses what lies between the GEMMs."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class GeluMLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class GatedMLP(nn.Module):
    def __init__(self, hidden, inner, activation):
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.gate(x)) * self.up(x))


def build(kind, hidden, inner):
    if kind == "gelu":
        return GeluMLP(hidden, inner)
    if kind == "swiglu":
        return GatedMLP(hidden, inner, F.silu)
    return GatedMLP(hidden, inner, lambda x: F.gelu(x, approximate="tanh"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["gelu", "swiglu", "geglu"], default="gelu")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default=None)
    parser.add_argument("--graph", action="store_true", help="capture a CUDA graph by hand")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device.startswith("cuda") else torch.float32
    model = build(args.kind, args.hidden, args.inner).to(args.device, dtype)
    x = torch.randn(args.batch, args.sequence, args.hidden, device=args.device, dtype=dtype)
    call = torch.compile(model, mode=args.mode) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4) if args.train else None

    if args.graph:
        with torch.no_grad():
            for _ in range(3):
                call(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call(x)

    def step():
        if args.graph:
            graph.replay()
            return None
        if optimizer is None:
            return call(x)
        optimizer.zero_grad()
        loss = call(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with torch.set_grad_enabled(args.train):
        for _ in range(args.steps):
            step()
    print(f"mlp: {args.steps} steps of {args.kind} {args.hidden}/{args.inner} on {args.device}")


if __name__ == "__main__":
    main()
