"""The same trace in a plain speedscope page, served from loopback: time until it is drawn, frames while panning, memory."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

LIMIT_S = 60.0
"""A page that has not drawn by then is stopped."""

# speedscope draws on animation frames while the wheel turns; the toolbar shows its views once a profile is loaded.
_DRAWN = "() => document.querySelector('canvas') && document.body.innerText.includes('Left Heavy')"
_PAN = """async (milliseconds) => {
  const canvas = document.querySelector('canvas')
  const box = canvas.getBoundingClientRect()
  const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height * 0.6, bubbles: true, cancelable: true}
  const target = document.elementFromPoint(at.clientX, at.clientY)
  for (let i = 0; i < 30; i++) target.dispatchEvent(new WheelEvent('wheel', {deltaY: -20, ctrlKey: true, ...at}))
  await new Promise((done) => setTimeout(done, 500))
  const frames = []
  let last = 0
  const begun = performance.now()
  await new Promise((done) => {
    const step = (now) => {
      if (last) frames.push(now - last)
      last = now
      const forth = now - begun < milliseconds / 2
      target.dispatchEvent(new WheelEvent('wheel', {deltaX: forth ? 12 : -12, ...at}))
      if (now - begun < milliseconds) requestAnimationFrame(step)
      else done()
    }
    requestAnimationFrame(step)
  })
  return frames
}"""


class _Quiet(SimpleHTTPRequestHandler):
    """Serves the folder, and the trace as `/trace.json`, without a log."""

    trace: Path

    def __init__(self, *args: Any, trace: Path, **options: Any) -> None:
        self.trace = trace
        super().__init__(*args, **options)

    def translate_path(self, path: str) -> str:
        """The trace is wherever it is."""
        return str(self.trace) if path.startswith("/trace.json") else super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def served(site: Path, trace: Path) -> Generator[str]:
    """speedscope's built page (`dist/release` of its npm package) on a free port of loopback; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site), trace=trace))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def measure(browser: Any, address: str, seconds: float, memory: Any) -> dict[str, Any]:
    """One page load: ms until drawn, frames (ms) while panning, MB of the renderer; `failed` where it is not drawn."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    try:
        page.goto(f"{address}/index.html#profileURL={quote(address + '/trace.json', safe='')}")
        page.wait_for_function(_DRAWN, timeout=LIMIT_S * 1e3)
        ready = page.evaluate("performance.now()")
        frames = page.evaluate(_PAN, seconds * 1e3)
        return {"interactive_ms": ready, "frames": frames, "process_mb": memory()}
    except Exception as error:
        return {"failed": f"not drawn after {LIMIT_S:.0f} s ({str(error).splitlines()[0][:100]})"}
    finally:
        page.close()
