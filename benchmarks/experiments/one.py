"""Records one program in this process, which has imported torch and done nothing with it.

The device's context is made before the program starts, since that takes a second which every program would pay alike. No
operator runs until then, so that a cold program is cold.

Only torch and the standard library are needed: lanewise is loaded as a bare namespace, without its other layers.
"""

from __future__ import annotations

import runpy
import sys
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def bare_lanewise() -> None:
    """Makes `lanewise.capture` importable without the packages that reading and explaining need."""
    sys.path.insert(0, str(ROOT / "src"))
    for name in ("lanewise", "lanewise.trace"):
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT / "src" / name.replace(".", "/"))]
        sys.modules[name] = package


def record(order: dict[str, Any]) -> dict[str, Any]:
    """Record the program that the order names, in this process: see `run.py` and `distortion.py`."""
    bare_lanewise()
    import torch

    if order["device"] == "cuda":
        torch.cuda.synchronize()
    from lanewise.capture.profiling.profiler import Flags
    from lanewise.capture.recording import Options, Recording
    from lanewise.capture.schedule import Plan
    from lanewise.trace.metadata import to_json

    script = str(ROOT / "examples" / order["script"])
    options = Options(
        plan=Plan(**order["plan"]),
        flags=Flags(**order["flags"]),
        out=Path(order["out"]),
        name=order["name"],
        step_on=order["step_on"],
        command=("python", f"examples/{order['script']}", *order["arguments"]),
        stop=True,
    )
    recording = Recording(options, log=lambda text: print(f"lanewise: {text}", file=sys.stderr))
    begun = time.time()
    recording.start()
    sys.argv = [script, *order["arguments"]]
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    recording.finish()
    return {
        "exit_code": code,
        "seconds": round(time.time() - begun, 2),
        "problem": recording.problem,
        "trace": recording.trace.name if recording.trace else None,
        "trace_bytes": recording.trace.stat().st_size if recording.trace else 0,
        "recorded": to_json(recording.facts) if recording.facts else None,
    }
