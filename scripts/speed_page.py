"""docs/appendix/speed.md: the tables of how fast lanewise is, from the results that the benchmarks wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

_TRACES = {
    "plain": "a million events",
    "stacks": "a million events, half of them Python frames",
    "gzip": "the first one, packed",
}
_BASE = "orjson.loads, gc off"


def speed_page() -> str:
    """The page."""
    return "\n".join([*_reader(), *_tree(), *_page()])


def _reader() -> list[str]:
    data = json.loads((BENCHMARKS / "results" / "2-core-vm" / "reader.json").read_text())
    versions = ", ".join(f"{name} {number}" for name, number in data["versions"].items())
    load = data["load_average"]
    lines = [
        "# How fast lanewise is",
        "",
        f"Two cores of an {data['cpu']} virtual machine shared with others, {versions}; load average {load['before']} "
        f"before and {load['after']} after. Every sample is a process of its own; all cases take turns, round by round. "
        "Medians, the smallest and the largest in brackets. `explain` includes the start of the program; the others do "
        "not.",
        "",
        "## Reading and explaining",
        "",
        f"`{data['command']}` writes `benchmarks/results/2-core-vm/reader.json`. The traces are generated.",
        "",
    ]
    for trace, what in _TRACES.items():
        cases: dict[str, Any] = data["traces"][trace]
        base = cases.get(_BASE)
        size = f"{what} ({_megabytes(data, trace)})" if trace == "plain" else what
        lines += [f"### {size[0].upper()}{size[1:]}", "", f"| case | seconds | {_BASE} = 1 | peak MB | samples |"]
        lines += ["|---|---|---|---|---|"]
        for name, case in cases.items():
            ratio = f"{case['seconds']['median'] / base['seconds']['median']:.2f}" if base else ""
            lines.append(f"| {name} | {_spread(case['seconds'])} | {ratio} | {_peak(case)} | {case['samples']} |")
        if again := data.get("measured_again", {}).get(trace):
            load = again["load_average"]
            lines += ["", f"By `{again['command']}`, load average {load['before']} before and {load['after']} after."]
        lines.append("")
    lines += [
        "### Beside HTA",
        "",
        "HTA loads the trace and takes its temporal breakdown; `explain` does all it does.",
        "",
    ]
    lines += ["| events | explain, s | HTA, s | times as fast | explain, MB | HTA, MB | samples of HTA |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for trace, cases in data["traces"].items():
        if trace.startswith("peers, "):
            ours, peer = cases["explain"], cases["HTA: load and temporal breakdown"]
            times = peer["seconds"]["median"] / ours["seconds"]["median"]
            lines.append(
                f"| {int(trace.split()[1]):,} | {_spread(ours['seconds'])} | {_spread(peer['seconds'])} | {times:.1f} | "
                f"{_peak(ours)} | {_peak(peer)} | {peer['samples']} |"
            )
    lines += ["", "### Growth", "", "| events | MB | read, s | CPU s | peak MB |", "|---|---|---|---|---|"]
    for point in data["slope"]["points"]:
        lines.append(
            f"| {point['events']:,} | {point['mb']:,} | {_spread(point['seconds'])} | {_spread(point['cpu_seconds'])} | "
            f"{_peak(point)} |"
        )
    lines += ["", f"CPU time grows with events to the power of {data['slope']['exponent']} (1 is linear).", ""]
    small = data["traces"]["small"]
    lines += [
        f"`lanewise --help` takes {_spread(small['help']['seconds'])} s, `explain` of a small trace "
        f"{_spread(small['explain']['seconds'])} s, each from the shell.",
        "",
    ]
    return lines


def _tree() -> list[str]:
    data = json.loads((BENCHMARKS / "tree" / "results" / "tree_300mb.json").read_text())
    lines = [
        "## The calling-context tree",
        "",
        f"`{data['command']}`; wall seconds after reading, fresh processes.",
        "",
    ]
    lines += ["| trace | events | nodes | build, s | peak MB | saved, kB | view of a saved tree, s |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, what in (("program", "of a program"), ("random", "random: as many contexts as can be")):
        case = data[name]
        lines.append(
            f"| {what} | {case['events']:,} | {case['nodes']:,} | {_spread(case['build']['wall_s'])} | "
            f"{case['build']['peak_mb']['median']:.0f} | {case['saved_bytes'] / 1e3:,.0f} | "
            f"{_spread(case['view']['wall_s'])} |"
        )
    return [*lines, ""]


def _page() -> list[str]:
    data = json.loads((BENCHMARKS / "web" / "results.json").read_text())
    measured, trace = data["measured"], data["trace"]
    lines = [
        "## The page",
        "",
        f"`{data['command']}`: headless Chromium {data['versions']['chromium']}, drawn by the CPU, "
        f"{data['machine']['cpus']} cores, {data['rounds']} fresh browsers; a page of {trace['slices']:,} slices "
        f"({trace['page_bytes'] / 1e6:.1f} MB).",
        "",
        "| what | median | least | most |",
        "|---|---|---|---|",
    ]
    names = {
        "first_paint_ms": "first paint, ms",
        "interactive_ms": "timeline drawn and answering, ms",
        "heap_mb": "JavaScript heap, MB",
        "process_mb": "memory of the page's process, MB",
    }
    for key, what in names.items():
        lines.append(f"| {what} | {measured[key]['median']} | {measured[key]['min']} | {measured[key]['max']} |")
    lines += ["", "| frames, ms | median | 95th percentile | longest | frames |", "|---|---|---|---|---|"]
    for key, frames in measured.items():
        if key.startswith("frame_ms, "):
            what = key.removeprefix("frame_ms, ")
            lines.append(f"| {what} | {frames['median']} | {frames['p95']} | {frames['max']} | {frames['samples']} |")
    if peer := data.get("speedscope"):
        outcome = "; ".join(peer["failures"]) or f"{peer['interactive_ms']['median']} ms until it is drawn"
        lines += [
            "",
            f"A plain speedscope page drew the same trace in {peer['drawn']} of {peer['rounds']} rounds: {outcome}.",
        ]
    return [*lines, ""]


def _megabytes(data: dict[str, Any], trace: str) -> str:
    events = data["command"].split("--events ")[1].split()[0] if trace == "plain" else ""
    point = next((point for point in data["slope"]["points"] if str(point["events"]) == events), None)
    return f"{point['mb']:.0f} MB" if point else "about 330 MB"


def _spread(numbers: dict[str, Any]) -> str:
    return f"{numbers['median']:.3g} ({numbers['min']:.3g} to {numbers['max']:.3g})"


def _peak(case: dict[str, Any]) -> str:
    return f"{case['peak_mb']['median']:,.0f}" if "peak_mb" in case else ""
