"""Trees for other tools: Prometheus' own client reads the text, polars and pyarrow read the tables."""

from __future__ import annotations

import dataclasses
from io import BytesIO, StringIO

import polars as pl
import pytest

from lanewise.cli.outputs import formats
from lanewise.show.tree.prometheus import TOP, prometheus
from lanewise.show.tree.tree_tables import flat_csv, flat_parquet, tree_csv, tree_parquet
from lanewise.tree.flat import flat
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import load
from tests.support.corpus import REPOSITORY

WATCHED = REPOSITORY / "tests" / "data" / "watched"
ALL = sorted(WATCHED.glob("*.lw"))


def renamed(tree: Tree, old: str, new: str) -> Tree:
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=[text.replace(old, new) for text in tree.strings], metrics=tree.metrics,
        info=dataclasses.replace(tree.info, source=new),
    )  # fmt: skip


def families(text: str) -> dict[str, dict[str, float]]:
    """Samples by family and by the value of their last label, as Prometheus' parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser")
    found: dict[str, dict[str, float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[list(sample.labels.values())[-1]] = sample.value
    return found


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_prometheus_reads_what_is_in_the_tree(path) -> None:
    tree = load(path)
    found = families(prometheus(tree))
    assert sum(found["lanewise_host_seconds_total"].values()) == pytest.approx(tree.total("host") / 1e9)
    assert sum(found.get("lanewise_device_seconds_total", {}).values()) == pytest.approx(tree.total("device") / 1e9)
    kernels = found.get("lanewise_kernel_seconds_total", {})
    if len(kernels) < TOP:
        assert sum(kernels.values()) == pytest.approx(tree.total("device") / 1e9)
    assert all(len(samples) <= TOP for samples in found.values())


def test_every_series_stands_once_and_has_its_type_before_it() -> None:
    lines = prometheus(load(WATCHED / "llm_train.lw")).splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(set(series)) == len(series)
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(typed)) == len(typed)
    assert {name.partition("{")[0] for name in series} == set(typed)


def test_names_of_a_stranger_are_labels_and_nothing_else() -> None:
    hostile = 'x"} 1\nevil{a="\\'
    tree = renamed(load(WATCHED / "optimizer_loop.lw"), "aten::sqrt", hostile)
    text = prometheus(tree)
    assert not [line for line in text.splitlines() if line.startswith("evil")]
    assert "evil" not in families(text)


def test_tables_are_those_of_the_tree() -> None:
    tree = load(WATCHED / "optimizer_loop.lw")
    of_parquet = pl.read_parquet(BytesIO(tree_parquet(tree)))
    of_csv = pl.read_csv(StringIO(tree_csv(tree)))
    for frame in (of_parquet, of_csv):
        assert frame.height == len(tree)
        assert frame["host"].sum() == tree.total("host")
        assert frame["name"].to_list()[5] == tree.label(5)
    table = flat(tree, "operator")
    for frame in (
        pl.read_parquet(BytesIO(flat_parquet(tree, table, "operator"))),
        pl.read_csv(StringIO(flat_csv(tree, table, "operator"))),
    ):
        assert frame.height == table.height
        assert frame["total_host"].to_list() == table["total_host"].tolist()


def test_pyarrow_reads_the_parquet() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    tree = load(WATCHED / "ckpt.lw")
    assert parquet.read_table(BytesIO(tree_parquet(tree))).num_rows == len(tree)


def test_the_command_offers_them() -> None:
    assert {"prometheus", "csv", "parquet", "pprof", "speedscope", "collapsed"} <= set(formats("tree"))
    assert {"csv", "parquet", "json"} <= set(formats("flat tree"))
