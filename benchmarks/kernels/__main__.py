"""Measure the kernels on this machine's card: `python -m benchmarks.kernels OUT.json [--group softmax ...]`.

ID kernels. Question: which kernels beat the best alternative on this card, and by how much? Cases, arms, costs and
checks are those of `benchmarks.kernels.cases`; the rules of timing those of `benchmarks.kernels.measuring`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.kernels.bench import names_in, run, warm
from benchmarks.kernels.cases.groups import GROUPS
from benchmarks.kernels.charts import write_charts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--group", action="append", choices=list(GROUPS), default=[])
    parser.add_argument("--match", default="", help="regular expression that the name of a case must hold")
    parser.add_argument("--missing-from", type=Path, nargs="*", default=[], help="leave out what these results hold")
    parser.add_argument("--seconds", type=float, default=500, help="start no case after this many seconds")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-tuning", action="store_true")
    parser.add_argument("--tune-behind", type=float, default=0, metavar="RATIO", help="tune only what is behind this")
    parser.add_argument("--max-autotune", action="store_true", help="also compile with max-autotune-no-cudagraphs")
    parser.add_argument("--tune-only", action="store_true", help="time the candidates and nothing else")
    parser.add_argument("--compile-only", action="store_true", help="fill the caches of compiled kernels and stop")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile ahead")
    parser.add_argument("--keep", action="store_true", help="keep the fastest configurations for this card")
    parser.add_argument("--plot", type=Path, help="write a chart per kind of kernel into this folder")
    options = parser.parse_args()
    modes = ("compile", "max-autotune") if options.max_autotune else ("compile",)
    tuning_too = not options.no_tuning and not options.tune_behind
    held = frozenset(name for path in options.missing_from for name in names_in(path))
    if options.compile_only:
        ahead = () if options.tune_only else modes[:1]
        took = warm(tuple(options.group), options.workers, ahead, options.seconds, options.match, tuning_too, held)
        print(f"compiled in {took:.1f} s")
        return
    document = run(
        options.out,
        tuple(options.group),
        seconds=options.seconds,
        rounds=options.rounds,
        tuning_too=tuning_too,
        tune_behind=options.tune_behind,
        modes=modes,
        workers=options.workers,
        match=options.match,
        held=held,
        tune_only=options.tune_only,
        keep=options.keep,
        say=lambda text: print(text, flush=True),
    )
    if options.plot is not None:
        for path in write_charts([document], options.plot):
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
