"""HTA on one trace: load it, then the temporal breakdown. Runs in HTA's own environment; prints seconds and peak MB."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    """`peer_hta.py TRACE`."""
    path = Path(sys.argv[1])
    begun = time.perf_counter()
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
    analysis.get_temporal_breakdown(visualize=False)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


if __name__ == "__main__":
    main()
