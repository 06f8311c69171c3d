"""The programs that are watched: each is a function of the device that makes a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

__all__ = ["HEADS", "PROGRAMS", "RATE", "Model"]

HEADS = 4
"""Of attention in `Model`."""
RATE = 0.0
"""Of learning: weights stay as they are, as operators take longer with other values (`gelu` by up to a fifth)."""


def adds(device: str, count: int = 5_000) -> Callable[[], None]:
    """A step is `count` additions of one number: nothing but launching. Twenty steps are the 100,000 of the target."""
    x, y = torch.ones(1, device=device), torch.ones(1, device=device)

    def step() -> None:
        for _ in range(count):
            torch.add(x, y)

    return step


class Block(nn.Module):
    """Attention and a gated MLP, written out as many frameworks do."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm2 = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotary positions."""
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """One layer."""
        batch, length, width = x.shape
        h = self.norm(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (layer(h).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        weights = torch.softmax(q @ k.transpose(-1, -2) * shape[-1] ** -0.5, dim=-1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    """A small Llama-like network."""

    def __init__(self, layers: int, width: int, words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width, HEADS) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def llama(device: str, layers: int = 16, width: int = 64, length: int = 8) -> Callable[[], None]:
    """A training step of a small eager Llama-like model: launch-bound, about ten thousand operators with 16 layers."""
    torch.manual_seed(0)
    model = Model(layers, width, 128).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, foreach=False)
    tokens = torch.randint(0, 128, (1, length), device=device)
    cos, sin = (torch.randn(length, width // HEADS, device=device) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        scores = model(tokens, cos, sin)
        nn.functional.cross_entropy(scores.view(-1, 128), tokens.view(-1)).backward()
        optimizer.step()

    return step


def small_llama(device: str) -> Callable[[], None]:
    """The same with one layer."""
    return llama(device, layers=1)


def wide(device: str) -> Callable[[], None]:
    """A training step of a few large matrix products: bound by the device."""
    torch.manual_seed(0)
    on_cpu = device == "cpu"
    width, batch, dtype = (512, 512, torch.float32) if on_cpu else (8192, 8192, torch.bfloat16)
    layers = [nn.Linear(width, width, bias=False, device=device, dtype=dtype) for _ in range(4)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.GELU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x = torch.randn(batch, width, device=device, dtype=dtype)

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    return step


def mlp(device: str) -> Callable[[], None]:
    """A training step of two layers, short enough for very many of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x = torch.randn(8, 32, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


class Residual(nn.Module):
    """One block of a small ResMLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in, and what two layers make of it."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def resmlp(device: str) -> Callable[[], None]:
    """A training step of a small ResMLP of twelve blocks: launch-bound."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(64) for _ in range(12))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, foreach=False)
    x = torch.randn(32, 64, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def steady(device: str) -> Callable[[], None]:
    """A training step of middling kernels, long enough to be timed and too light to make the card hot."""
    torch.manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    width, batch = (128, 128) if device == "cpu" else (2048, 2048)
    part = {"device": device, "dtype": dtype}
    layers = [nn.LayerNorm(width, **part), nn.Linear(width, width, **part), nn.GELU(), nn.Linear(width, width, **part)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x = torch.randn(batch, width, device=device, dtype=dtype)

    def step() -> None:
        optimizer.zero_grad()
        torch.softmax(model(x), dim=-1).float().square().mean().backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, Callable[[str], Callable[[], None]]] = {
    "adds": adds,
    "llama": llama,
    "mlp": mlp,
    "resmlp": resmlp,
    "small_llama": small_llama,
    "steady": steady,
    "wide": wide,
}
