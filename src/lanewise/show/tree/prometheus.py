"""A tree in Prometheus' text format: sums of a watched program, for the textfile collector or a push gateway.

Counters grow with the program, so that `rate()` of two scrapes of one run is what it does now. Of operators, modules and
kernels the dearest `TOP` are given: the number of series stays the same however long the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lanewise.measure.kernel_names import short_name
from lanewise.show.safe_text import clean
from lanewise.tree.flat import flat
from lanewise.tree.model import PHASES, Tree

__all__ = ["TOP", "prometheus"]

TOP = 50
_NS = 1e9
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def prometheus(tree: Tree) -> str:
    """The text, one family after the other; times in seconds, as Prometheus has them."""
    info, watched = tree.info, tree.info.watched
    source = {"source": info.source}
    families: list[tuple[str, str, str, Sequence[Sample]]] = [
        ("lanewise_steps_total", "counter", "Steps in the tree.", [(source, float(info.step_count))]),
        ("lanewise_contexts", "gauge", "Contexts of the program.", [(source, float(len(tree)))]),
    ]
    if watched is not None:
        families.append(("lanewise_watched_seconds_total", "counter", "Time watched.", [(source, watched.seconds)]))
        if watched.distortion is not None:
            ratio = [(source, watched.distortion.ratio)]
            families.append(("lanewise_watching_ratio", "gauge", "Watched step over one that is not.", ratio))
        losses: list[Sample] = [
            ({**source, "what": name}, float(number)) for name, number in sorted(watched.losses.items())
        ]
        slower = [(source, float(len(watched.slowdowns)))]
        families.append(("lanewise_slowdowns_total", "counter", "Places that became slower while it ran.", slower))
        families.append(("lanewise_losses_total", "counter", "What was dropped, cut or guessed.", losses))
    families += [
        _by_phase(tree, source, "host", "Host time"),
        _by_phase(tree, source, "device", "Device time"),
        _flat(
            tree, source, "operator", "host", "operator_host_seconds_total", "Host time inside of an operator alone."
        ),
        _flat(tree, source, "operator", "calls", "operator_calls_total", "Calls of an operator."),
        _flat(tree, source, "operator", "launches", "operator_launches_total", "Device work that an operator starts."),
        _flat(tree, source, "module", "total_host", "module_host_seconds_total", "Host time inside of a module."),
        _flat(tree, source, "module", "total_device", "module_device_seconds_total", "Device time inside of a module."),
        _flat(tree, source, "kernel", "device", "kernel_seconds_total", "Device time of a kernel, copy or set."),
        _flat(tree, source, "kernel", "count", "kernels_total", "How often it ran."),
    ]
    return "".join(_family(*family) for family in families)


def _by_phase(tree: Tree, source: Labels, metric: str, what: str) -> tuple[str, str, str, Sequence[Sample]]:
    sums = np.bincount(tree.phase, weights=tree.value(metric), minlength=len(PHASES)) / _NS
    samples: list[Sample] = [({**source, "phase": PHASES[at]}, float(sums[at])) for at in np.flatnonzero(sums).tolist()]
    return f"lanewise_{metric}_seconds_total", "counter", f"{what} by phase of the step.", samples


def _flat(
    tree: Tree, source: Labels, by: str, column: str, name: str, what: str
) -> tuple[str, str, str, Sequence[Sample]]:
    """One family of a flat view: the largest values by name, equal shortened names added up."""
    table = flat(tree, by, metric="host" if "host" in column else "device")
    sums: dict[str, float] = {}
    for text, value in zip(table["name"].tolist(), table[column].tolist(), strict=True):
        label = short_name(text) if by == "kernel" else text
        sums[label] = sums.get(label, 0.0) + float(value)
    scale = _NS if "seconds" in name else 1.0
    ordered = sorted(((label, value) for label, value in sums.items() if value), key=lambda item: (-item[1], item[0]))
    samples: list[Sample] = [({**source, by: label}, value / scale) for label, value in ordered[:TOP]]
    return f"lanewise_{name}", "counter", what, samples


def _family(name: str, kind: str, what: str, samples: Iterable[Sample]) -> str:
    # Names that differ only in what is cut off or cleaned are one series: a second one would be refused.
    sums: dict[str, float] = {}
    for labels, value in samples:
        text = ",".join(f'{key}="{_escape(clean(label, 200))}"' for key, label in labels.items())
        sums[text] = sums.get(text, 0.0) + value
    if not sums:
        return ""
    lines = [f"# HELP {name} {what}", f"# TYPE {name} {kind}", *(f"{name}{{{key}}} {v!r}" for key, v in sums.items())]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
