"""How many threads share an operator on the host: more are slower where operators are small."""

from __future__ import annotations

import os

from lanewise.fix.candidates.candidate import Candidate, Setting
from lanewise.fix.candidates.predictions import setting_is
from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch
from lanewise.trace.cores import usable_cores

__all__ = ["candidates"]


def candidates(subject: Subject) -> list[Candidate]:
    """One thread, half of the cores, all cores: those that are not in use now."""
    if subject.device.type != "cpu":
        return []
    cores = usable_cores()
    now = torch.get_num_threads()
    return [
        Candidate(
            f"threads-{count}",
            "threads",
            "process",
            f"{count} {'thread' if count == 1 else 'threads'} per operator instead of {now}",
            lambda _, count=count: Setting(torch.get_num_threads, torch.set_num_threads, count),
            caveat=f"proven beside what else ran on this machine{_load(cores)}; it may not hold where that is otherwise",
            predictions=(setting_is("torch.threads", lambda count=count: count),),
        )
        for count in sorted({1, max(1, cores // 2), cores})
        if count != now
    ]


def _load(cores: int) -> str:
    """How busy the machine is now, where the system tells."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (a load of {os.getloadavg()[0]:.1f} on {cores} {'core' if cores == 1 else 'cores'})"
