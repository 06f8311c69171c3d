"""The mark around a step."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from lanewise.capture.boundaries.annotation import StepAnnotation


def test_ctrl_c_while_a_step_begins_leaves_nothing_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording is saved then: an end without a beginning would be an error, and lose it."""

    class Interrupted(torch.autograd.profiler.record_function):
        def __enter__(self) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch.autograd.profiler, "record_function", Interrupted)
    annotation = StepAnnotation()
    with pytest.raises(KeyboardInterrupt):
        annotation.begin(3)
    assert not annotation.is_open
    annotation.end()


def test_a_step_is_open_until_it_ends() -> None:
    annotation = StepAnnotation()
    annotation.begin(0)
    assert annotation.is_open
    annotation.end()
    assert not annotation.is_open
    annotation.end()
