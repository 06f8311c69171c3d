"""A dispatch chain as a table and as JSON."""

from __future__ import annotations

import msgspec

from lanewise.diagnose.summary import chain_rows
from lanewise.measure.facts import Facts
from lanewise.measure.launch.dispatch_chain import Chain
from lanewise.report.model import TableBlock, TableColumn

__all__ = ["chain_json", "chain_table"]

SCHEMA = "lanewise.chain/1"


def chain_table(facts: Facts, chain: Chain, limit: int) -> TableBlock:
    """The first `limit` links as a table, indented by nesting."""
    title = f"Dispatch chain of step #{chain.number}" if facts.trace.steps.recorded else "Dispatch chain"
    columns = [
        TableColumn("what", "text", "what"),
        TableColumn("start", "time", "start"),
        TableColumn("gap", "time", "gap before"),
        TableColumn("duration", "time", "time"),
        TableColumn("delay", "time", "launch to start"),
    ]
    rows = chain_rows(facts, chain.links[:limit])
    return TableBlock(title, columns, rows, chain.omitted + len(chain.links) - len(rows))


def chain_json(facts: Facts, chain: Chain) -> str:
    """The chain as data; times in ns from the start of the step."""
    lanes = facts.trace["lanes"]
    links = [
        {
            "depth": link.depth,
            "kind": link.kind,
            "name": link.name,
            "role": link.role,
            "start_ns": link.start_ns,
            "gap_ns": link.gap_ns,
            "duration_ns": link.duration_ns,
            "delay_ns": link.delay_ns if link.delay_ns >= 0 else None,
            "lane": str(lanes["label"][link.lane]),
        }
        for link in chain.links
    ]
    data = {
        "schema": SCHEMA,
        "source": facts.trace.reading.source,
        "step": chain.number if facts.trace.steps.recorded else None,
        "links": links,
        "omitted": chain.omitted,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
