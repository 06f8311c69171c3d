"""OTLP profiles, read back with OpenTelemetry's own messages."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from lanewise.errors import MissingDependencyError, UsageError
from lanewise.show.tree.otlp import otlp
from lanewise.tree.algebra import subtract
from lanewise.tree.model import PHASES
from lanewise.tree.tree_file import load
from tests.support.corpus import REPOSITORY
from tests.tree.samples import case_tree, small_tree

WATCHED = REPOSITORY / "tests" / "data" / "watched"


@pytest.fixture
def _messages() -> None:
    pytest.importorskip("opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2")


def read_back(data: bytes) -> Any:
    service = pytest.importorskip("opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2")
    return service.ExportProfilesServiceRequest.FromString(data)


def profiles(request: Any) -> dict[str, Any]:
    strings = request.dictionary.string_table
    found = request.resource_profiles[0].scope_profiles[0].profiles
    return {strings[one.sample_type.type_strindex]: one for one in found}


def names(request: Any, stack: int) -> list[str]:
    """Functions of a stack, innermost first."""
    tables = request.dictionary
    lines = (tables.location_table[at].lines[0] for at in tables.stack_table[stack].location_indices)
    return [tables.string_table[tables.function_table[line.function_index].name_strindex] for line in lines]


@pytest.mark.usefixtures("_messages")
@pytest.mark.parametrize("tree", [small_tree(), case_tree("checkpoint"), load(WATCHED / "llm_train.lw")])
def test_every_metric_has_the_total_of_the_tree(tree: Any) -> None:
    request = read_back(otlp(tree, at_ns=1))
    found = profiles(request)
    for metric in ("device", "host", "count", "launches"):
        total = sum(sample.values[0] for sample in found[metric].samples) if metric in found else 0
        assert total == tree.total(metric)
    assert found["host"].time_unix_nano == 1
    assert len({bytes(one.profile_id) for one in found.values()}) == len(found)


@pytest.mark.usefixtures("_messages")
def test_stacks_lead_from_the_context_to_the_thread() -> None:
    tree = small_tree()
    request = read_back(otlp(tree))
    profile = profiles(request)["device"]
    stacks = [names(request, sample.stack_index) for sample in profile.samples]
    (gemm,) = [stack for stack in stacks if stack[0] == "gemm" and any("Linear_0" in name for name in stack)]
    assert gemm[1:3] == ["aten::addmm", "aten::linear"]
    assert "forward" in gemm
    assert gemm[-1].endswith("thread")
    resource = request.resource_profiles[0].resource.attributes[0]
    assert (resource.key, bool(resource.value.string_value)) == ("service.name", True)


@pytest.mark.usefixtures("_messages")
def test_phases_are_attributes_and_row_zero_stands_for_none() -> None:
    request = read_back(otlp(small_tree()))
    tables = request.dictionary
    for table in ("mapping", "location", "function", "link", "attribute", "stack"):
        assert getattr(tables, f"{table}_table")[0].ByteSize() == 0
    assert tables.string_table[0] == ""
    seen = set()
    for sample in profiles(request)["host"].samples:
        (index,) = sample.attribute_indices
        attribute = tables.attribute_table[index]
        assert tables.string_table[attribute.key_strindex] == "lanewise.phase"
        seen.add(attribute.value.string_value)
    assert seen <= set(PHASES)
    assert {"forward", "optimizer"} <= seen


@pytest.mark.usefixtures("_messages")
def test_a_difference_is_no_profile() -> None:
    with pytest.raises(UsageError, match="difference"):
        otlp(subtract(small_tree(), case_tree("plain")))


def test_without_the_messages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    imported = builtins.__import__

    def refused(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lanewise\[otlp\]'"):
        otlp(small_tree())
