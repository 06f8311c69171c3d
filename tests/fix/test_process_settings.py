"""Settings of the process: what a candidate leaves changed is found, named, and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from lanewise.fix.process_settings import changed_settings, put_back, settings
from tests.fix.programs import planted
from tests.fix.test_plants import X, first, inference, judged

SETTINGS: dict[str, Callable[[], Any]] = {
    "mkldnn.enabled": lambda: setattr(torch.backends.mkldnn, "enabled", not torch.backends.mkldnn.enabled),
    "cudnn.enabled": lambda: setattr(torch.backends.cudnn, "enabled", not torch.backends.cudnn.enabled),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    "printing of tensors": lambda: torch.set_printoptions(precision=2, sci_mode=True),
    "printing of NumPy's arrays": lambda: np.set_printoptions(precision=3),
    "default device": lambda: torch.set_default_device("cpu"),
    "default type": lambda: torch.set_default_dtype(torch.float64),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "type of autocast on cpu": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "autocast keeps casts": lambda: torch.set_autocast_cache_enabled(False),
    "cuDNN's attention": lambda: torch.backends.cuda.enable_cudnn_sdp(False),
    "warnings each time": lambda: torch.set_warn_always(True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_was_changed_is_named_and_put_back(name: str) -> None:
    before = settings()
    try:
        SETTINGS[name]()
        assert changed_settings(before) == [name]
    finally:
        put_back(before)
    assert changed_settings(before) == []


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["mkldnn.enabled", "printing of tensors", "default device"])
def test_a_candidate_that_changes_one_is_rejected_for_it(name: str) -> None:
    before = settings()
    found = judged(inference(), X, planted("bad", first(lambda module, x: SETTINGS[name]())))
    assert f"settings of the process: {name}" in found.reason
    assert changed_settings(before) == []
