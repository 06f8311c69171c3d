"""What a trace must show once a candidate is in place; each is held against the traces before and after."""

from __future__ import annotations

from collections.abc import Callable

from lanewise.fix.candidates.candidate import Prediction
from lanewise.fix.work.trace_counts import Seen

__all__ = [
    "compiled_regions",
    "conv_channels_last",
    "fewer_operators",
    "graph_replays",
    "kernel_named",
    "no_graph_recorded",
    "operator_appears",
    "setting_is",
]


def compiled_regions() -> Prediction:
    """Compiled code runs."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        return (
            after.compiled > before.compiled,
            f"{after.compiled:g} compiled regions per call, {before.compiled:g} before",
        )

    return Prediction("compiled regions run", holds)


def fewer_operators() -> Prediction:
    """Operators have been fused away."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        text = f"{after.operators_in_all:g} operators per call, {before.operators_in_all:g} before"
        return after.operators_in_all < before.operators_in_all, text

    return Prediction("operators are fused away", holds)


def graph_replays() -> Prediction:
    """CUDA graphs are replayed."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        return after.graph_launches > before.graph_launches, f"{after.graph_launches:g} graph launches per call"

    return Prediction("a CUDA graph is replayed", holds)


def operator_appears(part: str) -> Prediction:
    """Operators whose name holds `part` run, that did not run before."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        return after.named(part) > before.named(
            part
        ), f"{after.named(part):g} of {part} per call, {before.named(part):g} before"

    return Prediction(f"{part} runs", holds)


def kernel_named(what: str, parts: tuple[str, ...]) -> Prediction:
    """Kernels of which one of the parts is in the name take the place of others."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        now, then = (sum(seen.kernel_named(part) for part in parts) for seen in (after, before))
        return now > then, f"{now:g} such kernels per call, {then:g} before"

    return Prediction(what, holds)


def no_graph_recorded() -> Prediction:
    """Operators no longer record a graph for a backward pass."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        return (
            after.recorded < before.recorded,
            f"{after.recorded:g} operators per call record a graph, {before.recorded:g} before",
        )

    return Prediction("no graph for a backward pass is recorded", holds)


def conv_channels_last() -> Prediction:
    """Convolutions read channels-last."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        text = f"{after.channels_last:g} convolutions per call read channels-last, {before.channels_last:g} before"
        return after.channels_last > before.channels_last, text

    return Prediction("convolutions read channels-last", holds)


def setting_is(name: str, value: Callable[[], object]) -> Prediction:
    """The recording was made with a setting at a value."""

    def holds(before: Seen, after: Seen) -> tuple[bool, str]:
        wanted = str(value())
        return after.settings.get(
            name
        ) == wanted, f"{name} is {after.settings.get(name)}, was {before.settings.get(name)}"

    return Prediction(f"{name} has changed", holds)
