"""Models that several pairs train or run."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from benchmarks.replay.pairs.base import Place
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["Block", "Language", "mlp", "training"]


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.second = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """A small language model."""

    def __init__(self, words: int, width: int, heads: int, layers: int, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def mlp(width: int, layers: int) -> nn.Sequential:
    """Linear layers with GELU between them."""
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())])


def training(
    at: Place, *, width: int, layers: int, batch: int, length: int, words: int = 1024, again: bool = False
) -> tuple[Language, torch.Tensor, Callable[[], torch.Tensor]]:
    """A language model in bfloat16, its tokens, and its loss."""
    width, length = at.n(width), at.n(length, 8)
    model = Language(at.n(words, 32), width, max(1, width // 64), at.n(layers, 2), again).to(at.device, torch.bfloat16)
    tokens = torch.randint(0, at.n(words, 32), (at.n(batch, 2), length + 1), device=at.device)
    return model, tokens, lambda: model.loss(tokens)
