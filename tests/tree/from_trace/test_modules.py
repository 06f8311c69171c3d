"""Paths of modules in the network."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.tree.build import build_tree
from lanewise.tree.model import NodeKind, Tree
from tests.support.builder import TraceBuilder
from tests.tree.samples import CASES, corpus_tree


def paths(tree: Tree) -> dict[str, str]:
    """Module path -> class."""
    return {tree.label(n): tree.strings[int(tree.detail[n])] for n in range(len(tree))
            if tree.kind[n] == NodeKind.MODULE}  # fmt: skip


def with_modules(trace: Trace, modules: Any) -> Trace:
    """The same trace, as a recorder that lists the modules would have written it."""
    tables = {table: trace[table] for table in ("events", "lanes", "kernel_args", "copy_args", "python_args", "flows")}
    return Trace(tables=tables, names=trace.names, texts=trace.texts, base_ns=trace.base_ns,
                 metadata={**trace.metadata, "lanewise": {"modules": modules}},
                 reading=trace.reading)  # fmt: skip


def test_what_a_recorder_listed_gives_every_path_of_a_real_network() -> None:
    listed = json.loads((CASES / "modules.json").read_text())["plain"]
    tree = build_tree(with_modules(read(CASES / "plain.json.gz", cache=False), listed))
    called = {path: cls for path, cls in listed if cls != "ModuleList"}
    called["Net"] = called.pop("")
    assert paths(tree) == called
    assert tree.info.modules == "recorded"


@pytest.mark.parametrize("broken", ["text", 7, [["a"]], [[1, 2]], [["", "Net"], "x"], {"a": 1}, [["", "Other"]]])
def test_a_list_of_another_form_is_ignored(broken: Any) -> None:
    trace = read(CASES / "plain.json.gz", cache=False)
    assert paths(build_tree(with_modules(trace, broken))) == paths(build_tree(trace))


def test_without_a_list_position_and_class_tell_modules_apart() -> None:
    tree = build_tree(read(CASES / "plain.json.gz", cache=False))
    expected = {"Net", "Block_0", "Block_1.Linear_0", "Block_2.GELU_0", "Sequential_0", "Sequential_0.1"}
    assert expected <= set(paths(tree))
    assert tree.info.modules == "positions"


def test_the_layers_of_a_loop_stay_apart() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("nn.Module: Net_0"), b.frame("net.py(3): forward"):
        for layer in range(3):
            with b.frame(f"nn.Module: Linear_{layer}"), b.op("aten::linear"):
                b.launch("gemm", duration=layer + 1)
    tree = build_tree(b.build())
    assert list(paths(tree)) == ["Net", "Linear_0", "Linear_1", "Linear_2"]
    inclusive = tree.inclusive("device")
    assert [int(inclusive[n]) for n in range(len(tree)) if tree.kind[n] == NodeKind.MODULE] == [6000, 1000, 2000, 3000]


def test_a_shared_child_of_a_sequential_keeps_the_positions_of_the_others() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("nn.Module: Sequential_0"):
        for name in ("Linear_0", "ReLU_0", "Linear_1", "ReLU_0", "Linear_2"):
            with b.frame(f"nn.Module: {name}"), b.op("aten::op"):
                b.launch("kernel")
    assert paths(build_tree(b.build())) == {
        "Sequential": "Sequential", "0": "Linear", "1": "ReLU", "2": "Linear", "4": "Linear",
    }  # fmt: skip


def test_two_networks_are_told_apart() -> None:
    b = TraceBuilder()
    with b.step():
        for name, child in (("Generator_0", "Linear_0"), ("Critic_0", "Linear_1"), ("Critic_1", "Linear_2")):
            with b.frame(f"nn.Module: {name}"), b.frame(f"nn.Module: {child}"), b.op("aten::op"):
                b.launch("kernel")
    assert list(paths(build_tree(b.build()))) == [
        "Critic_0", "Critic_1", "Generator", "Critic_0.Linear_0", "Critic_1.Linear_0", "Generator.Linear_0",
    ]  # fmt: skip


def test_a_well_known_network_gets_its_attribute_names() -> None:
    found = paths(corpus_tree("05_llama_prefill_stack"))
    assert found["model.layers.7.self_attn.q_proj"] == "Linear"
    assert found["model.layers.0.input_layernorm"] == "LlamaRMSNorm"
    assert found["lm_head"] == "Linear"
    assert found["LlamaForCausalLM"] == "LlamaForCausalLM"


def test_a_network_of_that_class_but_another_shape_gets_none() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("nn.Module: Bottleneck_0"):
        for name in ("Conv2d_0", "ReLU_0"):
            with b.frame(f"nn.Module: {name}"), b.op("aten::op"):
                b.launch("kernel")
    assert list(paths(build_tree(b.build()))) == ["Bottleneck", "Conv2d_0", "ReLU_0"]
