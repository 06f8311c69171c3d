"""Views: what is folded, moved, filtered and listed."""

from __future__ import annotations

import pytest

from lanewise.errors import UsageError
from lanewise.trace.frames import is_library, parse_frame
from lanewise.tree import views
from lanewise.tree.build import build_tree
from lanewise.tree.flat import BY, flat
from lanewise.tree.limits import TRUNCATED, limit_nodes
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.names import normalise
from tests.support.builder import TraceBuilder
from tests.tree.samples import small_trace_builder, small_tree


def outline(tree: Tree, metric: str = "device") -> list[tuple[str, int]]:
    """Indented labels with inclusive values, in row order of a depth-first walk."""
    inclusive = tree.inclusive(metric)
    children: dict[int, list[int]] = {}
    for node in range(len(tree)):
        children.setdefault(int(tree.parent[node]), []).append(node)
    found: list[tuple[str, int]] = []
    stack = sorted(children.get(-1, []), key=lambda child: inclusive[child])
    while stack:
        node = stack.pop()
        found.append(("  " * int(tree.depth[node]) + tree.label(node), int(inclusive[node])))
        stack += sorted(children.get(node, []), key=lambda child: inclusive[child])
    return found


def test_top_down() -> None:
    assert outline(views.top_down(small_tree())) == [
        ("main thread", 2 * 73_000),
        ("  train.py(10): step", 2 * 73_000),
        ("    Net", 2 * 62_000),
        ("      net.py(20): forward", 2 * 62_000),
        ("        Linear_1", 2 * 32_000),
        ("          aten::linear", 2 * 32_000),
        ("            aten::addmm", 2 * 32_000),
        ("              autograd::engine::evaluate_function: AddmmBackward0", 2 * 21_000),
        ("                aten::mm", 2 * 21_000),
        ("                  gemm backward", 2 * 21_000),
        ("              gemm", 2 * 11_000),
        ("        Linear_0", 2 * 30_000),
        ("          aten::linear", 2 * 30_000),
        ("            aten::addmm", 2 * 30_000),
        ("              autograd::engine::evaluate_function: AddmmBackward0", 2 * 20_000),
        ("                aten::mm", 2 * 20_000),
        ("                  gemm backward", 2 * 20_000),
        ("              gemm", 2 * 10_000),
        ("    aten::to", 2 * 8_000),
        ("      Memcpy HtoD (Pageable -> Device)", 2 * 8_000),
        ("    Optimizer.step#SGD.step", 2 * 3_000),
        ("      aten::_foreach_add_", 2 * 3_000),
        ("        update", 2 * 3_000),
    ]


def test_where_it_ran_backward_work_of_all_lines_is_together() -> None:
    rows = dict(outline(views.top_down(small_tree(), placement="ran")))
    assert rows["autograd threads"] == 2 * 41_000
    assert rows["    aten::mm"] == 2 * 41_000


def test_bottom_up_asks_who_calls_a_kernel() -> None:
    rows = outline(views.bottom_up(views.top_down(small_tree())))
    assert rows[0] == ("gemm backward", 2 * 41_000)
    tree = views.bottom_up(views.top_down(small_tree()))
    roots = {tree.label(n): int(v) for n, v in enumerate(tree.inclusive("device")) if tree.parent[n] < 0}
    assert roots == {
        "gemm backward": 82_000, "gemm": 42_000, "Memcpy HtoD (Pageable -> Device)": 16_000, "update": 6_000,
    }  # fmt: skip
    assert [name.strip() for name, _ in rows[:4]] == [
        "gemm backward", "aten::mm", "autograd::engine::evaluate_function: AddmmBackward0", "aten::addmm",
    ]  # fmt: skip


def test_bottom_up_by_host_time_has_frames_and_operators_at_the_root() -> None:
    tree = views.bottom_up(small_tree(), "host")
    assert tree.total("host") == small_tree().total("host")
    roots = {tree.label(n) for n in range(len(tree)) if tree.parent[n] < 0}
    assert {"aten::addmm", "train.py(10): step"} <= roots


def test_filters() -> None:
    tree = small_tree()
    assert views.top_down(tree, phases=["backward"]).total("device") == 82_000
    assert views.top_down(tree, phases=["optimizer", "other"]).total("device") == 22_000
    assert views.top_down(tree, text="linear_1").total("device") == 64_000
    assert views.top_down(tree, text="HTOD").total("device") == 16_000
    assert len(views.top_down(tree, text="nowhere")) == 0
    with pytest.raises(UsageError, match="no phase 'sideways'"):
        views.only_phases(tree, ["sideways"])


def test_steps_and_streams_are_chosen_when_the_tree_is_built() -> None:
    trace = small_trace_builder().build()
    assert build_tree(trace, steps=[3]).total("device") == 73_000
    assert build_tree(trace, streams=["9"]).total("device") == 82_000
    assert build_tree(trace, steps=[3], streams=["9"]).info.filters == {"step": "3", "stream": "9"}
    with pytest.raises(UsageError, match="no step 9; it has: 2, 3"):
        build_tree(trace, steps=[9])
    with pytest.raises(UsageError, match="no stream 4; it has: 7, 9"):
        build_tree(trace, streams=["4"])


def test_modules_alone() -> None:
    rows = outline(views.modules(views.top_down(small_tree())))
    assert rows == [("main thread", 146_000), ("  Net", 124_000), ("    Linear_1", 64_000), ("    Linear_0", 60_000)]


def test_equal_layers_can_be_merged() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("nn.Module: Sequential_0"):
        for layer in range(12):
            with b.frame(f"nn.Module: Block_{layer}"), b.frame(f"nn.Module: Linear_{layer}"), b.op("aten::mm"):
                b.launch("gemm", duration=2)
    merged = views.merge_layers(views.top_down(build_tree(b.build())))
    assert outline(views.modules(merged)) == [
        ("main thread", 24_000), ("  Sequential", 24_000), ("    *", 24_000), ("      *.Linear_0", 24_000),
    ]  # fmt: skip


def folded(*frames: str) -> list[str]:
    """Labels that stay of a chain of frames around one kernel."""
    b = TraceBuilder()
    with b.step():
        entered = [b.frame(name) for name in frames]
        for frame in entered:
            frame.__enter__()
        with b.op("aten::copy_"):
            b.launch("kernel")
        for frame in reversed(entered):
            frame.__exit__(None, None, None)
    tree = views.top_down(build_tree(b.build()))
    return [tree.label(n) for n in range(len(tree)) if tree.kind[n] in (NodeKind.FRAME, NodeKind.MODULE)]


def test_the_frame_through_which_one_enters_a_library_stays() -> None:
    to = "torch/nn/modules/module.py(1255): to"
    assert folded("train.py(1): main", to, "torch/nn/modules/module.py(931): _apply",
                  "torch/nn/modules/module.py(1361): convert") == ["train.py(1): main", to]  # fmt: skip


def test_wrappers_around_the_users_own_code_are_left_out() -> None:
    assert folded("train.py(1): main", "torch/utils/_contextlib.py(116): decorate_context", "model.py(9): forward") == [
        "train.py(1): main", "model.py(9): forward",
    ]  # fmt: skip
    assert folded("train.py(1): main", "torch/_compile.py(9): helper", "model.py(9): forward") == [
        "train.py(1): main", "model.py(9): forward",
    ]  # fmt: skip


def test_the_inside_of_a_library_module_is_left_out() -> None:
    assert folded("train.py(1): main", "nn.Module: Conv2d_0", "torch/nn/modules/module.py(1783): _call_impl",
                  "torch/nn/modules/conv.py(552): forward") == ["train.py(1): main", "Conv2d"]  # fmt: skip


def test_a_thread_of_library_frames_alone_keeps_its_costs() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("threading.py(1030): _bootstrap"), b.op("aten::add"):
        b.launch("add", duration=4)
    shown = views.top_down(build_tree(b.build()))
    assert outline(shown) == [("main thread", 4000), ("  aten::add", 4000), ("    add", 4000)]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("train.py", False), ("project/model.py", False), ("/srv/me/train.py", False), ("", True),
        ("<frozen os>", True),
        ("torch/nn/functional.py", True), ("transformers/models/llama/modeling_llama.py", True), ("threading.py", True),
        ("/opt/venv/lib/python3.12/site-packages/mine/x.py", True), ("/usr/lib/python3.11/json/decoder.py", True),
        ("C:\\venv\\Lib\\site-packages\\torch\\x.py", True), ("torchinductor/abc.py", True),
    ],
)  # fmt: skip
def test_whose_file_it_is(file: str, library: bool) -> None:
    assert is_library(file) is library


def test_frames_are_taken_apart() -> None:
    assert parse_frame("a (1)/b.py(12): f(x)") == ("a (1)/b.py", 12, "f(x)")
    assert parse_frame("<built-in method f>") == ("", 0, "<built-in method f>")
    assert normalise(["x at 0x7f>", "a#12", "torch_compiled/y", "/tmp/torchinductor_me/ab/cab.py(3): call",
                      "<eval_with_key>.7(4): forward", "execute_context_1(9)_generation_0(0)", "\ud800"]) == [
        "x>", "a#*", "torch_compiled/y", "torchinductor/cab.py(3): call", "<eval_with_key>(4): forward",
        "execute_context_*(*)_generation_*(*)", "?",
    ]  # fmt: skip


def test_long_names_are_cut_and_stay_apart() -> None:
    one, two = normalise(["k" * 9000 + "a", "k" * 9000 + "b"])
    assert one != two
    assert len(one) < 4100


# -- flat ------------------------------------------------------------------------------------------------------------


def table(tree: Tree, by: str) -> dict[str, tuple[int, int]]:
    """Name -> (device time in all, of its own)."""
    return {row["name"]: (row["total_device"], row["device"]) for row in flat(tree, by).rows()}


def test_flat_by_everything() -> None:
    tree = views.placed(small_tree(), "forward")
    assert table(tree, "kernel") == {
        "gemm backward": (82_000, 82_000), "gemm": (42_000, 42_000), "update": (6_000, 6_000),
        "Memcpy HtoD (Pageable -> Device)": (16_000, 16_000), "(host only)": (0, 0),
    }  # fmt: skip
    assert table(tree, "operator")["aten::addmm"] == (124_000, 42_000)
    assert table(tree, "operator")["AddmmBackward0"] == (82_000, 0)
    assert table(tree, "class")["Linear"] == (124_000, 124_000)
    assert table(tree, "class")["Net"] == (124_000, 0)
    assert table(tree, "line") == {
        "train.py:10": (146_000, 22_000), "net.py:20": (124_000, 124_000),
    }  # fmt: skip
    assert table(tree, "file")["net.py"] == (124_000, 124_000)
    assert table(tree, "function")["torch/nn/modules/linear.py(130): forward"] == (124_000, 124_000)
    assert table(tree, "phase") == {
        "forward": (42_000, 42_000), "backward": (82_000, 82_000), "optimizer": (6_000, 6_000),
        "other": (16_000, 16_000),
    }  # fmt: skip


def test_the_total_of_a_recursive_function_counts_each_kernel_once() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("a.py(1): f"), b.op("aten::x"):
        b.launch("k", duration=1)
        with b.frame("b.py(1): g"), b.frame("a.py(1): f"), b.op("aten::x"):
            b.launch("k", duration=2)
    tree = build_tree(b.build())
    assert table(tree, "line")["a.py:1"] == (3000, 3000)
    assert table(tree, "operator")["aten::x"] == (3000, 3000)


def test_flat_says_which_phase_a_line_pays_for() -> None:
    rows = {row["name"]: row for row in flat(views.placed(small_tree(), "forward"), "line").rows()}
    assert (rows["net.py:20"]["phase_forward"], rows["net.py:20"]["phase_backward"]) == (42_000, 82_000)


def test_flat_sorts_and_refuses() -> None:
    names = flat(small_tree(), "kernel", sort="longest")["name"].tolist()
    assert names[0] == "gemm backward"
    with pytest.raises(UsageError, match="cannot list by 'colour'"):
        flat(small_tree(), "colour")
    with pytest.raises(UsageError, match="cannot sort by 'colour'"):
        flat(small_tree(), "kernel", sort="colour")
    assert set(BY) == {"kernel", "operator", "module", "class", "line", "file", "function", "phase"}


def test_spread_of_a_kernel() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        for duration in (2, 4, 9):
            b.launch("k", duration=duration)
    (row,) = [row for row in flat(build_tree(b.build()), "kernel").rows() if row["name"] == "k"]
    assert (row["mean"], row["shortest"], row["longest"]) == (5000, 2000, 9000)
    assert row["stddev"] == pytest.approx((26 / 3) ** 0.5 * 1000)


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_derived_metrics_and_unknown_ones() -> None:
    tree = small_tree()
    found = {metric: tree.total(metric) for metric in ("kernel", "copy", "htod", "dtoh")}
    assert found == {"kernel": 130_000, "copy": 16_000, "htod": 16_000, "dtoh": 0}
    assert tree.total("bytes") == 8192
    with pytest.raises(KeyError):
        tree.value("colour")
    with pytest.raises(KeyError):
        tree.inclusive("longest")


def test_the_frame_has_one_row_per_node() -> None:
    frame = small_tree().frame()
    assert frame.height == len(small_tree())
    assert frame["device"].sum() == 146_000
    top = frame.filter(frame["name"] == "main thread").to_dicts()[0]
    assert (top["kind"], top["total_device"], top["parent"]) == ("thread", 64_000, -1)


def test_above_the_limit_the_cheapest_contexts_are_merged_and_counted() -> None:
    b = TraceBuilder()
    with b.step():
        for number in range(50):
            with b.frame(f"gen.py({number}): f"), b.op(f"op{number}"):
                b.launch(f"k{number}", duration=1 + number)
    tree = build_tree(b.build())
    small = limit_nodes(tree, 31)
    assert len(small) < len(tree)
    assert small.total("device") == tree.total("device")
    assert small.info.truncated == len(tree) - 31
    labels = {small.label(n) for n in range(len(small))}
    assert {"k49", TRUNCATED} <= labels
    assert "k0" not in labels
    assert len(build_tree(b.build(), max_nodes=31)) == len(small)
