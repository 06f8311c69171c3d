"""Opens pages in headless Chromium and measures what a user waits for.

    python -m benchmarks.web TRACE [--rounds 5] [-o results.json] [--speedscope DIR]

For each round, in a fresh browser: first paint; time until the timeline has drawn its first frame and answers; frame
times while the view pans and zooms as if keys were held; memory of the page's process; CPU time for each movement of the
pointer over the slices, one in each frame, of the page's main thread and of all threads of its process. Frame times are
distances between animation frames, so that drawing, layout and everything else of the browser count. Results hold the
machine's class, versions and every sample's summary; no host name and no path. `--speedscope tests/tree/readers/
node_modules/speedscope/dist/release` (after `npm ci` there) opens the same trace in a plain speedscope page in the same
rounds.
`--server` opens the trace through `lanewise view` instead, as one too large for a file (benchmarks/web/served.py).

Traces: `python -m benchmarks.reader.generate TRACE --events N`, with N = 1000000 for results.json, 1500000 (more than a
million slices) for million.json, 10000000 for served.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.web import served, speedscope

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.page.html import report_html
from lanewise.trace.reader import read

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
]

_NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"

# Pans to and fro, then zooms in and out, for about ten seconds, and records the distance of frames.
_FRAMES = """async ({keys, milliseconds}) => {
  const canvas = document.querySelector('.canvas-box canvas')
  canvas.focus()
  const result = {}
  for (const key of keys) {
    const frames = []
    let last = 0
    const begun = performance.now()
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))
    await new Promise((done) => {
      const step = (now) => {
        if (last) frames.push(now - last)
        last = now
        if (now - begun < milliseconds) requestAnimationFrame(step)
        else done()
      }
      requestAnimationFrame(step)
    })
    canvas.dispatchEvent(new KeyboardEvent('keyup', {key, bubbles: true}))
    result[key] = (result[key] ?? []).concat(frames)
  }
  return result
}"""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each movement")
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--speedscope", type=Path, default=None, metavar="DIR", help="speedscope's built page")
    parser.add_argument("--server", action="store_true", help="through `lanewise view` instead: for traces of any size")
    parser.add_argument("--cached", action="store_true", help="with --server: keep and use the cache of read traces")
    parser.add_argument("--picture", type=Path, default=None, help="with --server: what the last round showed")
    options = parser.parse_args()
    if options.server:
        return _served(options)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page, facts = _page(options.trace, Path(folder) / "report.html")
        rounds: list[dict[str, Any]] = []
        peer: list[dict[str, Any]] = []
        load = [os.getloadavg()[0]]
        for _ in range(options.rounds):
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            version = browser.version
            rounds.append(_round(browser, page, options.seconds))
            browser.close()
            if options.speedscope and not any(
                "failed" in round_ for round_ in peer
            ):  # it fails for the trace, not by chance
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                with speedscope.served(options.speedscope, options.trace) as address:
                    # A page that computes for minutes answers no timeout of the browser's own.
                    limit = threading.Timer(speedscope.LIMIT_S, _stop_renderers)
                    limit.start()
                    peer.append(speedscope.measure(browser, address, options.seconds, _renderer_memory))
                    limit.cancel()
                browser.close()
        load.append(os.getloadavg()[0])
        result = {
            "schema": "lanewise.benchmark.web/1",
            "command": f"python -m benchmarks.web TRACE --rounds {options.rounds} --seconds {options.seconds:g}",
            "machine": _machine(load),
            "versions": {"chromium": version, "python": platform.python_version()},
            "viewport": [1400, 900],
            "trace": facts,
            "rounds": options.rounds,
            "measured": _summary(rounds),
        }
        if peer:
            result["speedscope"] = _of_peer(peer)
    _write(result, options.output)
    return 0


def _served(options: argparse.Namespace) -> int:
    from playwright.sync_api import sync_playwright

    rounds: list[dict[str, Any]] = []
    load = [os.getloadavg()[0]]
    with sync_playwright() as playwright:
        for _ in range(options.rounds):
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            version = browser.version
            rounds.append(
                served.measure(browser, options.trace, _renderer_memory, cached=options.cached, picture=options.picture)
            )
            browser.close()
    load.append(os.getloadavg()[0])
    flags = " --cached" if options.cached else ""
    result = {
        "schema": "lanewise.benchmark.web.served/1",
        "command": f"python -m benchmarks.web TRACE --server{flags} --rounds {options.rounds}",
        "machine": _machine(load),
        "versions": {"chromium": version, "python": platform.python_version()},
        "viewport": [1400, 900],
        "trace": {"bytes": options.trace.stat().st_size},
        "rounds": rounds,
    }
    _write(result, options.output)
    return 0


def _machine(load: list[float]) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "shared": True,
        "load_average": [round(value, 1) for value in load],
        "architecture": platform.machine(),
        "gpu": "none: drawn by the CPU",
    }


def _write(result: dict[str, Any], output: Path | None) -> None:
    text = json.dumps(result, indent=2) + "\n"
    if output:
        output.write_text(text)
    sys.stdout.write(text)


def _page(trace_path: Path, out: Path) -> tuple[Path, dict[str, Any]]:
    trace = read(str(trace_path))
    facts = facts_of(trace)
    report = report_of(facts)
    begun = time.process_time()
    out.write_text(report_html(facts, report), encoding="utf-8")
    cpu = time.process_time() - begun
    return out, {
        "bytes": trace_path.stat().st_size,
        "slices": len(trace),
        "lanes": len(trace["lanes"]["side"]),
        "page_bytes": out.stat().st_size,
        "page_written_cpu_s": round(cpu, 2),
    }


def _round(browser: Any, page_path: Path, seconds: float) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(page_path.as_uri())
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    page.goto("about:blank")
    page.goto(page_path.as_uri() + "#view=timeline")
    interactive = page.evaluate("""() => new Promise((done) => {
      const look = () => document.querySelector('.canvas-box canvas')?.width > 300
        ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) : requestAnimationFrame(look)
      look()
    })""")
    # At the whole trace, where most slices share pixels; then zoomed in by a factor of about 8; then moving between.
    frames: dict[str, list[float]] = {}

    def run(keys: list[str]) -> dict[str, list[float]]:
        return page.evaluate(_FRAMES, {"keys": keys, "milliseconds": seconds * 1e3})

    page.evaluate("document.querySelector('.canvas-box canvas').focus()")
    for _ in range(4):
        page.keyboard.press("+")
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _task_seconds(cdp)
    for values in run(["d", "a"]).values():
        frames.setdefault("pan", []).extend(values)
    cpu = (_task_seconds(cdp) - before) * 1e3 / max(1, len(frames["pan"]))
    for values in run(["w", "s"]).values():
        frames.setdefault("zoom", []).extend(values)
    page.keyboard.press("0")
    for _ in range(9):
        page.keyboard.press("+")
    for values in run(["d", "a"]).values():
        frames.setdefault("pan, close up", []).extend(values)
    hover_thread, hover_process = _hover(page, cdp)
    cdp.send("HeapProfiler.collectGarbage")
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    memory = _renderer_memory()
    page.close()
    if errors:
        raise SystemExit(f"the page logged errors: {errors[:3]}")
    return {
        "first_paint_ms": paint,
        "interactive_ms": interactive,
        "heap_mb": heap / 1e6,
        "process_mb": memory,
        "pan_cpu_ms_per_frame": cpu,
        "hover_cpu_ms": hover_thread,
        "hover_process_cpu_ms": hover_process,
        "frames": frames,
    }


def _hover(page: Any, cdp: Any, moves: int = 300) -> tuple[float, float]:
    """CPU time of a movement of the pointer over the whole trace, ms: of the main thread, and of the renderer process."""
    page.keyboard.press("0")
    box = page.locator(".canvas-box canvas").bounding_box()
    left, width = box["x"] + 200, box["width"] - 210
    top, height = box["y"] + 80, box["height"] - 90
    page.evaluate(_NEXT_FRAME)
    thread, process = _task_seconds(cdp), _renderer_cpu()
    cards = 0
    for i in range(moves):
        page.mouse.move(left + i * 37 % width, top + i * 61 % height)
        page.evaluate(_NEXT_FRAME)
        cards += i % 20 == 0 and page.locator(".hover-card").count()
    if cards < moves // 60:
        raise SystemExit("the pointer met too few slices")
    return (_task_seconds(cdp) - thread) * 1e3 / moves, (_renderer_cpu() - process) * 1e3 / moves


def _task_seconds(cdp: Any) -> float:
    """CPU time of the page's main thread so far: what others on the machine do does not count."""
    metrics = cdp.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def _renderer_cpu() -> float:
    """CPU seconds of the renderer processes below this one so far."""
    return sum(served.cpu_of(process) for process in _renderers())


def _renderers() -> list[int]:
    """Renderer processes below this one; none where the system does not tell."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (folder / "cmdline").read_bytes() and _below(folder.name):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _renderer_memory() -> float:
    """Resident memory of the largest renderer process below this one, MB; NaN where the system does not tell."""
    largest = float("nan")
    for process in _renderers():
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        megabytes = int(status.partition("VmRSS:")[2].split()[0]) / 1e3
        largest = max(largest, megabytes) if largest == largest else megabytes
    return largest


def _stop_renderers() -> None:
    for process in _renderers():
        os.kill(process, signal.SIGKILL)


def _below(process: str) -> bool:
    """Whether a process descends from this one."""
    while process not in {"0", "1"}:
        if process == str(os.getpid()):
            return True
        try:
            process = (Path("/proc") / process / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            return False
    return False


def _of_peer(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """What the peer's rounds gave; how many of them drew nothing, and what they said."""
    drawn = [round_ for round_ in rounds if "failed" not in round_]
    failures = sorted({round_["failed"] for round_ in rounds if "failed" in round_})
    result: dict[str, Any] = {"rounds": len(rounds), "drawn": len(drawn), "failures": failures}
    for name in ("interactive_ms", "process_mb"):
        values = [round_[name] for round_ in drawn]
        if values:
            result[name] = {"median": round(statistics.median(values), 1), "min": min(values), "max": max(values)}
    frames = sorted(frame for round_ in drawn for frame in round_["frames"])
    if frames:
        p95 = round(frames[int(len(frames) * 0.95)], 1)
        result["frame_ms, pan"] = {"median": round(statistics.median(frames), 1), "p95": p95, "samples": len(frames)}
    return result


def _summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, first in rounds[0].items():
        if not isinstance(first, int | float):
            continue
        values = sorted(round_[name] for round_ in rounds)
        result[name] = {
            "median": round(statistics.median(values), 1),
            "min": round(values[0], 1),
            "max": round(values[-1], 1),
            "samples": len(values),
        }
    for kind in rounds[0]["frames"]:
        values = sorted(value for round_ in rounds for value in round_["frames"][kind])
        result[f"frame_ms, {kind}"] = {
            "median": round(statistics.median(values), 1),
            "p95": round(values[int(len(values) * 0.95)], 1),
            "max": round(values[-1], 1),
            "samples": len(values),
        }
    return result


if __name__ == "__main__":
    sys.exit(main())
