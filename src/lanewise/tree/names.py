"""Names as keys: what changes from run to run is taken out, and Python frames are taken apart.

Two runs of one program must give the same contexts, so addresses and counters are not part of a name.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Frame", "is_library", "normalise", "parse_frame", "parse_module"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"#\d+")
_GENERATED = re.compile(r"<eval_with_key>\.\d+")
# Inductor writes its code below a temporary directory whose name differs by user and machine.
_INDUCTOR = re.compile(r"^\S*torchinductor[^/]*/(?:[^/()]+/)*")
_SERVING = re.compile(r"^(execute_context_|execute_model\b)|\bgeneration_\S*\(")
_DIGITS = re.compile(r"\d+")

_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>-?\d+)\): (?P<function>.*)$", re.DOTALL)
_MODULE = re.compile(r"^nn\.Module: (?P<cls>.+?)(?:_(?P<index>\d+))?$", re.DOTALL)


def normalise(names: Sequence[str]) -> list[str]:
    """Names without addresses and counters, in the same order.

    Half characters, which no file can hold, become `?`; names above 4,000 characters are cut.
    """
    return [_normal(_whole(name)) if _needs_work(name) else _whole(name) for name in names]


_LONGEST = 4_000


def _whole(name: str) -> str:
    if not name.isascii():
        name = name.encode("utf-8", "replace").decode()
    if len(name) > _LONGEST:
        # A checksum keeps names apart that differ only at the end.
        name = f"{name[:_LONGEST]}…{zlib.crc32(name.encode()):08x}"
    return name


def _needs_work(name: str) -> bool:
    return (
        "0x" in name
        or "#" in name
        or "<eval" in name
        or "torchinductor" in name
        or name.startswith("execute_")
        or ("generation_" in name)
    )


def _normal(name: str) -> str:
    name = _ADDRESS.sub("", name)
    name = _NUMBER.sub("#*", name)
    name = _GENERATED.sub("<eval_with_key>", name)
    name = _INDUCTOR.sub("torchinductor/", name)
    return _DIGITS.sub("*", name) if _SERVING.search(name) else name


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


def parse_module(name: str) -> tuple[str, int] | None:
    """`nn.Module: Conv2d_3` -> (`Conv2d`, 3); None for a name of another form."""
    found = _MODULE.match(name)
    if found is None:
        return None
    return found["cls"], int((found["index"] or "0")[:18])


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
