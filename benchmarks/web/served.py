"""A trace through `lanewise view` as a user would open it: a process that serves, and a browser that asks it.

Seconds are wall time, but for `answers_cpu`: what the server's threads computed until then, whatever else the machine did.
`answers`: from the start of the command until the page's address answers. `overview`: from opening
that address until the verdict is on screen; `timeline`: from opening the timeline's address until its first frame is
drawn with slices in it; `windows`: what the page waited for each window of slices while it zoomed in; `calls`: from
opening the trees until they are drawn, which the server builds only then. Memory of the server is its peak, before and
after that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LONGEST = 600  # s
_ZOOMS = 4

_WINDOWS = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/slices'))"
_MORE = f"(seen) => {_WINDOWS}.length > seen"
_NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def measure(
    browser: Any, trace: Path, renderer_memory: Callable[[], float], *, cached: bool, picture: Path | None = None
) -> dict[str, Any]:
    """Starts the command, opens the page, zooms in, selects a slice, stops the command."""
    command = [sys.executable, "-m", "lanewise", "view", str(trace), "--no-browser"]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*command, *([] if cached else ["--no-cache"])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    watchdog = threading.Timer(_LONGEST, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit(f"lanewise view ended with {process.wait()} before it served anything")
        with urllib.request.urlopen(address, timeout=_LONGEST) as answer:
            size = len(answer.read())
        result: dict[str, Any] = {
            "answers_s": round(time.perf_counter() - begun, 2),
            "answers_cpu_s": cpu_of(process.pid),
            "page_bytes": size,
        }
        return result | _in_browser(browser, address, renderer_memory, picture, lambda: _peak(process.pid))
    finally:
        watchdog.cancel()
        process.terminate()
        process.wait(30)


def _in_browser(
    browser: Any,
    address: str,
    renderer_memory: Callable[[], float],
    picture: Path | None,
    server_peak: Callable[[], float],
) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(_LONGEST * 1e3)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    begun = time.perf_counter()
    page.goto(address)
    page.locator("h1").wait_for()
    overview = time.perf_counter() - begun
    begun = time.perf_counter()
    page.goto("about:blank")
    page.goto(address + "#view=timeline")
    page.wait_for_function(_MORE, arg=0)
    page.evaluate(_NEXT_FRAME)
    timeline = time.perf_counter() - begun
    if picture:
        page.screenshot(path=str(picture.with_suffix(".whole.png")))
    page.locator(".canvas-box canvas").focus()
    for _ in range(_ZOOMS):
        seen = page.evaluate(f"{_WINDOWS}.length")
        for _ in range(6):
            page.keyboard.press("+")
        page.wait_for_function(_MORE, arg=seen)
        page.wait_for_load_state("networkidle")
        page.evaluate(_NEXT_FRAME)
    windows = page.evaluate(f"{_WINDOWS}.map((entry) => entry.duration / 1e3)")
    page.keyboard.press("ArrowRight")
    begun = time.perf_counter()
    page.locator("section.panel dl").first.wait_for()
    selected = time.perf_counter() - begun
    if picture:
        page.screenshot(path=str(picture.with_suffix(".close.png")))
    memory, peak = renderer_memory(), server_peak()
    begun = time.perf_counter()
    page.evaluate("location.hash = '#view=calls'")
    page.locator(".flame canvas").first.wait_for()
    page.evaluate(_NEXT_FRAME)
    calls = time.perf_counter() - begun
    page.close()
    if errors:
        raise SystemExit(f"the page logged errors: {errors[:3]}")
    return {
        "overview_s": round(overview, 2),
        "timeline_s": round(timeline, 2),
        "windows_s": [round(value, 2) for value in windows],
        "selected_s": round(selected, 2),
        "calls_s": round(calls, 2),
        "browser_mb": round(memory, 1),
        "server_peak_mb": peak,
        "server_peak_with_trees_mb": server_peak(),
    }


def cpu_of(process: int) -> float:
    """CPU seconds of a process so far, of all its threads; NaN where the system does not tell."""
    try:
        fields = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 2)


def _peak(process: int) -> float:
    """Largest resident memory of a process so far, MB; NaN where the system does not tell."""
    try:
        for line in (Path("/proc") / str(process) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1e3, 1)
    except OSError:
        pass
    return float("nan")
