"""How an optimizer updates: parameter by parameter, in a few batched operators, or in one fused one."""

from __future__ import annotations

from typing import Any

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.predictions import operator_appears
from lanewise.fix.subject import Subject
from lanewise.fix.torch_types import Optimizer
from lanewise.fix.typed_torch import torch

__all__ = ["candidates"]


_SCALING = "_step_supports_amp_scaling"


def candidates(subject: Subject) -> list[Candidate]:
    """Fused, then batched updates, for optimizers that know them and do not use them."""
    made: list[Candidate] = []
    for way, predicted in (("fused", "_fused_"), ("foreach", "_foreach_")):
        usable = [
            optimizer
            for optimizer in subject.found.optimizers
            if way in optimizer.defaults and not _uses(optimizer, way)
        ]
        if usable and subject.kind == "step":
            made.append(
                Candidate(
                    f"optimizer-{way}",
                    "optimizer",
                    ", ".join(type(optimizer).__name__ for optimizer in usable),
                    "updates all parameters in one fused operator"
                    if way == "fused"
                    else "updates parameters in batches",
                    lambda _, usable=usable, way=way: _Way(usable, way),
                    predictions=(operator_appears(predicted),),
                    answers=("OPT101", "OPT102"),
                )
            )
    return made


def _uses(optimizer: Optimizer, way: str) -> bool:
    return any(group.get(way) for group in optimizer.param_groups) or (
        way == "foreach" and any(group.get("fused") for group in optimizer.param_groups)
    )


class _Way:
    """The flags of some optimizers, and where their step counters lie; state is kept."""

    def __init__(self, optimizers: list[Any], way: str) -> None:
        self._optimizers = optimizers
        self._flags = {"fused": way == "fused", "foreach": way == "foreach"}
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._scaling: list[tuple[Any, Any]] = []

    def enable(self) -> None:
        """Set the flags."""
        if self._before:
            return
        for optimizer in self._optimizers:
            for group in (optimizer.defaults, *optimizer.param_groups):
                self._before.append((group, {name: group.get(name) for name in self._flags}))
                group.update(self._flags)
            self._scaling.append((optimizer, vars(optimizer).get(_SCALING)))
            setattr(optimizer, _SCALING, self._flags["fused"])
            _place_counters(optimizer, fused=self._flags["fused"])

    def disable(self) -> None:
        """Put the flags back."""
        while self._before:
            group, flags = self._before[-1]
            group.update(flags)
            self._before.pop()
        while self._scaling:
            optimizer, before = self._scaling.pop()
            # What a gradient scaler asks for; an optimizer that was never fused does not have it.
            vars(optimizer).pop(_SCALING, None) if before is None else setattr(optimizer, _SCALING, before)
        for optimizer in self._optimizers:
            _place_counters(optimizer, fused=any(group.get("fused") for group in optimizer.param_groups))


def _place_counters(optimizer: Optimizer, *, fused: bool) -> None:
    """A fused update reads its step counter on the parameter's device, the others on the host."""
    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, torch.Tensor):
            state["step"] = step.to(parameter.device if fused else "cpu")
