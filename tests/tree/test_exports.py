"""Other tools' formats, read back by those tools' own readers where there are any."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import UsageError
from lanewise.show.tree.collapsed import collapsed
from lanewise.show.tree.hatchet import hatchet
from lanewise.show.tree.pprof import pprof
from lanewise.show.tree.speedscope import speedscope
from lanewise.show.tree.tree_json import flat_json, tree_json
from lanewise.tree import views
from lanewise.tree.algebra import subtract
from lanewise.tree.build import build_tree
from lanewise.tree.flat import flat
from lanewise.tree.model import Tree
from tests.support.builder import TraceBuilder
from tests.support.collapsed_stacks import parse_collapsed
from tests.tree.samples import CASES, corpus_tree, small_tree

READERS = Path(__file__).parent / "readers"
HOSTILE = 'a;b%\n\x1b[2J[bold]{0}\u202e<script>é\\"'


def named(name: str) -> Tree:
    """A tree whose every name is that one."""
    b = TraceBuilder()
    with b.step(), b.frame(f"{name}.py(1): {name}"), b.op(name):
        b.launch(name, duration=3)
    return build_tree(b.build())


def paths(tree: Tree) -> dict[tuple[str, ...], int]:
    """Names from the root to each node with device time of its own -> that time."""
    found: Counter[tuple[str, ...]] = Counter()
    for node in range(len(tree)):
        if value := int(tree.metrics["device"][node]):
            names, at = [], node
            while at >= 0:
                names.append(tree.label(at))
                at = int(tree.parent[at])
            found[tuple(reversed(names))] += value
    return dict(found)


# -- collapsed stacks ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=12, alphabet=st.characters(exclude_categories=("Cs",))))
def test_collapsed_stacks_round_trip_whatever_the_names(name: str) -> None:
    tree = named(name)
    assert parse_collapsed(collapsed(tree)) == paths(tree)


def test_collapsed_stacks_of_a_real_program_round_trip() -> None:
    tree = corpus_tree("03_mnist_train_stack")
    back = parse_collapsed(collapsed(tree))
    assert back == paths(tree)
    assert sum(back.values()) == tree.info.device_total
    assert sum(parse_collapsed(collapsed(tree, "host")).values()) == tree.total("host")
    with pytest.raises(ValueError):
        parse_collapsed("a;b no number\n")


# -- speedscope ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [small_tree(), named(HOSTILE), build_tree(TraceBuilder().build())], ids=range(3))
def test_speedscope_files_follow_its_schema(tree: Tree) -> None:
    schema = json.loads((CASES / "speedscope-schema.json").read_text())
    document = json.loads(speedscope(tree))
    jsonschema.validate(document, schema)
    frames = document["shared"]["frames"]
    device = document["profiles"][0]
    assert sum(device["weights"]) == device["endValue"] == tree.total("device")
    assert len(device["samples"]) == len(device["weights"])
    assert all(0 <= frame < len(frames) for sample in device["samples"] for frame in sample)


def test_speedscope_frames_have_files_and_lines() -> None:
    document = json.loads(speedscope(views.top_down(small_tree())))
    assert {"name": "forward", "file": "net.py", "line": 20} in document["shared"]["frames"]
    assert [profile["name"] for profile in document["profiles"]] == ["device time", "host time"]


# -- pprof -----------------------------------------------------------------------------------------------------------

_FIELDS: dict[str, list[tuple[str, int, str, bool]]] = {
    "ValueType": [("type", 1, "int64", False), ("unit", 2, "int64", False)],
    "Label": [("key", 1, "int64", False), ("str", 2, "int64", False), ("num", 3, "int64", False),
              ("num_unit", 4, "int64", False)],
    "Sample": [("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)],
    "Mapping": [("id", 1, "uint64", False), ("filename", 5, "int64", False), ("has_functions", 7, "bool", False)],
    "Line": [("function_id", 1, "uint64", False), ("line", 2, "int64", False)],
    "Location": [("id", 1, "uint64", False), ("mapping_id", 2, "uint64", False), ("line", 4, "Line", True)],
    "Function": [("id", 1, "uint64", False), ("name", 2, "int64", False), ("system_name", 3, "int64", False),
                 ("filename", 4, "int64", False), ("start_line", 5, "int64", False)],
    "Profile": [("sample_type", 1, "ValueType", True), ("sample", 2, "Sample", True), ("mapping", 3, "Mapping", True),
                ("location", 4, "Location", True), ("function", 5, "Function", True),
                ("string_table", 6, "string", True),
                ("comment", 13, "int64", True), ("default_sample_type", 14, "int64", False)],
}  # fmt: skip
_SCALARS = {"int64": 3, "uint64": 4, "bool": 8, "string": 9}


def _profile_class() -> Any:
    """The message of pprof's published profile.proto, for protobuf's own parser."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for message, fields in _FIELDS.items():
        entry = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            field = entry.field.add(name=name, number=number, label=3 if repeated else 1)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = 11
                field.type_name = f".perftools.profiles.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))


@pytest.mark.parametrize("tree", [small_tree(), named(HOSTILE)], ids=range(2))
def test_pprof_files_parse_and_hold_the_tree(tree: Tree) -> None:
    profile = _profile_class()()
    profile.ParseFromString(gzip.decompress(pprof(tree)))
    text = list(profile.string_table)
    assert text[0] == ""
    types = [(text[t.type], text[t.unit]) for t in profile.sample_type]
    assert types[:2] == [("device", "nanoseconds"), ("count", "count")]
    functions = {f.id: f for f in profile.function}
    name_of = {place.id: text[functions[place.line[0].function_id].name] for place in profile.location}
    assert 0 not in name_of
    assert all(place.mapping_id == profile.mapping[0].id for place in profile.location)
    assert sum(sample.value[0] for sample in profile.sample) == tree.total("device")
    assert sum(sample.value[2] for sample in profile.sample) == tree.total("host")
    assert all(len(sample.value) == len(profile.sample_type) for sample in profile.sample)
    leaves = {name_of[sample.location_id[0]] for sample in profile.sample if sample.value[0]}
    assert leaves == {tree.label(n) for n in range(len(tree)) if tree.metrics["device"][n]}
    assert {name_of[sample.location_id[-1]] for sample in profile.sample} <= {"main thread", "autograd threads"}
    assert {(text[label.key]) for sample in profile.sample for label in sample.label} == {"phase"}
    assert text[profile.default_sample_type] == "device"


def test_pprof_files_are_the_same_for_equal_trees() -> None:
    assert pprof(small_tree()) == pprof(small_tree())


# -- readers of the tools themselves -----------------------------------------------------------------------------------


def _read(format_: str, path: Path) -> Any:
    node = shutil.which("node")
    if node is None or not (READERS / "node_modules").exists():
        pytest.skip("run `npm ci` in tests/tree/readers for the readers of the tools themselves")
    command = [node, str(READERS / "read.cjs"), format_, str(path)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_speedscopes_own_schema_accepts_a_real_program(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(speedscope(corpus_tree("03_mnist_train_stack")))
    assert _read("speedscope", tmp_path / "a.json") == {"valid": True, "errors": None, "profiles": 2}


def test_a_pprof_reader_finds_the_stacks_of_a_real_program(tmp_path: Path) -> None:
    tree = views.top_down(corpus_tree("03_mnist_train_stack"))
    (tmp_path / "a.pb.gz").write_bytes(pprof(tree))
    found = _read("pprof", tmp_path / "a.pb.gz")
    assert found["types"][0] == ["device", "nanoseconds"]
    assert sum(sample["values"][0] for sample in found["samples"]) == tree.info.device_total
    convolution = [s for s in found["samples"] if "Conv2d_1 (Conv2d)" in s["stack"]]
    assert {label[1] for s in convolution for label in s["labels"]} == {"forward", "backward"}


# -- Hatchet, JSON -----------------------------------------------------------------------------------------------------


def test_a_hatchet_literal_is_the_tree() -> None:
    tree = views.top_down(small_tree())
    roots = json.loads(hatchet(tree))
    seen = 0

    def walk(node: dict[str, Any]) -> int:
        nonlocal seen
        seen += 1
        total = node["metrics"]["time"] + sum(walk(child) for child in node["children"])
        assert node["metrics"]["time (inc)"] == total
        assert set(node["frame"]) == {"name", "type", "phase"}
        return total

    assert sum(walk(root) for root in roots) == tree.total("device")
    assert seen == len(tree)
    assert json.loads(hatchet(build_tree(TraceBuilder().build()))) == []


def test_a_deep_program_needs_no_recursion() -> None:
    b = TraceBuilder()
    with b.step():
        deep = [b.frame(f"deep.py({line}): f") for line in range(3000)]
        for frame in deep:
            frame.__enter__()
        with b.op("aten::mm"):
            b.launch("gemm")
        for frame in reversed(deep):
            frame.__exit__(None, None, None)
    tree = build_tree(b.build())
    assert len(tree) == 3003
    text = hatchet(tree)
    assert text.count('"children": [') == len(tree)
    assert text.count("]}") == len(tree)
    assert len(json.loads(speedscope(tree))["profiles"][0]["samples"][0]) == len(tree)
    assert views.bottom_up(tree).total("device") == tree.total("device")


def test_json_lists_parents_before_children() -> None:
    tree = views.top_down(small_tree())
    document = json.loads(tree_json(tree))
    assert document["schema"] == "lanewise.tree/1"
    assert len(document["nodes"]) == len(tree)
    for place, node in enumerate(document["nodes"]):
        assert node["parent"] is None or node["parent"] < place
    assert document["nodes"][0]["total_device"] == tree.total("device") == document["info"]["device_total"]
    rows = json.loads(flat_json(tree, flat(tree, "line"), "line"))["rows"]
    assert rows[0]["name"] == "train.py:10"


def test_a_difference_cannot_be_drawn() -> None:
    change = subtract(named("a"), small_tree())
    for export in (collapsed, speedscope, pprof):
        with pytest.raises(UsageError, match="difference"):
            export(change)
