"""Kernels are tested on a CUDA device where there is one, in Triton's interpreter on CPU tensors otherwise.

Without torch or triton nothing here is collected: `make test` runs these by themselves, with Triton. The interpreter of
Triton 3.6 needs numpy < 2.4; that of 3.8 runs with 2.4.

Interpreted, a row of thousands of values takes seconds: of each test one such row is fast, the others are slow tests.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy
import pytest

_WIDE = 8000
"""Values of a row."""


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


_HAVE = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
collect_ignore_glob: list[str] = []
if not _HAVE:
    collect_ignore_glob.append("*test_*.py")
else:
    import torch

    if not torch.cuda.is_available():
        if _release(numpy.__version__) >= (2, 4) and _release(version("triton")) < (3, 8):
            collect_ignore_glob.append("*test_*.py")
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _HAVE:
        return
    import torch

    if torch.cuda.is_available():
        return
    begun: set[str] = set()
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "tests/kernels" not in item.nodeid or max(_sizes(params), default=0) < _WIDE:
            continue
        test = item.nodeid.split("[")[0]
        if test in begun:
            item.add_marker(pytest.mark.slow)
        begun.add(test)


def _sizes(value: Any) -> Iterator[int]:
    """Every whole number in the parameters of a test."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, int):
        yield value
        return
    elif not isinstance(value, tuple | list):
        return
    for one in value:
        yield from _sizes(one)


@pytest.fixture
def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _reproducible() -> None:  # pyright: ignore[reportUnusedFunction]
    """Same random inputs each time; numpy's warnings about NaN in the interpreter are the point of a test."""
    import torch

    from lanewise.kernels.dispatch import eligibility as guard
    from lanewise.kernels.gemm import fused_mlp as mlps

    torch.manual_seed(0)
    guard.reset_counts()
    guard.train_from_elements = 0  # the gradients under test are the kernels'
    mlps.measured_only = False  # and so are the small MLPs
    warnings.filterwarnings("ignore", category=RuntimeWarning)


@pytest.fixture(autouse=True)
def _masks_of_scalars(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The interpreter (of Triton 3.9) gives what comes of comparing two scalars their type: spread over a block, it is no
    mask, and no load takes it."""
    import torch

    if torch.cuda.is_available():
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    spread: Any = InterpreterBuilder.create_splat

    def as_bits(builder: Any, kind: Any, scalar: Any) -> Any:
        bits = scalar.data.dtype == bool
        return spread(builder, kind, type(scalar)(scalar.data, tl.int1) if bits else scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_splat", as_bits)


@pytest.fixture(autouse=True)
def _outputs_start_as_nan():  # pyright: ignore[reportUnusedFunction]
    """torch.empty gives NaN, so that an output which a kernel leaves unwritten is seen."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
