"""What is said of a job's nodes and clocks."""

from __future__ import annotations

import pytest

from lanewise.diagnose.sections.communication import communication_section
from lanewise.diagnose.sections.section import Section
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.together.matched_communications import match
from tests.support.made_ranks import exchanged, made_rank

BASE = 1_700_000_000_000_000_000


def section_of(ranks: list[RankSummary]) -> Section:
    return communication_section(compare_ranks(ranks), match(ranks))


def on_nodes(device_ns: list[int], nodes: list[int], ahead_ns: list[int] | None = None) -> list[RankSummary]:
    events = [exchanged("allreduce", 1_000_000 * step, 1_000_000 * step + 50_000, step=step) for step in range(2)]
    ahead = ahead_ns or [0] * len(nodes)
    return [
        made_rank(row, events, world=len(nodes), device_ns=device_ns[row], node=nodes[row], base_ns=BASE + ahead[row])
        for row in range(len(nodes))
    ]


def said(section: Section) -> str:
    return " ".join(str(block) for block in section.statements)


def test_a_node_whose_devices_are_slower_is_named() -> None:
    section = section_of(on_nodes([5_000_000] * 4 + [6_000_000] * 2, [0, 0, 1, 1, 2, 2]))
    assert "The devices of node 2 work 20 % longer than those of the median node." in said(section)
    rows = section.tables["nodes"].data.rows()
    assert [(row["node"], row["ranks"]) for row in rows] == [("0", "0 to 1"), ("1", "2 to 3"), ("2", "4 to 5")]


@pytest.mark.parametrize("nodes", [[0, 0], [-1, -1], [0, -1]])
def test_one_node_or_unknown_ones_are_no_table(nodes: list[int]) -> None:
    assert "nodes" not in section_of(on_nodes([5_000_000] * 2, nodes)).tables


def test_clocks_that_are_apart_are_said_to_be() -> None:
    section = section_of(on_nodes([5_000_000] * 2, [0, 1], [0, 7_000_000]))
    assert "The clocks of the hosts are up to 7.00 ms apart; collectives align them to within 0 us." in said(section)
    assert [row["ahead"] for row in section.tables["clocks"].data.rows()] == [0.0, 7_000_000.0]
    near = section_of(on_nodes([5_000_000] * 2, [0, 1], [0, 300_000]))
    assert "clocks" not in near.tables
