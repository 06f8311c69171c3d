"""Measures taken ahead of need, on a second core, while the rules ask for others."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from lanewise.measure.facts import Facts
from lanewise.trace.cores import usable_cores

__all__ = ["measured_ahead"]

_WORTH_EVENTS = 100_000

# What every report shows, longest first: the rules begin with steps and time classes and come to these late.
_MEASURES = ("host", "operators", "gaps", "kernels", "api", "roofline", "pointwise_chains", "backward", "copies")


@contextmanager
def measured_ahead(facts: Facts) -> Generator[None]:
    """Compute the measures of a report in a second thread, as far as they are not asked for before.

    numpy lets go of the interpreter in everything that takes long here. A measure that fails is left to whoever asks
    for it: it fails there again.
    """
    if len(facts.trace) < _WORTH_EVENTS or usable_cores() < 2:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_measure, args=(facts, done), name="lanewise measures", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _measure(facts: Facts, done: threading.Event) -> None:
    for name in _MEASURES:
        if done.is_set():
            return
        try:
            getattr(facts, name)
        except Exception:
            continue
