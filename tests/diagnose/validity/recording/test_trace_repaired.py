from __future__ import annotations

from lanewise.diagnose.explain import explain
from lanewise.trace.reading_losses import Reading
from tests.diagnose.outcomes import cleared, found, title
from tests.support.builder import TraceBuilder


def built(reading: Reading):
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch()
    return b.build(reading=reading)


def test_a_mended_row_is_counted() -> None:
    reading = Reading(rows=1000)
    reading.repair("control character in a name", "aten::\x01mm")
    assert title("MEA112", found("MEA112", built(reading))) == (
        "1 row of the file repaired and 0 rows lost; everything else was read as written."
    )


def test_more_than_one_percent_lost_makes_totals_doubtful() -> None:
    reading = Reading(rows=990)
    reading.lose("unreadable row", "{", 10)
    assert "everything else was read" in title("MEA112", found("MEA112", built(reading)))
    reading.lose("unreadable row", "{", 1)
    assert "totals are too low" in title("MEA112", found("MEA112", built(reading)))


def test_a_file_cut_off_before_any_device_work_is_not_called_a_cpu_run() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    report = explain(b.build(reading=Reading(rows=1000, truncated=True)))
    assert report.verdict.startswith("The file is cut off")
    assert "on the CPU" not in report.verdict + "".join(note.text for note in report.health)


def test_a_truncated_file() -> None:
    reading = Reading(rows=1000, truncated=True)
    assert "cut off" in title("MEA112", found("MEA112", built(reading)))


def test_a_clean_file() -> None:
    assert cleared("MEA112", built(Reading(rows=1000))) == "read without a repair"
