"""Real programs: the numbers that were read off their traces by hand (experiments E12, E13, E18)."""

from __future__ import annotations

import pytest

from lanewise.tree import views
from lanewise.tree.flat import flat
from lanewise.tree.model import PHASES, Tree
from tests.support.corpus import facts_of
from tests.tree.samples import case_tree, corpus_tree

CORPUS = ("03_mnist_train_stack", "04_resnet50_infer", "04_resnet50_model_to_device_each_step", "05_llama_generate",
          "05_llama_prefill_stack", "05_llama_train", "06_cuda_graph_replay", "08_ddp_good_rank0", "08_fsdp2_rank0",
          "01_matmul_add_64_nowait", "07_bad_recompile_each_step")  # fmt: skip


def shares(tree: Tree, by: str, placement: str = "forward") -> dict[str, dict[str, float]]:
    """Name -> percentages of the device time: in all, and by phase."""
    total = tree.total("device")
    return {
        row["name"]: {"all": 100 * row["total_device"] / total}
        | {phase: 100 * row.get(f"phase_{phase}", 0) / total for phase in PHASES}
        for row in flat(views.placed(tree, placement), by).rows()  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("name", CORPUS)
def test_every_view_has_the_traces_device_total(name: str) -> None:
    trace = facts_of(name).trace
    total = int(trace.duration[trace.device_work].sum())
    tree = corpus_tree(name)
    for placement in ("forward", "ran"):
        for fold in (True, False):
            shown = views.top_down(tree, placement=placement, fold=fold)  # type: ignore[arg-type]
            assert shown.total("device") == views.bottom_up(shown).total("device") == total
            assert int(shown.inclusive("device")[shown.parent < 0].sum()) == total


@pytest.mark.parametrize("name", ["03_mnist_train_stack", "05_llama_train", "08_ddp_good_rank0", "08_fsdp2_rank0"])
def test_backward_operators_are_linked(name: str) -> None:
    info = corpus_tree(name).info
    assert info.backward > 0
    assert info.linked >= 0.99 * info.backward


@pytest.mark.parametrize("case", ["plain", "checkpoint", "checkpoint_reentrant", "retain_graph", "double_backward",
                                  "accumulate", "compile"])  # fmt: skip
def test_backward_operators_of_the_hard_cases_are_linked(case: str) -> None:
    info = case_tree(case).info
    assert info.backward > 0
    assert info.linked >= 0.99 * info.backward


def test_the_profilers_own_arrows_agree_with_the_links() -> None:
    """Where the profiler drew an arrow to a backward operator, it begins in the forward operator that was found."""
    trace = facts_of("03_mnist_train_stack").trace
    flows = trace["flows"]
    wanted = trace.texts.index("fwdbwd")
    rows = range(len(flows["id"]))
    begins = {flows["id"][i]: (flows["lane"][i], flows["time"][i]) for i in rows
              if flows["category"][i] == wanted and not flows["end"][i]}  # fmt: skip
    ends = {(flows["lane"][i], flows["time"][i]): flows["id"][i] for i in rows
            if flows["category"][i] == wanted and flows["end"][i]}  # fmt: skip
    agreed = 0
    for event in range(len(trace)):
        forward = int(trace.links.forward_of[event])
        arrow = ends.get((trace.lane[event], trace.start[event])) if forward >= 0 else None
        if arrow is not None and trace["events"]["forward_thread"][event] > 0:
            lane, time = begins[arrow]
            assert lane == trace.lane[forward]
            assert trace.start[forward] <= time < trace.end[forward]
            agreed += 1
    assert agreed == 45


def test_mnist() -> None:
    tree = corpus_tree("03_mnist_train_stack")
    found = shares(tree, "module")
    assert found["Conv2d_1"]["all"] == pytest.approx(35.5, abs=0.05)
    assert found["Conv2d_1"]["forward"] == pytest.approx(8.3, abs=0.05)
    assert found["Conv2d_1"]["backward"] == pytest.approx(27.2, abs=0.05)
    assert found["Conv2d_0"]["all"] == pytest.approx(15.6, abs=0.05)
    assert found["Linear_0"]["all"] == pytest.approx(17.6, abs=0.05)
    ran = views.placed(tree, "ran")
    autograd = next(n for n in range(len(ran)) if ran.label(n) == "autograd threads")
    assert 100 * int(ran.inclusive("device")[autograd]) / tree.total("device") == pytest.approx(59.5, abs=0.05)


def test_mnist_shows_both_gemms_of_a_convolution_under_their_line_with_their_phase() -> None:
    tree = views.top_down(corpus_tree("03_mnist_train_stack"))
    found: dict[str, tuple[str, bool]] = {}
    for node in range(len(tree)):
        if tree.leaf[node] and ("fprop" in tree.label(node) or "dgrad" in tree.label(node)):
            names, at = [], int(tree.parent[node])
            while at >= 0:
                names.append(tree.label(at))
                at = int(tree.parent[at])
            found["fprop" if "fprop" in tree.label(node) else "dgrad"] = (
                PHASES[int(tree.phase[node])],
                "capture_corpus.py(98): forward" in names and "Conv2d_1" in names,
            )
    assert found == {"fprop": ("forward", True), "dgrad": ("backward", True)}


def test_resnet_moved_each_step_copies_under_the_line_that_moves_it() -> None:
    tree = views.top_down(corpus_tree("04_resnet50_model_to_device_each_step"))
    copies = tree.inclusive("copy")
    moves = [n for n in range(len(tree)) if tree.label(n) == "torch/nn/modules/module.py(1255): to"]
    assert len(moves) == 1
    assert tree.label(int(tree.parent[moves[0]])).endswith(": resnet_copy")
    assert int(copies[moves[0]]) > 0.9 * tree.total("copy")
    host = tree.inclusive("host")
    assert int(host[moves[0]]) / 3 == pytest.approx(91e6, rel=0.03)


def test_resnet_kernels_by_layer_add_up() -> None:
    tree = views.placed(corpus_tree("04_resnet50_model_to_device_each_step"), "forward")
    rows = {row["name"]: row for row in flat(tree, "module").rows()}
    network = rows["ResNet"]["total_device"]
    layers = {name: 100 * row["total_device"] / network for name, row in rows.items() if name.count(".") == 0}
    expected = {"layer1": 29.5, "layer2": 24.9, "layer3": 21.4, "layer4": 12.9, "conv1": 5.9}
    for name, share in expected.items():
        assert layers[name] == pytest.approx(share, abs=0.06), name
    parts = sum(layers[name] for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4",
                                          "avgpool", "fc"))  # fmt: skip
    assert parts + 100 * rows["ResNet"]["device"] / network == pytest.approx(100)
    # All kernels of the program are the network's.
    assert network == tree.total("kernel") + tree.total("set")


def test_llama_prefill_by_module() -> None:
    found = shares(corpus_tree("05_llama_prefill_stack"), "class")
    assert found["LlamaAttention"]["all"] == pytest.approx(46, abs=0.5)
    assert found["LlamaRMSNorm"]["all"] == pytest.approx(33, abs=0.5)
    assert found["LlamaMLP"]["all"] == pytest.approx(15, abs=0.5)


def test_fully_sharded_training_has_a_communication_phase() -> None:
    found = shares(corpus_tree("08_fsdp2_rank0"), "phase")
    assert found["communication"]["all"] > 5
    assert {"forward", "backward", "optimizer"} <= set(found)
