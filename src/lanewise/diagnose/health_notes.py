"""Health as sentences: what can be trusted, shown before any number."""

from __future__ import annotations

from lanewise.diagnose.settings import Settings
from lanewise.measure.facts import Facts
from lanewise.report.model import Level, Note
from lanewise.report.quantity import format_quantity
from lanewise.trace.health import Health
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind

__all__ = ["health_notes", "settings_notes"]


def health_notes(facts: Facts) -> list[Note]:
    """Notes in the order they are shown: worst first, and what is fine last."""
    notes = [*_reading(facts), *_device(facts), *_order(facts), *_recorded(facts), *_capture(facts)]
    rank: dict[Level, int] = {"bad": 0, "warn": 1, "info": 2, "ok": 3}
    return sorted(notes, key=lambda note: rank[note.level])


def settings_notes(settings: Settings) -> list[Note]:
    """What the settings of a project change in the report; nothing where there are none."""
    if not settings.source:
        return []
    parts = [f"{key} {', '.join(codes)}" for key, codes in _chosen(settings) if codes]
    parts += [f"{c}.{name} = {v}" for c, values in settings.thresholds.items() for name, v in values.items()]
    return [Note("info", "settings", f"{settings.source}: {'; '.join(parts)}")] if parts else []


def _chosen(settings: Settings) -> list[tuple[str, tuple[str, ...]]]:
    return [("select", settings.select), ("ignore", settings.ignore)]


def _count(value: int) -> str:
    return f"{value:,}"


def _reading(facts: Facts) -> list[Note]:
    reading = facts.trace.reading
    notes: list[Note] = []
    if reading.truncated:
        end = format_quantity("time", facts.health.host_end)
        notes.append(Note("bad", "file", f"the file is cut off; everything complete up to {end} was kept"))
    for reason, tally in reading.lost.items():
        sample = f', for example "{tally.sample}"' if tally.sample else ""
        notes.append(Note("bad", "file", f"{_count(tally.count)} lost: {reason}{sample}"))
    for reason, tally in reading.repaired.items():
        sample = f', for example "{tally.sample}"' if tally.sample else ""
        notes.append(Note("warn", "file", f"{_count(tally.count)} repaired: {reason}{sample}"))
    if reading.unknown_categories:
        names = ", ".join(f"{name} ({_count(n)})" for name, n in list(reading.unknown_categories.items())[:5])
        notes.append(Note("info", "file", f"categories kept but not analysed: {names}"))
    return notes


def _device(facts: Facts) -> list[Note]:
    return _no_device_work(facts) if facts.device_records != "some" else _device_work(facts.health)


def _no_device_work(facts: Facts) -> list[Note]:
    if len(facts.trace) == 0:
        return [Note("bad", "device", "the trace holds no rows at all")]
    what = {
        "lost": f"no device work, though {_count(facts.health.launches)} calls launched some",
        "not recorded": "no device work, though the program used a device",
        "memory only": "no device work: nothing was launched, only memory asked for",
        "cut off": "no device work, which may be in the part that is cut off",
    }.get(facts.device_records, "no device work: everything ran on the CPU")
    return [Note("info" if facts.on_cpu else "warn", "device", f"the trace holds {what}")]


def _device_work(health: Health) -> list[Note]:
    notes: list[Note] = []
    missing = health.launches_without_work - health.unlinked
    level: Level = "bad" if health.unmatched_share > 0.02 else "info"
    if health.unlinked:
        notes.append(
            Note(
                level,
                "device",
                f"{_count(health.unlinked)} of {_count(health.launches)} launches and as many device ops are there, but "
                "nothing in the file says which belongs to which; the work counts for the step that was running",
            )
        )
    if missing:
        notes.append(
            Note(level, "device", f"{_count(missing)} of {_count(health.launches)} launches have no device record")
        )
    if orphans := health.other_orphans - health.unlinked:
        notes.append(
            Note(
                level,
                "device",
                f"{_count(orphans)} device ops have no launch in the trace; they "
                "are kept and attributed to the step that was running",
            )
        )
    if health.head_orphans:
        notes.append(
            Note(
                "warn",
                "device",
                f"{_count(health.head_orphans)} device ops were launched before the recording "
                "began; they belong to no recorded step and are left out of its totals",
            )
        )
    notes += _corrected(health)
    if health.impossible_overlaps:
        notes.append(
            Note(
                "warn",
                "device",
                f"{_count(health.impossible_overlaps)} kernels overlap the next one of their stream by "
                "more than 20 us, which is impossible: the overlap is counted once",
            )
        )
    if health.clock_errors:
        notes.append(
            Note(
                "info",
                "device",
                f"{_count(health.clock_errors)} device ops start before their launch: host and "
                "device clocks disagree slightly",
            )
        )
    if health.graph_nodes:
        share = format_quantity("share", health.graph_time_share)
        notes.append(
            Note(
                "info",
                "device",
                f"{_count(health.graph_launches)} graph launches replay "
                f"{_count(health.graph_nodes)} device ops, {share} of device time; a replay "
                "names no operators",
            )
        )
    if health.unattributed_time_share > 0.01 and not health.graph_nodes:
        share = format_quantity("share", health.unattributed_time_share)
        notes.append(Note("info", "device", f"{share} of device time has no operator"))
    if health.unknown_kernels:
        notes.append(
            Note("warn", "device", f"{_count(health.unknown_kernels)} kernels are named 'unknown' by the profiler")
        )
    if health.linked and not health.launches_without_work and not health.other_orphans:
        notes.append(
            Note(
                "ok",
                "device",
                f"every recorded launch has its device work "
                f"({_count(health.linked)} of {_count(health.device_ops)} device ops linked)",
            )
        )
    return notes


def _corrected(health: Health) -> list[Note]:
    """Times that cannot be and were put right."""
    notes: list[Note] = []
    if health.cut:
        notes.append(
            Note(
                "warn",
                "device",
                f"{_count(health.cut)} device ops last beyond the end of the next one of their stream, which "
                f"cannot be; they are cut, and {format_quantity('share', health.cut_share)} of the device time with them",
            )
        )
    if health.left_open:
        notes.append(
            Note(
                "info",
                "order",
                f"{_count(health.left_open)} Python {'call' if health.left_open == 1 else 'calls'} left open when "
                "recording ended, though the program had left them: they end where the next one begins",
            )
        )
    if health.clock_offset:
        how = "late" if health.clock_offset > 0 else "early"
        proof = "waits return before their work ends" if health.clock_offset > 0 else "work begins before its launch"
        notes.append(
            Note(
                "warn",
                "device",
                f"the device's clock is {format_quantity('time', abs(health.clock_offset))} {how} ({proof}): its times are "
                "moved by that; what they say of single launches is an estimate",
            )
        )
    return notes


def _order(facts: Facts) -> list[Note]:
    health = facts.health
    notes: list[Note] = []
    if facts.host.profiler_sync >= 0:
        took = format_quantity("time", int(facts.trace.duration[facts.host.profiler_sync]))
        notes.append(
            Note(
                "info",
                "profiler",
                f"the last synchronise ({took}) belongs to the profiler and is left out of "
                "host time; idle time is measured from the gaps between device ops",
            )
        )
    for name, (count, total) in health.overhead.items():
        notes.append(
            Note(
                "info",
                "profiler",
                f"{_count(count)} x {name}, {format_quantity('time', total)} in all: the "
                "profiler's or driver's own work",
            )
        )
    notes.extend(Note("warn", "profiler", line) for line in health.log_lines)
    if health.duplicates:
        notes.append(Note("warn", "file", f"{_count(health.duplicates)} device rows are exact duplicates"))
    if health.crossing:
        notes.append(
            Note(
                "info",
                "order",
                f"{_count(health.crossing)} {'event ends' if health.crossing == 1 else 'events end'} later than the event "
                "that contains them; where calls are nested they count as ending with it",
            )
        )
    if health.zero_durations:
        notes.append(Note("info", "order", f"{_count(health.zero_durations)} kernels have no duration"))
    return notes


def _recorded(facts: Facts) -> list[Note]:
    recorded = from_metadata(facts.trace.metadata)
    if recorded is None:
        return []
    notes = [Note("warn", "recording", fault.sentence) for fault in recorded.faults]
    times = recorded.unprofiled
    if times is not None:
        # How much recording cost is MEA105's to say; here is what the step time without it rests on.
        low, high = (format_quantity("time", us * 1e3) for us in (times.p20_us, times.p80_us))
        median = format_quantity("time", times.median_us * 1e3)
        basis = f"{low} to {high} for the middle 60 % of {times.samples:,} samples"
        if times.samples == 1:
            basis = f"one stretch of {times.steps:,} steps between two synchronisations"
        notes.append(Note("info", "recording", f"timed before the profiler started: {median} per step ({basis})"))
    return notes


# What torch notes in the file about how it was asked to record.
_ASKED = {"record_shapes": "shapes", "with_stack": "stacks", "profile_memory": "memory"}


def _undelivered(facts: Facts) -> list[str]:
    """What was asked for when recording and is not in the trace, though operators ran that should have it."""
    if not len(facts.trace.of(Kind.OPERATOR)):
        return []
    recorded = from_metadata(facts.trace.metadata)
    flags = recorded.flags if recorded is not None else {}
    asked = {name for key, name in _ASKED.items() if facts.trace.metadata.get(key) in (1, "1") or flags.get(name)}
    if recorded is not None and any(fault.code == "no-stacks" for fault in recorded.faults):
        asked.discard("stacks")  # said already
    health = facts.health
    there = {"shapes": health.shapes, "stacks": health.stacks, "memory": health.memory}
    return [name for name in there if name in asked and not there[name]]


def _capture(facts: Facts) -> list[Note]:
    health = facts.health
    notes: list[Note] = []
    if absent := _undelivered(facts):
        what = " and ".join(absent)
        notes.append(
            Note("warn", "capture", f"{what}: requested when recording, but the trace holds none: this torch lost them")
        )
    missing = [label for label, there in (("shapes", health.shapes), ("stacks", health.stacks)) if not there]
    if missing and len(facts.trace):
        what = "source lines" if "stacks" in missing else "sizes"
        sentence = f"recorded without {' and '.join(missing)}: findings name operators, not {what}"
        notes.append(Note("info", "capture", sentence))
    return notes
