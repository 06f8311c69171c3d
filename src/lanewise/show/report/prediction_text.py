"""A prediction in a terminal: the step now, the step predicted, and a line for each change."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lanewise.report.gain import dollars_text
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.prediction import Applied, Prediction, StepState
from lanewise.report.quantity import format_quantity
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.safe_text import clean

__all__ = ["render_prediction"]

_NEARLY = 0.005
_LABEL = 9


def render_prediction(prediction: Prediction) -> RenderableType:
    """The prediction as a rich renderable."""
    now, then = prediction.now, prediction.predicted
    how = "as measured" if prediction.timed else _between(now)
    parts: list[RenderableType] = [
        Text(clean(prediction.source, 90), style="bold"),
        _line(
            "now",
            f"{_time(now.step_us)} per step without the profiler ({how}); {_time(prediction.recorded_us)} as recorded"
            + _costs(now),
        ),
        _line("", _bound_by(now)),
        _line(
            "predicted",
            f"{_time(then.step_us)} per step ({_between(then)}), {_speed(prediction)}{_costs(then)}",
            style="bold",
        ),
        _line("", _bound_by(then)),
        Text(),
        Padding(table_renderable(_table(prediction.changes)), (0, 0, 0, 2)),
    ]
    for one in prediction.changes:
        note = f" ({clean(one.note, 200)})" if one.note else ""
        parts.append(
            Padding(Text(f"{clean(one.change, 60)}: {clean(one.title, 300)}{note}", style="dim"), (0, 0, 0, 2))
        )
    return Group(*parts)


def _line(label: str, text: str, *, style: str = "") -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=_LABEL)
    grid.add_row(Text(label, style="dim"), Text(text, style=style))
    return Padding(grid, (0, 0, 0, 2))


def _time(us: float) -> str:
    sign = "-" if us < 0 else ""
    return sign + format_quantity("time", abs(us) * 1e3)


def _between(state: StepState) -> str:
    return f"{_time(state.low_us)} to {_time(state.high_us)}"


def _costs(state: StepState) -> str:
    dollars = state.dollars_per_million_steps
    return f"; {dollars_text(dollars)} per million steps" if dollars else ""


def _speed(prediction: Prediction) -> str:
    factor = prediction.speedup
    if abs(factor - 1) < _NEARLY:
        return "as long as now"
    return f"{factor:.2f} times as fast" if factor > 1 else f"{1 / factor:.2f} times as long"


def _bound_by(state: StepState) -> str:
    path = ", ".join(f"{clean(limit.what, 60)} {format_quantity('share', limit.share)}" for limit in state.limits)
    return state.regime + (f"; critical path: {path}" if path else "")


def _table(changes: list[Applied]) -> TableBlock:
    columns = [
        TableColumn("change", "text", "change"),
        TableColumn("alone", "text", "by itself"),
        TableColumn("interval", "text", "range"),
        TableColumn("gain", "text", "after those above"),
        TableColumn("leaves", "text", "leaving"),
    ]
    rows = [
        {
            "change": one.change,
            "alone": ("at most " if one.bound else "") + _time(one.alone_us),
            "interval": f"{_time(one.alone_low_us)} to {_time(one.alone_high_us)}",
            "gain": _time(one.gain_us),
            "leaves": _time(one.leaves_us),
            "saves": dollars_text(one.dollars_per_million_steps),
        }
        for one in changes
    ]
    if any(one.dollars_per_million_steps for one in changes):
        columns.append(TableColumn("saves", "text", "saves per million steps"))
    if len(changes) == 1:
        columns = [column for column in columns if column.key != "gain"]
    return TableBlock("What each change takes off a step", columns, rows)
