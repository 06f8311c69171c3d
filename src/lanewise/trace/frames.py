"""Python frames as a profiler names them: what they consist of, and whether they are the program's own."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Frame", "frame_at", "is_library", "is_user_frame", "parse_frame"]

_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>-?\d+)\): (?P<function>.*)$", re.DOTALL)


class Frame(NamedTuple):
    """A Python frame. The line is the one that the profiler gives: where the function begins, not where it stands.

    A built-in function has neither file nor line: "" and 0.
    """

    file: str
    line: int
    function: str


@lru_cache(maxsize=65536)
def parse_frame(name: str) -> Frame:
    """`train.py(12): main` -> (`train.py`, 12, `main`)."""
    found = _FRAME.match(name)
    if found is None:
        return Frame("", 0, name)
    return Frame(found["file"], int(found["line"][:18]), found["function"])


def frame_at(name: str, detail: str) -> Frame:
    """A frame of a tree: with the line that it stood in, where the tree tells these apart (its detail is `line 14`)."""
    frame = parse_frame(name)
    line = detail.removeprefix("line ")
    stood = frame.file and line != detail and line.isascii() and line.isdigit()
    return frame._replace(line=int(line[:18])) if stood else frame


# First directory of packages that people use but rarely write. Frames carry paths relative to where Python found the
# package, so `site-packages` is usually cut off already.
_PACKAGES = frozenset(
    {
        "accelerate",
        "apex",
        "bitsandbytes",
        "cupy",
        "datasets",
        "deepspeed",
        "diffusers",
        "einops",
        "flash_attn",
        "fsspec",
        "functorch",
        "huggingface_hub",
        "ipykernel",
        "IPython",
        "jax",
        "keras",
        "lanewise",
        "liger_kernel",
        "lightning",
        "lightning_fabric",
        "lightning_utilities",
        "megatron",
        "mlflow",
        "networkx",
        "numba",
        "numpy",
        "onnx",
        "packaging",
        "pandas",
        "peft",
        "PIL",
        "polars",
        "pyarrow",
        "pydantic",
        "pytorch_lightning",
        "ray",
        "safetensors",
        "scipy",
        "sglang",
        "sklearn",
        "sympy",
        "tensorboard",
        "tensordict",
        "timm",
        "tokenizers",
        "torch",
        "torchao",
        "torchaudio",
        "torchmetrics",
        "torchrec",
        "torchtitan",
        "torchvision",
        "tqdm",
        "transformers",
        "triton",
        "trl",
        "typing_extensions",
        "vllm",
        "wandb",
        "xformers",
    }
)


@lru_cache(maxsize=65536)
def is_library(file: str) -> bool:
    """Whether a frame's file belongs to Python, to torch or to another well-known package rather than to the user.

    A path relative to a package that the table does not know counts as the user's.
    """
    if not file or file.startswith("<"):
        return True
    path = file.replace("\\", "/")
    if "site-packages/" in path or "dist-packages/" in path or path.startswith("torchinductor/"):
        return True
    if re.search(r"/lib(64)?/python3\.\d+/", path):
        return True
    if path.startswith("/"):
        return False
    top, _, rest = path.partition("/")
    if rest:
        return top in _PACKAGES or top in sys.stdlib_module_names
    return top.removesuffix(".py") in sys.stdlib_module_names


def is_user_frame(name: str) -> bool:
    """Whether the name of a Python row is that of a frame of the program and not of a library."""
    return ".py(" in name and not is_library(parse_frame(name).file)
