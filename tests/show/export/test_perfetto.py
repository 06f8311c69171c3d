"""The export for the Perfetto UI holds every slice, our tracks, and arrows that bind."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.export.perfetto import perfetto_json
from lanewise.show.export.perfetto_server import ORIGIN, PerfettoServer
from tests.web.traces import training


def test_every_slice_our_tracks_and_bound_arrows() -> None:
    facts = facts_of(training())
    report = report_of(facts)
    rows = json.loads("".join(perfetto_json(facts, report)))["traceEvents"]
    slices = [row for row in rows if row["ph"] == "X"]
    own = [row for row in slices if row["cat"] == "lanewise"]
    assert len(slices) - len(own) == len(facts.trace)
    causes = Counter(row["name"] for row in own)
    assert causes["waits for the host"] > 0
    assert {f.code for f in report.findings if f.places} <= set(causes)
    names = {row["args"]["name"] for row in rows if row["ph"] == "M" and row["name"] == "thread_name"}
    assert {"what GPU 0 does", "steps, and what binds them", "stream 7"} <= names
    at = {(row["pid"], row["tid"], row["ts"]) for row in slices}
    arrows = [row for row in rows if row["ph"] in {"s", "f"}]
    assert len(arrows) == 2 * int((facts.trace.links.launch >= 0).sum())
    assert all((row["pid"], row["tid"], row["ts"]) in at for row in arrows)
    kernel = next(row for row in slices if row["cat"] == "kernel")
    assert kernel["args"]["grid_x"] == 264


def test_the_server_gives_the_trace_to_the_ui_only() -> None:
    import threading
    import urllib.error
    import urllib.request

    facts = facts_of(training(2))
    server = PerfettoServer(facts, report_of(facts), port=0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        assert server.deep_link.startswith(f"{ORIGIN}/#!/?url=http://127.0.0.1:")
        with urllib.request.urlopen(server.address, timeout=10) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
            assert json.load(answer)["traceEvents"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.address.replace("trace.json", "other"), timeout=10)
    finally:
        server.close()
        thread.join(5)
