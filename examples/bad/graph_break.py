"""A value read in the middle breaks the compiled graph in two; `--good` leaves it out."""

import argparse

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--backend", default=None, help="inductor on a GPU, aot_eager on the CPU unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    def model(x):
        x = torch.relu(x @ x)
        if not args.good:
            x.sum().item()  # a value for a log, say
        return torch.relu(x @ x)

    call = torch.compile(model, backend=args.backend or ("inductor" if args.device.startswith("cuda") else "aot_eager"))
    x = torch.randn(128, 128, device=args.device) / 128

    def step():
        return call(x)

    with torch.no_grad():
        for _ in range(args.steps):
            y = step()
    print(f"graph_break: {tuple(y.shape)}")


if __name__ == "__main__":
    main()
