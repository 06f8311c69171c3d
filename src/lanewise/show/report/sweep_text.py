"""A sweep in a terminal: where the regime changes, as measured and as predicted, and a row for each value."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import format_quantity
from lanewise.report.swept import Crossover, Sweep, SweepPoint
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.safe_text import clean

__all__ = ["render_sweep"]

_ENOUGH = 0.9
_SCATTERED = 0.15


def render_sweep(sweep: Sweep) -> RenderableType:
    """The sweep as a rich renderable."""
    notes = [clean(sweep.note, 300)] if sweep.note else []
    if sweep.timed_share is not None and sweep.timed_share < _ENOUGH:
        share = format_quantity("share", sweep.timed_share)
        notes.append(f"Only {share} of the operators' time is known of how it grows: the prediction is that uncertain.")
    if sweep.measured is not None and sweep.measured.scatter > _SCATTERED:
        share = format_quantity("share", sweep.measured.scatter)
        notes.append(
            f"The steps are {share} off fixed costs and work on average: measure on an idle machine, or more values."
        )
    paces = [one.slower for one in sweep.points if one.step_us is not None]
    if paces and max(paces) / min(paces) > 1 + _SCATTERED:
        first = f"{clean(sweep.name)}={clean(sweep.points[0].value)}"
        notes.append(
            f"The host was {min(paces):.1f} to {max(paces):.1f} times as slow as for {first}, as others use it: that is "
            "taken off where the regime changes, not in the table."
        )
    notes += [
        f"{clean(sweep.name)}={clean(one.value)}: nothing was recorded: {clean(one.failed, 200)}"
        for one in sweep.points
        if one.failed
    ]
    return Group(
        Text(clean(f"{sweep.program} over {sweep.name}", 90), style="bold"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in _sentences(sweep)),
        Text(),
        Padding(table_renderable(_table(sweep)), (0, 0, 0, 2)),
        *(Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in notes),
    )


def _sentences(sweep: Sweep) -> list[str]:
    measured, predicted = sweep.measured, sweep.predicted
    if measured is None:
        return ["Where the regime changes cannot be told from these values."]
    lines = [_said(sweep, measured)]
    name, first = clean(sweep.name), clean(sweep.points[0].value)
    if predicted is None or sweep.timed_share is None:
        return lines
    if predicted.at is None or measured.at is None:
        lines.append(f"Predicted from the recording at {name}={first} alone: {_where(sweep, predicted)}.")
    else:
        factor = predicted.at / measured.at
        lines.append(
            f"Predicted from the recording at {name}={first} alone: {name}={predicted.at:g} ({factor:.2f} of the measured)."
        )
    return lines


def _said(sweep: Sweep, crossover: Crossover) -> str:
    fixed = format_quantity("time", crossover.fixed_us * 1e3)
    host = sweep.device != "cpu"
    cost = "The host needs" if host else "Fixed costs take"
    grows = "the device needs longer than that" if host else "the work of the step takes longer than that"
    if crossover.where == "none":
        return (
            f"{cost} {fixed} per step, and hardly anything grows with {clean(sweep.name)}: a larger one is free here."
        )
    if crossover.where == "below":
        return f"With every value here {'the device' if host else 'the work'} takes most of the step."
    at = "" if crossover.at is None else f"{clean(sweep.name)}={crossover.at:g}"
    if crossover.where == "beyond":
        about = f", probably at about {at}" if at else ""
        return f"{cost} {fixed} per step and most of it with every value here; the change lies beyond them{about}."
    return f"{cost} {fixed} per step whatever the {clean(sweep.name)}; from {at} on {grows}."


def _where(sweep: Sweep, crossover: Crossover) -> str:
    if crossover.where == "within" and crossover.at is not None:
        return f"it changes at {clean(sweep.name)}={crossover.at:g}"
    about = "" if crossover.at is None else f", at about {crossover.at:g}"
    where = {"below": "it changes below these values", "none": "hardly anything grows"}
    return where.get(crossover.where, f"it changes beyond these values{about}")


def _table(sweep: Sweep) -> TableBlock:
    columns = [
        TableColumn("value", "text", clean(sweep.name)),
        TableColumn("step", "time", "step"),
        TableColumn("each", "time", "per item"),
        TableColumn("regime", "text", "bound by" if sweep.device == "cpu" else "regime"),
        TableColumn("predicted", "time", "predicted step"),
        TableColumn("off", "text", "off by"),
        TableColumn("predicted_regime", "text", "predicted"),
    ]
    rows = [_row(point) for point in sweep.points]
    if all(point.predicted_us is None for point in sweep.points):
        columns = [column for column in columns if column.key not in ("predicted", "off", "predicted_regime")]
    if any(row["each"] is None for row in rows if row["step"] is not None):
        columns = [column for column in columns if column.key != "each"]
    return TableBlock("Each value", columns, rows)


def _row(point: SweepPoint) -> dict[str, object]:
    step, predicted = point.step_us, point.predicted_us
    number = float(point.value) if point.value.replace(".", "", 1).isdigit() else 0.0
    return {
        "value": point.value,
        "step": None if step is None else step * 1e3,
        "each": None if step is None or not number else step * 1e3 / number,
        "regime": point.regime or "–",
        "predicted": None if predicted is None else predicted * 1e3,
        "off": f"{predicted / step - 1:+.0%}" if step and predicted else "–",
        "predicted_regime": point.predicted_regime or "–",
    }
