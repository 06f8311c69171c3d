"""Records one program in this process, which the driver started ahead of time and which waits for its orders.

Importing torch and creating a device context takes seconds that every program would pay alike; both happen before the
order arrives. No operator runs until then, so that a cold program is cold.

Only torch and the standard library are needed: lanewise is loaded as a bare namespace, without its other layers.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bare_lanewise() -> None:
    """Makes `lanewise.record` importable without the packages that reading and explaining need."""
    sys.path.insert(0, str(ROOT / "src"))
    for name in ("lanewise", "lanewise.trace"):
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT / "src" / name.replace(".", "/"))]
        sys.modules[name] = package


def main() -> None:
    bare_lanewise()
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    from lanewise.record.plan import Plan
    from lanewise.record.profiler import Flags
    from lanewise.record.recording import Options, Recording
    from lanewise.record.script import Program, run
    from lanewise.trace.recorded import to_json

    print("ready", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.strip():
        return
    order = json.loads(line)
    program = Program(script=str(ROOT / "examples" / order["script"]), arguments=tuple(order["arguments"]))
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
    with contextlib.redirect_stdout(sys.stderr):
        code = run(program, recording.finish)
    result = {
        "exit_code": code,
        "seconds": round(time.time() - begun, 2),
        "problem": recording.problem,
        "trace": recording.trace.name if recording.trace else None,
        "trace_bytes": recording.trace.stat().st_size if recording.trace else 0,
        "recorded": to_json(recording.facts) if recording.facts else None,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
