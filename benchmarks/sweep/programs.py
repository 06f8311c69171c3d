"""Programs whose batch is an argument: `python -m benchmarks.sweep.programs NAME --batch 4 [--device cuda]`.

Each is small, so that a small batch is bound by what the host does for each operator, and a large one by the work.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["PROGRAMS", "main"]

Step = Callable[[], Any]


def _training(model: nn.Module, loss: Callable[[], Tensor], make: Any = torch.optim.SGD) -> Step:
    optimizer = make(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def mlp(batch: int, device: str) -> Step:
    """A classifier of vectors, trained."""
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.ReLU())
    model.append(nn.Linear(256, 10)).to(device)
    x, y = torch.randn(batch, 64, device=device), torch.randint(0, 10, (batch,), device=device)
    return _training(model, lambda: functional.cross_entropy(model(x), y))


def deep_mlp(batch: int, device: str) -> Step:
    """Many narrow layers with Adam, trained."""
    model = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(48, 48), nn.Tanh()))).to(device)
    x = torch.randn(batch, 48, device=device)
    return _training(model, lambda: model(x).square().mean(), torch.optim.Adam)


def cnn(batch: int, device: str) -> Step:
    """Convolutions with batch norm on small images, trained."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    model.extend([nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)])
    model.to(device)
    x, y = torch.randn(batch, 1, 12, 12, device=device), torch.randint(0, 10, (batch,), device=device)
    return _training(model, lambda: functional.cross_entropy(model(x), y))


def transformer(batch: int, device: str) -> Step:
    """An encoder of short sequences, trained."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    x = torch.randn(batch, 8, 64, device=device)
    return _training(model, lambda: model(x).square().mean())


def language(batch: int, device: str) -> Step:
    """A causal language model with an embedding and a vocabulary, trained."""
    embed, head = nn.Embedding(200, 48), nn.Linear(48, 200)
    model = nn.ModuleList([embed, nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True), head]).to(
        device
    )
    tokens = torch.randint(0, 200, (batch, 9), device=device)
    mask = nn.Transformer.generate_square_subsequent_mask(8, device=torch.device(device))

    def loss() -> Tensor:
        hidden = model[1](embed(tokens[:, :-1]), src_mask=mask, is_causal=True)
        return functional.cross_entropy(head(hidden).flatten(0, 1), tokens[:, 1:].flatten())

    return _training(model, loss)


def autoencoder(batch: int, device: str) -> Step:
    """Down and up again, with dropout, trained with Adam."""
    sizes = [128, 64, 16, 64, 128]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.SiLU(), nn.Dropout(0.1))]
    model = nn.Sequential(*layers[:-1]).to(device)
    x = torch.randn(batch, 128, device=device)
    return _training(model, lambda: functional.mse_loss(model(x), x), torch.optim.Adam)


def served_mlp(batch: int, device: str) -> Step:
    """The classifier served: forward only."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    x = torch.randn(batch, 64, device=device)
    return _serving(model, lambda: model(x))


def served_encoder(batch: int, device: str) -> Step:
    """An encoder served, step by step: its layers as modules of its own."""
    model = nn.ModuleList([_Block(64) for _ in range(3)]).to(device).eval()
    x = torch.randn(batch, 8, 64, device=device)

    def forward() -> Tensor:
        hidden = x
        for block in model:
            hidden = block(hidden)
        return hidden

    return _serving(model, forward)


def recommender(batch: int, device: str) -> Step:
    """Embeddings of several features and a small tower, trained."""
    tables = nn.ModuleList(nn.Embedding(1000, 16) for _ in range(8))
    tower = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    model = nn.ModuleList([tables, tower]).to(device)
    ids, target = torch.randint(0, 1000, (batch, 8), device=device), torch.rand(batch, 1, device=device)

    def loss() -> Tensor:
        rows = torch.cat([table(ids[:, at]) for at, table in enumerate(tables)], dim=1)
        return functional.binary_cross_entropy_with_logits(tower(rows), target)

    return _training(model, loss)


def pointwise(batch: int, device: str) -> Step:
    """A chain of pointwise operators with a reduction, as in signal processing."""
    x, w = torch.randn(batch, 256, device=device), torch.rand(256, device=device)
    model = nn.Identity()

    def forward() -> Tensor:
        y = (x * w + 0.5).tanh()
        z = (y - y.mean(dim=1, keepdim=True)) / (y.std(dim=1, keepdim=True) + 1e-5)
        return torch.where(z > 0, z.exp(), z.abs().sqrt()).sum(dim=1)

    return _serving(model, forward)


def recurrent(batch: int, device: str) -> Step:
    """A recurrent cell over a few steps of time, trained."""
    cell, head = nn.GRUCell(32, 64), nn.Linear(64, 1)
    model = nn.ModuleList([cell, head]).to(device)
    x = torch.randn(batch, 6, 32, device=device)

    def loss() -> Tensor:
        hidden = torch.zeros(batch, 64, device=device)
        for at in range(6):
            hidden = cell(x[:, at], hidden)
        return head(hidden).square().mean()

    return _training(model, loss)


def generator(batch: int, device: str) -> Step:
    """Transposed convolutions from noise, served with a new noise each time."""
    model = nn.Sequential(nn.ConvTranspose2d(16, 16, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(16, 3, 3, stride=2))
    model.append(nn.Sigmoid()).to(device)
    return _serving(model, lambda: model(torch.randn(batch, 16, 3, 3, device=device)))


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mix(self.norm(x)).chunk(3, dim=-1)
        weights = (query @ key.transpose(-2, -1) / 8.0).softmax(dim=-1)
        return x + functional.gelu(self.out(weights @ value))


def _serving(model: nn.Module, forward: Callable[[], Tensor]) -> Step:
    served = _Served(model, forward).eval()

    def step() -> None:
        with torch.inference_mode():
            served()

    return step


class _Served(nn.Module):
    """One module around all, so that its calls are the steps."""

    def __init__(self, model: nn.Module, run: Callable[[], Tensor]) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self) -> Tensor:
        return self.run()


PROGRAMS: dict[str, Callable[[int, str], Step]] = {
    one.__name__: one
    for one in (
        mlp, deep_mlp, cnn, transformer, language, autoencoder, served_mlp, served_encoder, recommender, pointwise,
        recurrent, generator,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.device == "cpu":
        torch.set_num_threads(1)
    step = PROGRAMS[args.program](args.batch, args.device)
    for _ in range(args.steps):
        step()


if __name__ == "__main__":
    main()
