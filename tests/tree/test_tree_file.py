"""Tree files: small, equal for equal trees, refused when they are not what they claim."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lanewise.errors import InputError, NotATraceError
from lanewise.tree.model import METRICS
from lanewise.tree.tree_file import MAGIC, dumps, is_tree, load, loads, save
from tests.tree.samples import case_tree, corpus_tree, small_tree


def repacked(**changes: object) -> bytes:
    """The small tree's file with something in it changed."""
    data = dumps(small_tree())
    content = msgspec.msgpack.decode(zlib.decompress(data[len(MAGIC) + 1 :]))
    for name, value in changes.items():
        table, _, column = name.partition("__")
        if column:
            content[table][column] = value
        else:
            content[table] = value
    return data[: len(MAGIC) + 1] + zlib.compress(msgspec.msgpack.encode(content))


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree = case_tree("checkpoint")
    save(tree, tmp_path / "a.lwtree")
    back = load(tmp_path / "a.lwtree")
    for column in ("parent", "kind", "phase", "name", "detail", "forward"):
        assert np.array_equal(getattr(back, column), getattr(tree, column)), column
    for metric in METRICS:
        assert np.array_equal(back.metrics[metric], tree.metrics[metric]), metric
    assert list(back.strings) == list(tree.strings)
    assert back.info == tree.info
    assert dumps(back) == dumps(tree)
    assert is_tree(tmp_path / "a.lwtree")


@pytest.mark.parametrize("name", ["03_mnist_train_stack", "04_resnet50_model_to_device_each_step", "05_llama_train"])
def test_real_programs_fit_well_below_a_megabyte(name: str) -> None:
    assert len(dumps(corpus_tree(name))) < 200_000


def test_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotATraceError, match="not a lanewise tree"):
        loads(b'{"traceEvents": []}')
    (tmp_path / "x").write_bytes(b"")
    assert not is_tree(tmp_path / "x")
    assert not is_tree(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot read"):
        load(tmp_path / "absent")


def test_another_version_is_refused_by_name() -> None:
    data = bytearray(dumps(small_tree()))
    data[len(MAGIC)] = 9
    with pytest.raises(InputError, match="format 9; this version of lanewise reads format 1"):
        loads(bytes(data))


def test_keys_of_a_later_minor_version_are_ignored() -> None:
    tree = loads(repacked(later={"x": 1}, minor=7, metrics__surprise={"dtype": "<i1", "data": b""}))
    assert tree.total("device") == small_tree().total("device")


def test_a_metric_that_an_older_version_did_not_know_is_zero() -> None:
    data = dumps(small_tree())
    content = msgspec.msgpack.decode(zlib.decompress(data[len(MAGIC) + 1 :]))
    del content["metrics"]["allocated"]
    old = loads(data[: len(MAGIC) + 1] + zlib.compress(msgspec.msgpack.encode(content)))
    assert old.total("allocated") == 0
    assert old.total("device") == small_tree().total("device")


N = len(small_tree())


@pytest.mark.parametrize(
    "damage",
    [
        {"columns__parent": {"dtype": "<i4", "data": np.arange(N, dtype="<i4").tobytes()}},
        {"columns__parent": {"dtype": "<i4", "data": np.full(N, -7, dtype="<i4").tobytes()}},
        {"columns__forward": {"dtype": "<i4", "data": np.full(N, N + 5, dtype="<i4").tobytes()}},
        {"columns__name": {"dtype": "<i4", "data": np.full(N, 10**6, dtype="<i4").tobytes()}},
        {"columns__kind": {"dtype": "<i1", "data": np.full(N, 99, dtype="<i1").tobytes()}},
        {"columns__kind": {"dtype": "<i1", "data": b"\x01"}},
        {"columns__kind": {"dtype": "|O", "data": b"\x01" * N}},
        {"columns__kind": {"dtype": "<i4", "data": b"\x01\x02"}},
        {"metrics__device": {"dtype": "<i1", "data": b""}},
        {"columns": {}},
        {"strings": "text"},
        {"info": 3},
    ],
    ids=range(12),
)
def test_damage_is_an_input_error(damage: dict[str, object]) -> None:
    with pytest.raises(InputError, match="damaged"):
        loads(repacked(**damage))


@pytest.mark.parametrize("cut", [len(MAGIC), len(MAGIC) + 1, len(MAGIC) + 20, -3])
def test_a_truncated_file_is_an_input_error(cut: int) -> None:
    with pytest.raises(InputError):
        loads(dumps(small_tree())[:cut])
