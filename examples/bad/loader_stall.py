"""Loads and transforms each batch in the training process; `--good` prepares the batches before the loop."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.full((3, 32, 32), float(index % 7))
        for _ in range(40):
            image = (image * 1.01).clamp(max=10.0)
        return image


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 10)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = DataLoader(Images(8 * args.steps), batch_size=8, num_workers=args.workers)
    if args.good:
        batches = list(batches)

    for batch in batches:
        optimizer.zero_grad()
        model(batch.to(args.device)).square().mean().backward()
        optimizer.step()
    print(f"loader_stall: {args.steps} steps")


if __name__ == "__main__":
    main()
