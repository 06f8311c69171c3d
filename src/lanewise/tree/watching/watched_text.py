"""How a tree was collected, as lines of text: what was watched, what it cost, what is missing."""

from __future__ import annotations

from lanewise.tree.slowing.slowdown import Slowdown
from lanewise.tree.watching.watched import Watched

__all__ = ["cost_lines", "loss_lines", "slowdown_line", "watched_lines"]

_LOSSES = {
    "truncated": "operators beyond the limit of contexts",
    "depth_cut": "frames left out of deep stacks",
    "stack_overflow": "operators nested too deeply",
    "unlinked_backward": "backward functions without their forward operator",
    "scopes_elsewhere": "scopes closed on another thread",
    "scopes_out_of_order": "scopes closed out of order",
    "threads_refused": "threads beyond the limit",
    "names_refused": "names beyond the limit",
    "frames_failed": "contexts without frames",
    "errors": "internal errors",
    "windows_discarded": "windows discarded as unsound",
    "records_unmatched": "device work without its launch",
    "graphs_before": "device works of graphs captured earlier, placed where they were launched",
    "records_unfinished": "device records without times",
    "kernels_missing": "kernels without a record, as when another profiler takes the device over",
    "records_dropped": "device records that the driver dropped",
}

_NOTICED = 0.02
"""Share of a step from which noticing it is worth a word."""

_NO_DEVICE = ("not collected: no device was used", "not collected: this torch is a CPU build")
"""Nothing to tell of."""


def watched_lines(watched: Watched) -> list[str]:
    """A line on what was watched, one on what it cost, one for each slower place, each loss and each check that failed."""
    return [
        _what(watched),
        *_energy_lines(watched),
        *cost_lines(watched),
        *map(slowdown_line, watched.slowdowns),
        *loss_lines(watched),
    ]


def cost_lines(watched: Watched) -> list[str]:
    """What watching cost, as far as it was measured."""
    if watched.distortion is None:
        if not watched.callback_ns:
            return []
        return [
            f"folding one operator took {watched.callback_ns:.0f} ns at the start; what a step costs was not measured"
        ]
    found = watched.distortion
    other = "a step of the program alone" if found.notice_ns else "another"
    ratio = f"{found.ratio:.3f}x the time of {other}"
    interval = f"95 % interval {found.low:.3f} to {found.high:.3f}, {found.on} and {found.off} steps of this run"
    lines: list[str] = []
    if found.noisy:
        lines.append(f"steps differ too much to tell what watching costs ({interval})")
    elif not found.telling:
        lines.append(f"a watched step takes {found.low:.2f}x to {found.high:.2f}x the time of {other} ({interval})")
    else:
        lines.append(f"a watched step takes {ratio} ({interval})")
    if found.step_ns and found.notice_ns > _NOTICED * found.step_ns:
        alone = (found.step_ns + found.notice_ns) / found.step_ns
        lines.append(
            f"{found.notice_ns / 1000:.1f} us of every step, watched or not, go to noticing that it began:"
            f" {alone:.2f}x a step of {found.step_ns / 1000:.1f} us"
        )
    return lines


def loss_lines(watched: Watched) -> list[str]:
    """One line for each loss and each check that failed, and why it was collected in another way, if it was."""
    lines = [f"lost: {number:,} {_LOSSES.get(name, name)}" for name, number in sorted(watched.losses.items())]
    lines += [text for text in watched.checks.values() if text]
    if watched.device.startswith("not collected: ") and watched.device not in _NO_DEVICE:
        lines.append(f"device work was {watched.device}")
    if watched.reason:
        lines.append(f"not the native collector: {watched.reason}")
    return lines


def slowdown_line(found: Slowdown) -> str:
    """What became slower, by how much and since when, or than what."""
    what = f"{found.what} of its own" if found.alone else found.what
    more = f"+{found.after / found.before - 1:.0%}" if found.before > 0 else "new"
    if found.what == "calls":
        times = f"entered {found.after:,.4g} times per step instead of {found.before:,.4g} ({more})"
    else:
        times = f"{_time(found.after)} of {what} per step instead of {_time(found.before)} ({more})"
    since = f"than in {found.against}" if found.against else f"since step {found.since:,}"
    line = f"slower {since}: {' > '.join(found.path)}: {times}"
    if found.calls_before and abs(found.calls_after / found.calls_before - 1) > _CALLS_DIFFER:
        line += f", entered {found.calls_after:,.4g} times instead of {found.calls_before:,.4g}"
    return line + (f", at {found.file}:{found.line}" if found.file else "")


_CALLS_DIFFER = 0.02


def _time(ns: float) -> str:
    return f"{ns / 1e6:,.2f} ms" if ns >= 1e6 else f"{ns / 1e3:,.1f} us"


def _what(watched: Watched) -> str:
    way = "watched" if watched.way == "native" else "watched through short profiler windows"
    parts = [f"{way} for {watched.seconds:,.1f} s"]
    if watched.steps_seen:
        parts.append(f"{watched.steps_watched:,} of {watched.steps_seen:,} steps")
    if watched.callbacks:
        parts.append(f"{watched.callbacks:,} operators and scopes")
    if watched.budget:
        parts.append(f"{watched.steps} of {watched.every:,} at the end, for a budget of {100 * watched.budget:g} %")
    line = ", ".join(parts)
    if watched.sampling_error >= 0:
        line += f"; shares are within {100 * watched.sampling_error:.1f} points of those of all steps (95 %)"
    elif watched.budget:
        line += "; too few windows to tell how far shares are from those of all steps"
    return line


def _energy_lines(watched: Watched) -> list[str]:
    if not watched.joules or not watched.joule_steps or not watched.joule_seconds:
        return []
    per_step, watts = watched.joules / watched.joule_steps, watched.joules / watched.joule_seconds
    return [f"the device drew {per_step:.3g} J per step, {watts:,.0f} W on average, by its own counter"]
