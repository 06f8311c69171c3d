"""Collected contexts as a tree: names, threads of one role, step marks, device work, and the file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.show.tree.context_label import context_label
from lanewise.show.tree.pprof import source_of
from lanewise.show.tree.speedscope import speedscope
from lanewise.show.tree.tree_terminal import header, tree_rows, tree_text
from lanewise.trace.frames import frame_at
from lanewise.tree.algebra import merge, per_step
from lanewise.tree.flat import flat
from lanewise.tree.from_trace.contexts import LOST_MARK
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.tree_file import dumps, loads
from lanewise.tree.views import top_down
from lanewise.tree.watching.collected import Collected, CollectedKind, CollectedLeaf, CollectedThread, tree_of
from lanewise.tree.watching.watched import Distortion, Watched

NAMES = ["", "main thread", "ProfilerStep#*", "aten::mm", "gemm", "Memcpy HtoD", "HtoD", "Net_0\x1flayers.0\x1fLinear"]


def thread(index: int, rows: list[tuple[int, int, int, int, int]]) -> CollectedThread:
    """Rows of (parent, kind, name, calls, host)."""
    parent, kind, name, calls, host = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(rows), dtype=np.int64)
    return CollectedThread(index, parent, kind, zeros, name, zeros, calls, host)


def program(index: int = 0) -> CollectedThread:
    return thread(
        index,
        [
            (0, CollectedKind.ROOT, 1, 0, 0),
            (0, CollectedKind.SCOPE, 2, 3, 5),
            (1, CollectedKind.FRAME, 0, 0, 7),
            (2, CollectedKind.MODULE, 7, 0, 0),
            (3, CollectedKind.OPERATOR, 3, 3, 100),
        ],
    )


def tree(*threads: CollectedThread, leaves: tuple[CollectedLeaf, ...] = (), watched: Watched | None = None) -> Tree:
    collected = Collected(threads, NAMES, ["train.py(3): main"], [4], leaves=leaves)
    return tree_of(collected, watched or Watched(), source="train")


def test_names_and_step_marks() -> None:
    made = tree(program())
    labels = [(made.label(node), made.strings[int(made.detail[node])]) for node in range(len(made))]
    assert labels == [("main thread", ""), ("train.py(3): main", ""), ("layers.0", "Linear"), ("aten::mm", "")]
    # The time of the step mark goes to what is around it.
    assert made.total("host") == 112
    assert made.total("calls") == 3


def test_a_frame_is_shown_with_the_line_it_stood_in_where_lines_are_told_apart() -> None:
    collected = Collected((program(),), NAMES, ["train.py(3): main"], [4])
    for lines, line in ((True, 4), (False, 3)):
        made = tree_of(collected, Watched(), lines=lines)
        frame = int(np.flatnonzero(made.kind == NodeKind.FRAME)[0])
        assert made.python_frame(frame) == ("train.py", line, "main")
        assert context_label(made, frame) == f"main (train.py:{line})"
        assert flat(made, "line", metric="host").rows()[0]["name"] == f"train.py:{line}"
        assert flat(made, "function", metric="host").rows()[0]["detail"] == ""
        place = Contexts(made).location(len(made) - 1)
        assert place is not None
        assert (place.file, place.line) == ("train.py", line)
        assert source_of(NodeKind.FRAME, made.label(frame), made.strings[int(made.detail[frame])])[2:] == (3, line)
        assert {"name": "main", "file": "train.py", "line": line} in json.loads(speedscope(made))["shared"]["frames"]


@pytest.mark.parametrize("detail", ["", "line", "line ", "line x", "line -4", "line \u0665", "HtoD", "4"])
def test_what_is_no_line_leaves_a_frame_as_it_is(detail: str) -> None:
    assert frame_at("train.py(3): main", detail) == ("train.py", 3, "main")
    assert frame_at("<built-in method exp>", "line 4").line == 0


def test_devices_are_named_once() -> None:
    collected = Collected([program()], NAMES, ["train.py(3): main"], [4], devices=["NVIDIA H200", "NVIDIA H200"])
    made = tree_of(collected, Watched(), source="train")
    assert loads(dumps(made)).info.devices == ("NVIDIA H200",)


def test_host_time_is_shown_with_calls() -> None:
    made = tree(program(), watched=Watched(steps_seen=3, steps_watched=2))
    shown = top_down(made)
    assert tree_text(shown, tree_rows(shown, "host"), "host").plain.splitlines() == [
        "      host   share   calls  context",
        "    112 ns 100.0 %          main thread",
        "    107 ns  95.5 %          └ main (train.py:3)  [forward 89.3 %, other 6.2 %]",
        "    100 ns  89.3 %       3    └ layers.0 (Linear) › aten::mm  [forward]",
    ]
    assert header(shown).plain.splitlines()[1] == "112 ns of host time · 2 steps"


def test_threads_of_one_role_are_one() -> None:
    made = tree(program(0), program(4))
    assert len(made) == 4
    assert made.total("calls") == 6


def test_device_work_stands_below_its_launch() -> None:
    operator = 1 << 32 | 4
    leaves = (
        CollectedLeaf(operator, CollectedKind.KERNEL, 4, 0, 3, 2, 60, 10, 30, 1400.0, 0, 5, 2),
        CollectedLeaf(operator, CollectedKind.COPY, 5, 6, 1, 1, 8, 8, 8, 64.0, 4096, 0, 0),
        CollectedLeaf(0, CollectedKind.KERNEL, 4, 0, 2, 2, 6, 2, 4, 20.0, 0, 0, 0),
        CollectedLeaf(9 << 32 | 1, CollectedKind.KERNEL, 4, 0, 1, 0, 1, 1, 1, 1.0, 0, 0, 0),
    )
    made = tree(program(), leaves=leaves)
    assert made.total("device") == made.info.device_total == 75
    assert made.info.unlinked == 2
    above = {
        (made.label(int(made.parent[node])), made.label(node)): int(made.metrics["device"][node])
        for node in range(len(made))
        if made.leaf[node]
    }
    assert above == {("aten::mm", "gemm"): 60, ("aten::mm", "Memcpy HtoD"): 8, (LOST_MARK, "gemm"): 7}
    (copy,) = np.flatnonzero(made.kind == NodeKind.COPY)
    assert made.strings[int(made.detail[copy])] == "HtoD"
    assert made.value("htod").sum() == 8


def test_what_is_known_of_the_collection_is_in_the_file() -> None:
    watched = Watched(
        steps_seen=10, steps_watched=5, losses={"truncated": 2}, distortion=Distortion(1.1, 1.0, 1.2, 5, 5)
    )
    made = tree(program(), watched=watched)
    again = loads(dumps(made))
    assert again.info == made.info
    assert again.info.watched == watched
    assert again.info.step_count == 5
    assert dumps(again) == dumps(made)


def test_what_watching_cost_in_several_collections_is_known_of_their_sum() -> None:
    parts = [
        tree(program(), watched=Watched(seconds=seconds, distortion=Distortion(ratio, low, high, 20, 20, step_ns=ns)))
        for seconds, ratio, low, high, ns in (
            (6.0, 1.2, 1.1, 1.3, 1e6),
            (3.0, 1.5, 1.4, 1.6, 3e6),
            (1.0, 1.0, 0.9, 1.1, 2e6),
        )
    ]
    watched = merge(parts).info.watched
    assert watched is not None
    assert watched.distortion is not None
    # Ten seconds of watching are 6 / 1.2 + 3 / 1.5 + 1 / 1 without.
    assert watched.distortion.ratio == pytest.approx(10 / 8)
    assert watched.distortion.low < watched.distortion.ratio < watched.distortion.high
    assert (watched.distortion.on, watched.distortion.step_ns) == (60, pytest.approx(2e6))
    grouped = merge([merge(parts[:2]), parts[2]]).info.watched
    assert grouped is not None
    assert grouped.distortion is not None
    assert grouped.distortion.ratio == pytest.approx(watched.distortion.ratio)
    for unknown in (None, Distortion(1.0, 0.0, 2.0, 5, 5)):
        other = merge([parts[0], tree(program(), watched=Watched(seconds=1.0, distortion=unknown))]).info.watched
        assert other is not None
        assert other.distortion is None


def test_collections_add_up_and_divide_by_their_steps() -> None:
    watched = Watched(steps_seen=10, steps_watched=5, losses={"truncated": 2})
    both = merge([tree(program(), watched=watched), tree(program(), watched=watched)])
    assert both.info.watched is not None
    assert both.info.step_count == 10
    assert both.info.watched.losses == {"truncated": 4}
    assert per_step(both).total("calls") == round(6 / 10)
    assert per_step(both).info.step_count == 1
