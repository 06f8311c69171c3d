"""Kernels are tested on a CUDA device where there is one, in Triton's interpreter on CPU tensors otherwise.

Without torch or triton nothing here is collected. Triton 3.6's interpreter needs numpy < 2.4.
"""

from __future__ import annotations

import importlib.util
import os
import warnings

import numpy
import pytest

_HAVE = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
collect_ignore_glob: list[str] = []
if not _HAVE:
    collect_ignore_glob.append("*test_*.py")
else:
    import torch

    if not torch.cuda.is_available():
        if tuple(int(part) for part in numpy.__version__.split(".")[:2]) >= (2, 4):
            collect_ignore_glob.append("*test_*.py")
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _HAVE:
        return
    import torch

    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


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
def _outputs_start_as_nan():  # pyright: ignore[reportUnusedFunction]
    """torch.empty gives NaN, so that an output which a kernel leaves unwritten is seen."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
