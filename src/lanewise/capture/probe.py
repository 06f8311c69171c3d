"""What this machine can record, found out by recording: each probe is a real, tiny recording in a process of its own.

    python -m lanewise.capture.probe cpu|cuda|stacks

prints one JSON object. A probe that crashes or hangs, as some profiler faults do, costs its own process only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["PROBES", "probe", "run_probe"]

PROBES = ("cpu", "stacks", "cuda")

_SECONDS = 120.0


def run_probe(name: str, *, seconds: float = _SECONDS) -> dict[str, Any]:
    """The answer of one probe, made in a fresh process: `ok`, and `why` where it is not; never raises."""
    environment = dict(os.environ)
    home = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [environment.get("PYTHONPATH")])])
    words = [sys.executable, "-m", "lanewise.capture.probe", name]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, env=environment, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "why": f"no answer within {seconds:.0f} s: the profiler hangs when it starts"}
    except OSError as error:
        return {"ok": False, "why": f"cannot start a process: {error}"}
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"ok": False, "why": f"the probe ended with code {done.returncode}: {last[:200]}"}


def probe(name: str) -> dict[str, Any]:
    """Makes the recording in this process."""
    from lanewise.capture.file import event_counts
    from lanewise.capture.lazy_torch import torch_part
    from lanewise.capture.profiling import faults
    from lanewise.capture.profiling.profiler import Flags, Session

    torch = torch_part()

    if name == "cuda" and not torch.cuda.is_available():
        built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
        return {"ok": False, "why": "no CUDA device" if built else "this torch is a CPU build"}
    device = "cuda" if name == "cuda" else "cpu"
    flags = Flags(stacks=name == "stacks")
    session = Session(flags, device)
    x = torch.ones(64, 64, device=device)
    session.prepare()
    _known_frame(x)
    session.start()
    _known_frame(x)
    session.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.json"
        session.export(str(path))
        found = event_counts.scan(path)
        frames = b"_known_frame" in path.read_bytes()
    problems = [fault.sentence for fault in faults.find(found, flags, session.messages, session.missing)]
    if name == "stacks" and not frames:
        problems.append("stacks are recorded without the program's own frames")
    answer: dict[str, Any] = {"ok": not problems, "costs_ms": session.costs_ms, "missing": session.missing}
    if problems:
        answer["why"] = "; ".join(dict.fromkeys(problems))
    return answer


def _known_frame(x: Any) -> Any:
    return x @ x


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
