"""Gate, tune and measure the cases of `benchmarks.kernels.cases`; write one JSON document as it goes.

Order per case: the result is compared with the exact one (outputs start as NaN, inputs are compared afterwards, two
runs must be bit-equal) and no time is taken if that fails; the candidates of the tuner are timed briefly; then all
arms take turns. The document holds raw rounds, so that any statistic can be recomputed, and is rewritten after each
case: a run that is cut short leaves what it had.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from benchmarks.kernels.cases.case import Case, error
from benchmarks.kernels.cases.groups import cases
from benchmarks.kernels.measuring import Samples, calibrate, device_times, machine, ratio_interval

from lanewise.kernels.cost import card_named
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.launcher import Kernel

__all__ = ["SCHEMA", "gate", "measure", "names_in", "run", "tune", "warm"]

SCHEMA = 1
_FLOOR = 2e-3  # of the largest value: about half a rounding step of bf16


def _compiled(case: Case, mode: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    kind = None if mode == "compile" else "max-autotune-no-cudagraphs"
    return torch.compile(case.arms["eager"], dynamic=False, mode=kind)


def gate(case: Case) -> dict[str, Any]:
    """Compare with the exact result. `ok` is false when a kernel of ours may not be timed."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # empty() yields NaN: unwritten outputs show
    try:
        inputs = case.make(11)
        kept = [t.clone() for t in inputs]
        want = case.exact(*inputs)
        eager = error(case.arms["eager"](*inputs), want)
        result: dict[str, Any] = {"eager_error": eager, "ok": True}
        for name in ("lanewise", "triton", "plain", "autotuned"):
            if name not in case.arms:
                continue
            first = case.arms[name](*inputs)
            second = case.arms[name](*inputs)
            mine = error(first, want)
            same = error(second, first) == 0
            untouched = all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))
            good = mine <= max(2 * eager, _FLOOR) and same and untouched
            result[name] = {"error": mine, "bit_equal_twice": same, "inputs_unmodified": untouched}
            result["ok"] = result["ok"] and good
        return result
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = before
        torch.use_deterministic_algorithms(False)


def tune(case: Case, rounds: int = 5) -> list[dict[str, Any]]:
    """Time the candidates of the case in turns and keep the fastest for the rest of the process; fastest first."""
    if case.tune is None:
        return []
    kernel, key, candidates = case.tune
    ours = case.arms.get("triton") or case.arms["lanewise"]
    rows: list[dict[str, Any]] = []
    arms: dict[str, Callable[..., Any]] = {}
    inputs = case.make(0)
    want = case.exact(*inputs)
    allowed = max(2 * error(case.arms["eager"](*inputs), want), _FLOOR)
    for number, candidate in enumerate(candidates):
        row: dict[str, Any] = {"config": asdict(candidate), "kind": type(candidate).__name__}
        rows.append(row)

        def arm(*given: Any, chosen: Any = candidate) -> Any:
            tuning.override(kernel, key, chosen)
            return ours(*given)

        try:
            wrong = error(arm(*inputs), want)
            if not wrong <= allowed:
                raise ArithmeticError(f"apart from the exact result by {wrong:.3g}")
            arms[str(number)] = arm
        except Exception as failure:  # a candidate that does not fit the card is a result, not a crash
            row["failed"] = f"{type(failure).__name__}: {failure}"[:200]
    del inputs, want
    if arms:
        times = device_times(arms, case.make, rounds=rounds, target_us=1000)
        for number, took in times.items():
            rows[int(number)]["us"] = round(took.median, 3)
        best = min(times, key=lambda number: times[number].median)
        tuning.override(kernel, key, candidates[int(best)])
    return sorted(rows, key=lambda row: row.get("us", float("inf")))


def _share(case: Case, samples: Samples, copy: float) -> dict[str, Any]:
    """GB/s, TFLOP/s, share of the copy bandwidth, and whether physics allows the time."""
    moved = case.cost.bytes / samples.median / 1e3
    record: dict[str, Any] = {
        "gb_per_s": round(moved, 1),
        "tflop_per_s": round(case.cost.flop / samples.median / 1e6, 2),
        "of_copy": round(moved / copy, 4),
    }
    card = card_named(torch.cuda.get_device_name(0))
    if card is not None:
        record["below_physics"] = samples.median < case.cost.floor_us(card)
    return record


def measure(case: Case, copy: float, rounds: int = 10, modes: Sequence[str] = ("compile",)) -> dict[str, Any]:
    """Device time of every arm, and the ratio of the best other arm to ours with its interval."""
    arms = dict(case.arms)
    record: dict[str, Any] = {}
    for mode in modes:
        if mode in case.compiled:
            start = time.perf_counter()
            arms[mode] = _compiled(case, mode)
            arms[mode](*case.make(0))
            torch.cuda.synchronize()
            record[f"{mode}_seconds"] = round(time.perf_counter() - start, 1)
    samples = device_times(arms, case.make, rounds=rounds)
    record["arms"] = {name: {**s.summary(), **_share(case, s, copy)} for name, s in samples.items()}
    bounds = ("copy", "mm alone")
    ours = [name for name in samples if name in ("lanewise", "triton", "plain", "autotuned")]
    others = [name for name in samples if name not in ours and name not in bounds]
    for name in ours:
        best = min(others, key=lambda other: samples[other].median)
        ratio, low, high = ratio_interval(samples[best], samples[name])
        record["arms"][name].update(
            {"best_other": best, "ratio": round(ratio, 4), "ratio_95": [round(low, 4), round(high, 4)]}
        )
    return record


def names_in(path: Path) -> list[str]:
    """The cases that a result has times of."""
    return [case["name"] for case in json.loads(path.read_text(encoding="utf-8"))["cases"] if "arms" in case]


def _work(
    index: int,
    count: int,
    groups: tuple[str, ...],
    modes: tuple[str, ...],
    match: str,
    tuning_too: bool,
    held: frozenset[str],
) -> None:
    """Compile a share of what a run will need, into the caches on disk."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # the processes are the parallelism
    jobs: list[tuple[Case, Any]] = []
    for case in cases(groups, match):
        if case.name in held:
            continue
        jobs += [(case, candidate) for candidate in (case.tune[2] if case.tune and tuning_too else (None,))]
        jobs += [(case, mode) for mode in modes if mode in case.compiled]
    for number, (case, what) in enumerate(jobs):
        if number % count != index:
            continue
        try:
            inputs = case.make(0)
            if isinstance(what, str):
                _compiled(case, what)(*inputs)
            else:
                if case.tune is not None and what is not None:
                    tuning.override(case.tune[0], case.tune[1], what)
                case.arms.get("triton") or case.arms["lanewise"](*inputs)
            torch.cuda.synchronize()
        except Exception as failure:
            print(f"warm {case.name} {what}: {type(failure).__name__}: {str(failure)[:120]}", flush=True)
        torch.cuda.empty_cache()


def warm(
    groups: tuple[str, ...],
    workers: int,
    modes: tuple[str, ...] = ("compile",),
    seconds: float = 150,
    match: str = "",
    tuning_too: bool = True,
    held: frozenset[str] = frozenset(),
) -> float:
    """Compile candidates and torch.compile arms in parallel processes; returns the seconds it took."""
    start = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=_work, args=(i, workers, groups, modes, match, tuning_too, held)) for i in range(workers)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(max(seconds - (time.perf_counter() - start), 1))
        if process.is_alive():
            process.terminate()
            process.join()
    return time.perf_counter() - start


def run(
    out: Path | None,
    groups: tuple[str, ...] = (),
    *,
    seconds: float = 500,
    rounds: int = 10,
    tuning_too: bool = True,
    tune_behind: float = 0.0,
    modes: tuple[str, ...] = ("compile",),
    workers: int = 0,
    match: str = "",
    held: frozenset[str] = frozenset(),
    keep: bool = False,
    tune_only: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the cases within `seconds`, but for those of the names `held`; what was not reached is under `skipped`."""
    start = time.perf_counter()
    late = 0.8  # past this share of the time the slow compilations are left out
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "question": "Which kernels beat the best alternative on this card, and by how much?",
        "machine": machine(),
        "source": tuning.source_hash(),
        "clock": "device: CUDA graph over rotated inputs of at least 3x L2",
        "cases": [],
        "skipped": [],
    }
    if tune_only:
        modes = ()
    if workers:
        document["warm_seconds"] = round(
            warm(
                groups,
                workers,
                tuple(m for m in modes if m == "compile"),
                match=match,
                tuning_too=tuning_too,
                held=held,
            ),
            1,
        )
        say(f"compiled in {document['warm_seconds']} s")
    document["calibration_start"] = calibrate()
    copy = document["calibration_start"]["copy_gb_per_s"]
    say(f"copy {copy} GB/s, bf16 {document['calibration_start']['bf16_tflop_per_s']} TFLOP/s")
    for case in cases(groups, match):
        if case.name in held:
            continue
        if time.perf_counter() - start > seconds:
            document["skipped"].append(case.name)
            continue
        record: dict[str, Any] = {"group": case.group, "name": case.name, "shape": case.shape, "dtype": case.dtypes}
        record["cost"] = {"flop": case.cost.flop, "bytes": case.cost.bytes}
        try:
            if tune_only:
                record["tuning"] = tune(case)
                record["gate_after_tuning"] = gate(case)
            else:
                late_now = time.perf_counter() - start > seconds * late
                _run_case(record, case, copy, rounds, modes[:1] if late_now else modes, tuning_too)
                _tune_if_behind(record, case, tune_behind)
        except Exception as failure:
            record["failed"] = f"{type(failure).__name__}: {failure}"[:500]
        document["cases"].append(record)
        say(line(record))
        if out is not None:
            out.write_text(json.dumps(document), encoding="utf-8")
        if keep and record.get("tuning") and case.tune is not None and "arms" in record:
            kernel_name, key, _ = case.tune
            tuning.record(kernel_name, key, tuning.pick(kernel_name, key, None))
        for kernel in Kernel.instances:
            kernel.forget()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    document["calibration_end"] = calibrate()
    document["seconds"] = round(time.perf_counter() - start, 1)
    if out is not None:
        out.write_text(json.dumps(document), encoding="utf-8")
    return document


def _run_case(
    record: dict[str, Any], case: Case, copy: float, rounds: int, modes: Sequence[str], tuning_too: bool
) -> None:
    """Check, tune, check, measure, check; what was found goes into `record` as it is found."""
    record["gate"] = gate(case)
    if not record["gate"]["ok"]:
        return
    if tuning_too:
        record["tuning"] = tune(case)
        record["gate_after_tuning"] = gate(case)
        if not record["gate_after_tuning"]["ok"]:
            raise ArithmeticError(f"wrong after tuning: {record['gate_after_tuning']}")
    record.update(measure(case, copy, rounds, modes))
    record["binaries"] = _binaries()
    record["gate_after_timing"] = gate(case)
    if not record["gate_after_timing"]["ok"]:
        del record["arms"]
        raise ArithmeticError(f"wrong after timing: {record['gate_after_timing']}")


def _tune_if_behind(record: dict[str, Any], case: Case, ratio: float) -> None:
    """What the candidates of the tuner take where ours is behind `ratio` of the best other arm."""
    if "arms" in record and record["arms"]["lanewise"]["ratio"] < ratio:
        record["tuning"] = tune(case)


def _binaries() -> list[dict[str, Any]]:
    return [
        {
            "name": compiled.name,
            "registers": compiled.n_regs,
            "spills": compiled.n_spills,
            "shared": compiled.metadata.shared,
            "warps": compiled.metadata.num_warps,
        }
        for kernel in Kernel.instances
        for compiled in kernel.compiled()
    ]


def line(record: dict[str, Any]) -> str:
    """One case as one line of text."""
    if "arms" not in record and record.get("tuning") and "failed" not in record:
        tried = [f"{row.get('us') or row['failed']} {list(row['config'].values())}" for row in record["tuning"]]
        if not record["gate_after_tuning"]["ok"]:
            tried.append(f"wrong: {record['gate_after_tuning']}")
        return f"{record['name']:34} {' | '.join(tried)}"
    if "arms" not in record:
        return f"{record['name']:34} {record.get('failed') or 'wrong: ' + json.dumps(record['gate'])}"
    parts = [f"{name} {arm['median_us']:.1f}" for name, arm in record["arms"].items()]
    ours = record["arms"].get("triton") or record["arms"]["lanewise"]
    best = (record.get("tuning") or [{}])[0].get("config", "")
    compact = ",".join(str(value) for value in best.values()) if isinstance(best, dict) else ""
    return f"{record['name']:34} {' | '.join(parts)} | x{ours['ratio']} {ours['of_copy']} [{compact}]"
