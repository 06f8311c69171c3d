"""The start of a training program for tests that run one as a process.

torch's own optimizers import torch's compiler when the first one is made, which takes three seconds of every such
program. One with a step of its own is recorded like any other, and does not.
"""

from __future__ import annotations

__all__ = ["DESCENT"]

DESCENT = """
import torch

class Descent(torch.optim.Optimizer):
    add_param_group = torch.optim.Optimizer.add_param_group.__wrapped__
    zero_grad = torch.optim.Optimizer.zero_grad.__wrapped__

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
"""
