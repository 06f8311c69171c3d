"""The tables of a comparison, drawn by every output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise.compare.model import Change, Difference, WaterfallItem
from lanewise.compare.outcome.descriptions import change_label, plural
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import format_quantity

__all__ = [
    "contexts_table",
    "counts_table",
    "device_table",
    "environment_table",
    "findings_table",
    "host_table",
    "signed",
    "waterfall_table",
]

_PREFIX = {
    "same": "",
    "launch": "different grid: ",
    "name": "",
    "epilogue": "different epilogue: ",
    "kernel": "different kernel: ",
    "size": "different size: ",
    "moved": "different order: ",
    "fused": "fused: ",
    "split": "split: ",
    "absorbed": "into the epilogue: ",
    "graph input": "graph input: ",
    "new": "new: ",
    "gone": "gone: ",
}


def signed(ns: float) -> str:
    """A difference of times with its sign; 0 without one."""
    if ns == 0:
        return "0 us"
    return f"{'+' if ns > 0 else '-'}{format_quantity('time', abs(ns))}"


def device_table(difference: Difference, limit: int | None = None) -> TableBlock:
    """Changes of device work (of operators without a device): those that differ first, the rest as one line."""
    shown = [change for change in difference.device if not _plain(change)]
    same = [change for change in difference.device if _plain(change)]
    rows: list[dict[str, Any]] = [_row(change) for change in shown[:limit]]
    if same:
        rows.append(
            {
                "what": f"{plural(sum(c.times for c in same), 'op')} as before",
                "a": sum(c.a_ns for c in same),
                "b": sum(c.b_ns for c in same),
                "delta": signed(sum(c.delta_ns for c in same)),
                "verdict": _together(same),
            }
        )
    operators = all(op.kind == "operator" for c in difference.device for op in (*c.a, *c.b))
    columns = [
        TableColumn("what", "text", "operators per step" if operators else "device work per step"),
        TableColumn("a", "time", difference.a),
        TableColumn("b", "time", difference.b),
        TableColumn("delta", "text", "difference"),
        TableColumn("verdict", "text", "verdict"),
    ]
    title = "Operators" if operators else "Device work"
    return TableBlock(title, columns, rows, max(0, len(shown) - limit) if limit is not None else 0)


def counts_table(difference: Difference) -> TableBlock:
    """Quantities per step."""
    rows = [
        {
            "what": c.label,
            "a": format_quantity(c.type, c.a),
            "b": format_quantity(c.type, c.b),
            "delta": _count_delta(c.type, c.b - c.a),
        }
        for c in difference.counts
    ]
    columns = [
        TableColumn("what", "text", "per step"),
        TableColumn("a", "text", difference.a),
        TableColumn("b", "text", difference.b),
        TableColumn("delta", "text", "difference"),
    ]
    return TableBlock("Per step", columns, rows)


def waterfall_table(difference: Difference) -> TableBlock:
    """The way from one step time to the other."""
    water = difference.waterfall
    rows: list[dict[str, Any]] = [{"what": f"step of {difference.a}", "ns": format_quantity("time", water.a_ns)}]
    for item in water.items:
        rows.append({"what": f"  {item.label}", "ns": signed(item.ns)})
        rows += [{"what": f"      {part.label}", "ns": signed(part.ns)} for part in _worth(item)]
    rows.append({"what": f"step of {difference.b}", "ns": format_quantity("time", water.b_ns)})
    columns = [TableColumn("what", "text", "where the time went"), TableColumn("ns", "text", "per step")]
    return TableBlock("From one step time to the other", columns, rows)


def host_table(difference: Difference, limit: int = 8) -> TableBlock:
    """Host time by name."""
    rows = [
        {
            "name": c.name,
            "group": c.group,
            "a_count": c.a_count,
            "b_count": c.b_count,
            "a": c.a_ns,
            "b": c.b_ns,
            "delta": signed(c.b_ns - c.a_ns),
        }
        for c in difference.host
        if c.a_ns != c.b_ns
    ]
    columns = [
        TableColumn("name", "text", "host self time"),
        TableColumn("group", "text", "kind"),
        TableColumn("a_count", "count", f"calls {difference.a}"),
        TableColumn("b_count", "count", f"calls {difference.b}"),
        TableColumn("a", "time", difference.a),
        TableColumn("b", "time", difference.b),
        TableColumn("delta", "text", "difference"),
    ]
    return TableBlock("Host", columns, rows[:limit], max(0, len(rows) - limit))


def contexts_table(difference: Difference, limit: int = 12) -> TableBlock:
    """Places of the program whose cost differs, indented by nesting."""
    base = min((c.depth for c in difference.contexts), default=0)
    rows: list[dict[str, Any]] = []
    for c in difference.contexts[:limit]:
        label = f"{c.was} → {c.name}" if c.was else c.name
        word = "" if c.status in {"same", "renamed"} else f"{c.status}: "
        rows.append(
            {
                "what": "  " * min(c.depth - base, 8) + word + label,
                "a": c.a_device_ns,
                "b": c.b_device_ns,
                "device": signed(c.b_device_ns - c.a_device_ns),
                "host": signed(c.b_host_ns - c.a_host_ns),
            }
        )
    columns = [
        TableColumn("what", "text", "place"),
        TableColumn("a", "time", f"device {difference.a}"),
        TableColumn("b", "time", f"device {difference.b}"),
        TableColumn("device", "text", "device"),
        TableColumn("host", "text", "host"),
    ]
    return TableBlock("Places", columns, rows, max(0, len(difference.contexts) - limit))


def findings_table(difference: Difference) -> TableBlock:
    """Findings of both sides."""
    rows = [
        {"status": f.status, "code": f.code, "name": f.name, "title": f.b_title or f.a_title}
        for f in difference.findings
    ]
    columns = [
        TableColumn("status", "text", "status"),
        TableColumn("code", "text", "code"),
        TableColumn("name", "text", "name"),
        TableColumn("title", "text", "what it says"),
    ]
    return TableBlock("Findings", columns, rows)


def environment_table(difference: Difference) -> TableBlock:
    """What differs around the program."""
    rows = [{"key": e.key, "a": e.a, "b": e.b} for e in difference.environment]
    columns = [
        TableColumn("key", "text", "environment"),
        TableColumn("a", "text", difference.a),
        TableColumn("b", "text", difference.b),
    ]
    return TableBlock("Environment", columns, rows)


def _plain(change: Change) -> bool:
    """Whether nothing about a change needs a line of its own."""
    return change.how in {"same", "name"} and (change.ratio is None or change.ratio.verdict not in {"faster", "slower"})


def _row(change: Change) -> dict[str, Any]:
    return {
        "what": _PREFIX[change.how] + change_label(change) + ("" if change.sure else ", by order"),
        "a": change.a_ns if change.a else None,
        "b": change.b_ns if change.b else None,
        "delta": signed(change.delta_ns),
        "verdict": "" if change.ratio is None else change.ratio.verdict,
    }


def _together(changes: Sequence[Change]) -> str:
    words = {change.ratio.verdict for change in changes if change.ratio is not None}
    return words.pop() if len(words) == 1 else "no difference found" if words else ""


def _count_delta(type_: str, delta: float) -> str:
    if type_ == "time":
        return signed(delta)
    if delta == 0:
        return "0"
    text = f"{abs(delta) * 100:.1f} points" if type_ == "share" else format_quantity(type_, abs(delta))
    return f"{'+' if delta > 0 else '-'}{text}"


def _worth(item: WaterfallItem) -> list[WaterfallItem]:
    """Parts that are worth a line; none where there is only the one that says the same again."""
    return item.parts if len(item.parts) > 1 else []
