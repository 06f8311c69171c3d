"""What is optimized: the examples' models, small transformers written out here, and models of libraries if installed.

Sizes depend on the device: a CPU run covers the whole loop in minutes, a GPU run has sizes that people use.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples"


class Workload(NamedTuple):
    """A program to optimize.

    Attributes:
        name: stable. why: what it stands for. needs: packages without which it is skipped.
        make: from the device: the target and its example inputs.
    """

    name: str
    why: str
    needs: tuple[str, ...]
    make: Callable[[str], tuple[Any, Any]]


def _example(name: str) -> Any:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def _dtype(device: str) -> Any:
    import torch

    return torch.bfloat16 if device.startswith("cuda") else torch.float32


def _mlp(kind: str, hidden: int, inner: int, rows: int) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch

        model = _example("mlp").build(kind, hidden, inner).to(device, _dtype(device)).eval().requires_grad_(False)
        return model, torch.randn(rows, hidden, device=device, dtype=_dtype(device))

    return make


def _pointwise(function: str) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch

        outer = getattr(torch, function)

        class Chain(torch.nn.Module):
            def forward(self, x: Any, w: Any, b: Any) -> Any:
                for _ in range(10):
                    x = outer(x * w + b)
                return x

        rows = 65536 if device.startswith("cuda") else 2048
        return Chain().eval(), tuple(torch.randn(rows, 64, device=device) for _ in range(3))

    return make


def _encoder(device: str) -> tuple[Any, Any]:
    import torch

    big = device.startswith("cuda")
    width, layers, length, batch = (512, 6, 256, 16) if big else (128, 2, 64, 4)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, activation="gelu")
    # The module's own fast path for inference would hide the layers from everything else.
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device, _dtype(device))
    return model.eval().requires_grad_(False), torch.randn(batch, length, width, device=device, dtype=_dtype(device))


def _convolutions(device: str) -> tuple[Any, Any]:
    import torch
    from torch import nn

    width, size, batch = (64, 56, 32) if device.startswith("cuda") else (32, 32, 4)
    layers: list[Any] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(6):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*layers).eval().requires_grad_(False).to(device)
    return model, torch.randn(batch, 3, size, size, device=device)


def _training(optimizer: str, **options: Any) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch
        from torch import nn

        layers, width, rows = (40, 512, 256) if device.startswith("cuda") else (20, 64, 32)
        model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.GELU())]).to(device)
        chosen = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-4, **options)

        def step(x: Any) -> Any:
            chosen.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            chosen.step()
            return loss

        return step, torch.randn(rows, width, device=device)

    return make


def _transformers(kind: str, config: str, **sizes: Any) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch

        library = importlib.import_module("transformers")
        model = getattr(library, kind)(getattr(library, config)(**sizes)).to(device, _dtype(device))
        tokens = torch.randint(0, sizes["vocab_size"], (4, 64), device=device)
        return model.eval().requires_grad_(False), {
            "input_ids": tokens,
            "use_cache": False,
        }  # a cache would be another output

    return make


def _vision(name: str) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch

        model = getattr(importlib.import_module("torchvision.models"), name)(weights=None)
        batch, size = (32, 224) if device.startswith("cuda") else (2, 96)
        return model.to(device).eval().requires_grad_(False), torch.randn(batch, 3, size, size, device=device)

    return make


def _timm(name: str) -> Callable[[str], tuple[Any, Any]]:
    def make(device: str) -> tuple[Any, Any]:
        import torch

        model = importlib.import_module("timm").create_model(name, pretrained=False)
        return model.to(device).eval().requires_grad_(False), torch.randn(2, 3, 224, 224, device=device)

    return make


WORKLOADS: list[Workload] = [
    Workload("pointwise-tanh", "ten rounds of multiply, add, tanh", (), _pointwise("tanh")),
    Workload("pointwise-relu", "ten rounds of multiply, add, relu", (), _pointwise("relu")),
    Workload("mlp-narrow", "GELU MLP 64/256, many rows", (), _mlp("gelu", 64, 256, 8192)),
    Workload("mlp-gelu", "GELU MLP 256/1024, few rows", (), _mlp("gelu", 256, 1024, 32)),
    Workload("mlp-swiglu", "gated MLP 256/1024", (), _mlp("swiglu", 256, 1024, 64)),
    Workload("encoder", "transformer encoder, inference", (), _encoder),
    Workload("convolutions", "convolution, batch norm, ReLU", (), _convolutions),
    Workload("train-adamw-loop", "training step, AdamW parameter by parameter", (), _training("AdamW", foreach=False)),
    Workload("train-sgd", "training step, SGD as it comes", (), _training("SGD")),
    Workload("resnet18", "torchvision", ("torchvision",), _vision("resnet18")),
    Workload("mobilenet_v3_small", "torchvision", ("torchvision",), _vision("mobilenet_v3_small")),
    Workload(
        "gpt2", "transformers, from a config", ("transformers",),
        _transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=1000, n_embd=256, n_layer=4, n_head=4),
    ),
    Workload(
        "llama", "transformers, from a config", ("transformers",),
        _transformers(
            "LlamaForCausalLM", "LlamaConfig",
            vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        ),
    ),
    Workload(
        "bert", "transformers, from a config", ("transformers",),
        _transformers(
            "BertModel", "BertConfig", vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
            intermediate_size=1024,
        ),
    ),
    Workload("vit_tiny", "timm", ("timm",), _timm("vit_tiny_patch16_224")),
]  # fmt: skip


def missing(workload: Workload) -> str:
    """The first package that a workload needs and this machine lacks; "" if there is none."""
    return next((name for name in workload.needs if importlib.util.find_spec(name) is None), "")
