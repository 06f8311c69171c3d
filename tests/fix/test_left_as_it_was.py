"""A user's process is never left with other settings, hooks, threads, handlers or files, however `optimize` ends."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.optimize import optimize
from lanewise.fix.process_settings import changed_settings, settings
from tests.fix.conftest import WorkClock
from tests.fix.programs import Repeats, done_once, planted

pytestmark = pytest.mark.usefixtures("one_thread")

HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_parameter_registration_hooks",
)
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])]


def seen() -> dict[str, Any]:
    """Everything of a process that may be left otherwise, besides its memory."""
    module: Any = nn.modules.module
    return {
        "hooks of all modules": [len(getattr(module, name)) for name in HOOKS if hasattr(module, name)],
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "saved tensors": torch._C._autograd._saved_tensors_hooks_is_enabled(),
        "signals": [signal.getsignal(one) for one in SIGNALS],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else 0,
        # The compiler's own timer ends when it likes.
        "threads": sorted(one.name for one in threading.enumerate() if one.name != "subproc_worker_timer"),
        "exceptions": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "traces": (sys.gettrace(), sys.getprofile()),
        "garbage": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count() > 0),
        "warnings": list(warnings.filters),
        "streams": (sys.stdout, sys.stderr, faulthandler.is_enabled()),
        "environment": dict(os.environ),
        "folder": (os.getcwd(), sorted(os.listdir())),
        "temporary": sorted(os.listdir(tempfile.gettempdir())),
        "open files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "random": torch.get_rng_state().tolist(),
        "class of modules": (nn.Module.__call__, nn.Module.forward, nn.Module.__getattr__, torch.Tensor.backward),
    }


def raises(error: BaseException, after: int) -> Candidate:
    calls = [0]

    def stop(module: Any, original: Callable[..., Any]) -> Any:
        def forward(x: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            if calls[0] > after:
                raise error
            return original(x)

        return forward

    return planted("stop", stop)


def sleeps(module: Any, original: Callable[..., Any]) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        time.sleep(30)
        return original(x)

    return forward


def meddles(module: Any, original: Callable[..., Any]) -> Any:
    """Leaves settings of the process changed."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        torch.set_num_threads(2)
        torch.set_float32_matmul_precision("high")
        torch.set_default_dtype(torch.float64)
        gc.disable()
        torch.autograd.set_detect_anomaly(True)
        return original(x)

    return forward


ENDS: dict[str, tuple[Candidate, type[BaseException] | None]] = {
    "kept": (planted("stop", done_once), None),
    "raises": (raises(RuntimeError("no"), 3), None),
    "interrupted at once": (raises(KeyboardInterrupt(), 0), KeyboardInterrupt),
    "interrupted while it is checked": (raises(KeyboardInterrupt(), 30), KeyboardInterrupt),
    "exits": (raises(SystemExit(3), 5), SystemExit),
    "out of budget": (planted("stop", sleeps), None),
    "settings": (planted("stop", meddles), None),
}


@pytest.mark.parametrize("applied", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "name", [name if name != "out of budget" else pytest.param(name, marks=pytest.mark.slow) for name in ENDS]
)
def test_whatever_becomes_of_it_the_process_is_as_it_was(
    name: str, applied: bool, work_clock: WorkClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    candidate, error = ENDS[name]
    model, x = Repeats(work_clock).eval(), torch.randn(64, 64)
    handle = model.register_forward_hook(lambda *_: None)
    model(x)
    torch.set_num_threads(1)

    def attempt() -> Any:
        seconds = 6 if name == "out of budget" else 60
        return optimize(model, x, budget=seconds, only=["stop"], extra=[candidate], trace=name == "kept" and applied)

    def run() -> None:
        if error is not None:
            with pytest.raises(error):
                attempt()
            return
        plan = attempt()
        assert bool(plan) == (name == "kept"), plan.summary()
        if applied:
            with plan:
                model(x)

    run()  # what is imported and loaded stays, once
    before, held, now = settings(), dict(vars(model)), seen()
    run()
    assert changed_settings(before) == []
    assert seen() == now
    assert dict(vars(model)) == held
    handle.remove()
    assert not model._forward_hooks


def test_from_another_thread_nothing_is_interrupted_and_nothing_left(work_clock: WorkClock) -> None:
    """There are no timer signals there: budgets are kept between the parts."""
    model, x = Repeats(work_clock).eval(), torch.randn(64, 64)
    found: list[Any] = []
    handlers = [signal.getsignal(one) for one in SIGNALS]

    def work() -> None:
        try:
            extra = [planted("stop", done_once)]
            found.append(optimize(model, x, budget="20s", only=["stop"], extra=extra, trace=False))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found
    assert not isinstance(found[0], BaseException), found
    assert found[0].report.winner == ["stop"], found[0].summary()
    assert [signal.getsignal(one) for one in SIGNALS] == handlers
