"""A scalar that changes in every step is a constant to the compiler; `--good` passes it as a tensor."""

import argparse

import torch


def scaled(x, scale):
    return torch.relu(x @ x) * scale


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--backend", default=None, help="inductor on a GPU, aot_eager on the CPU unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    backend = args.backend or ("inductor" if args.device.startswith("cuda") else "aot_eager")
    torch._dynamo.config.cache_size_limit = args.steps + 8
    torch._dynamo.config.automatic_dynamic_shapes = False
    call = torch.compile(scaled, backend=backend, dynamic=False)
    x = torch.randn(128, 128, device=args.device)

    def step(n):
        scale = torch.tensor(1.0 + n, device=args.device) if args.good else 1.0 + n
        return call(x, scale)

    with torch.no_grad():
        for n in range(args.steps):
            y = step(n)
    print(f"recompile: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
