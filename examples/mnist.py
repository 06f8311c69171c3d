"""The network of PyTorch's MNIST example, trained on random images of the same shape."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def train(model, device, batches, optimizer):
    model.train()
    for data, target in batches:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=None, help="64 on a GPU, 8 on the CPU unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(1)
    batch = args.batch or (64 if args.device.startswith("cuda") else 8)
    one = (torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,)))
    model = Net().to(args.device)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    loss = train(model, args.device, [one] * args.steps, optimizer)
    print(f"mnist: {args.steps} steps on {args.device}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
