"""Profiler faults that a recorder can meet, each turned into one sentence: what is missing, why, what to do.

The numbers are issues of pytorch/pytorch and pytorch/kineto. Faults that a reader finds from the rows alone (overlaps,
negative delays, orphans) belong to `trace.health`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lanewise.capture.file.event_counts import Contents
from lanewise.capture.profiling.profiler import Flags
from lanewise.trace.file.profiler_log import says_dropped
from lanewise.trace.metadata import Fault

__all__ = ["find", "worth_a_retry"]

_Check = Callable[[Contents, Flags, str], "str | None"]


def find(contents: Contents, flags: Flags, messages: Sequence[str], missing: Sequence[str]) -> list[Fault]:
    """Faults of one recording, most important first.

    Args:
        contents: what the exported file holds.
        flags: what was asked for.
        messages: lines that the profiler wrote to standard error.
        missing: flags that this torch does not offer.
    """
    said = "\n".join(messages)
    found = [Fault(code=code, sentence=s) for code, check in _CHECKS.items() if (s := check(contents, flags, said))]
    found += [Fault(code="flag-unavailable", sentence=f"this torch cannot record {name}: left out") for name in missing]
    return found


def worth_a_retry(faults: Sequence[Fault]) -> bool:
    """Whether a second recording in the same process may succeed where this one failed."""
    return any(fault.code in _RETRY for fault in faults)


def _no_device_records(contents: Contents, flags: Flags, said: str) -> str | None:
    if not contents.launches or contents.kernels or contents.copies:
        return None
    if _another_subscriber(contents, flags, said):
        return None
    return (
        f"{contents.launches} launches and no device record: CUPTI gave nothing back "
        "(pytorch #192021, #75504; kineto #996); device times are unknown, record again in a fresh process"
    )


def _another_subscriber(contents: Contents, flags: Flags, said: str) -> str | None:
    if "MULTIPLE_SUBSCRIBERS" not in said and "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" not in said:
        return None
    if "INSUFFICIENT_PRIVILEGES" in said:
        return (
            "the driver refuses profiling to this user (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES): ask for "
            "NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        )
    if contents.kernels or contents.copies:
        # As beside a collector of ours, which lends the device: who subscribed matters to the calls, not to the records.
        return None
    return (
        "another tool holds CUPTI (Nsight, Proton, DCGM profiling or a second profiler; pytorch #117935): "
        "no device records; stop it and record again"
    )


def _device_records_lost(contents: Contents, flags: Flags, said: str) -> str | None:
    # A graph launch makes many kernels; without one, fewer kernels than launches means that records are lost.
    lost = contents.launches - contents.kernels
    if not contents.kernels or contents.graph_launches or lost <= max(2, 0.02 * contents.launches):
        return None
    return f"{lost} of {contents.launches} launches have no device record (pytorch #192021): device totals are too low"


def _dropped(contents: Contents, flags: Flags, said: str) -> str | None:
    if not contents.dropped and not any(says_dropped(line) for line in said.splitlines()):
        return None
    return "the profiler reports dropped or out-of-range device records: record fewer steps"


def _no_stacks(contents: Contents, flags: Flags, said: str) -> str | None:
    if not flags.stacks or contents.frames:
        return None
    return "stacks were asked for and this torch recorded none (pytorch #136587): source lines are unknown"


def _compiled_inside(contents: Contents, flags: Flags, said: str) -> str | None:
    if not contents.compilations:
        return None
    return f"{contents.compilations} compilation rows fall inside the recording: raise --skip, or shapes keep changing"


def _nothing(contents: Contents, flags: Flags, said: str) -> str | None:
    if contents.operators or contents.launches or contents.kernels:
        return None
    return "no operator ran on this thread while recording: the work is elsewhere (try --all-threads or --step-on)"


_CHECKS: dict[str, _Check] = {
    "another-subscriber": _another_subscriber,
    "no-device-records": _no_device_records,
    "device-records-lost": _device_records_lost,
    "records-dropped": _dropped,
    "nothing-recorded": _nothing,
    "no-stacks": _no_stacks,
    "compiled-inside": _compiled_inside,
}

_RETRY = {"no-device-records", "device-records-lost"}
