"""MEA112."""

from __future__ import annotations

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.diagnose.select import counted
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, WHAT, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time


@rule(
    "MEA112",
    "trace-repaired",
    kind="validity",
    title="{repaired} of the file repaired and {lost} lost; everything else was read as written.",
)
def trace_repaired(facts: Facts) -> Outcome:
    """The file was damaged: rows were repaired, lost, or cut off at its end.

    Profilers write names without escaping them, and a process that dies writes half a file. What has one safe reading
    is repaired, the rest is left out, and all of it is counted. More than 1 % of rows lost makes totals doubtful.

    Costs: nothing in the program.

    Fix: record again, and let the program end normally so that the file is finished. Report the malformed row to the
    profiler that wrote it.

    Verify: the file is read without a repair.

    Silent: for events that end slightly later than their parent, which every recording with stacks has.

    Source: pytorch/pytorch#113001, pytorch/pytorch#98432, pytorch/kineto#105, mlcommons/chakra#192.
    """
    reading = facts.trace.reading
    repaired = sum(tally.count for tally in reading.repaired.values())
    lost = reading.rows_lost
    if not repaired and not reading.lost and not reading.truncated:
        return Clear("read without a repair")
    rows = [
        {"what": what, "reason": reason, "count": tally.count, "sample": tally.sample[:80]}
        for what, tallies in (("lost", reading.lost), ("repaired", reading.repaired))
        for reason, tally in sorted(tallies.items(), key=lambda item: -item[1].count)
    ]
    values = {
        "repaired": counted(repaired, "row", "rows"),
        "lost": counted(lost, "row", "rows"),
        "share": share(lost / max(1, reading.rows + lost)),
        "end": time(facts.health.host_end),
    }
    title = None
    if reading.truncated:
        title = (
            "The file is cut off after {end} of the recording: the last step may be incomplete, and {lost} are lost."
        )
    elif lost > 0.01 * (reading.rows + lost):
        title = "{lost} of the file ({share}) could not be read: totals are too low."
    elif not lost and not repaired:
        title = "Part of the file's metadata could not be read; its rows are complete."
    return Found(
        values=values,
        title=title,
        evidence=[
            table(
                "What was repaired or lost",
                [
                    headed(WHAT, ""),
                    TableColumn("reason", "text", "reason"),
                    headed(COUNT, "rows"),
                    TableColumn("sample", "text", "sample"),
                ],
                rows,
                limit=12,
            )
        ]
        if rows
        else [],
    )
