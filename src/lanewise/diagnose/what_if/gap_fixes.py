"""What to do about a gap in which a host thread starts nothing, by the function that the time goes into."""

from __future__ import annotations

import re

from lanewise.measure.regime.python_functions import function_label

__all__ = ["fix_of_gap", "is_needed"]

_SLEEPS = re.compile(r"\bsleep\b")
_COLLECTS = re.compile(r"\bgc\b.*\bcollect\b|<built-in function collect>")
# Modules and built-in methods in which a thread waits for another thread or process, or for the network.
_WAITS = re.compile(
    r"(?:^|[/\\])(?:queue|queues|threading|connection|socket|ssl|selectors|synchronize|popen_\w+|shm_broadcast|process)"
    r"\.py\(\d+\): |(?:^|[/\\])(?:asyncio|zmq|ray|grpc|concurrent[/\\]futures)[/\\].*\.py\(\d+\): |"
    r"<(?:built-in )?method '?(?:acquire|recv\w*|poll|select|wait|accept|epoll)\b|<built-in function (?:select|poll)>"
)
_WRITES = re.compile(
    r"(?:^|[/\\])(?:logging|json|tqdm|wandb|mlflow|tensorboard\w*|csv|pickle)[/\\.].*\(\d+\): |"
    r"serialization\.py\(\d+\): _?(?:legacy_)?save|<built-in function print>|method '?(?:write|flush|fsync|dump)\b"
)


def is_needed(function: str) -> bool:
    """Whether what fills a gap before a copy to the device makes what is copied: it is, unless it is known to be something
    else. Name of the frame, "" for none."""
    return not any(known.search(function) for known in (_SLEEPS, _COLLECTS, _WRITES))


def fix_of_gap(function: str, *, stacks: bool, called: str = "", feeds: bool = False) -> str:
    """What to do first.

    Args:
        function: name of the frame that fills the gap, "" for none. stacks: whether Python frames were recorded.
        called: what to call it; after its name by default.
        feeds: whether it makes what is copied to the device behind it.
    """
    if feeds:
        return (
            f"make what is copied to the device {'in ' + (called or function_label(function)) + ' ' if function else ''}"
            "ahead of time: in a thread, or in worker processes as `DataLoader(num_workers=...)` has them."
        )
    if not function and not stacks:
        return "record with stacks (`lanewise run --stacks`, or `with_stack=True`): they name what runs in the gap."
    if not function:
        return (
            "find out with `lanewise tree --metric host` which functions run in the gap; do once what need not be done in "
            "every step, and let worker processes do the rest ahead of time."
        )
    if _SLEEPS.search(function):
        return "take the sleep out of the loop, or wait for what it stands for (an event, a condition)."
    if _COLLECTS.search(function):
        return "run `gc.freeze()` after start-up, and collect between steps where it does not matter."
    if _WAITS.search(function):
        return (
            "find out what this waits for: record the other thread (`--all-threads`) or process (`lanewise.record()`) as "
            "well, and let it work ahead, so that its answer is there when it is asked for."
        )
    if _WRITES.search(function):
        return "write less often, or let another thread or process write."
    return (
        f"take {called or function_label(function)} out of the loop: do it once, ahead of time in worker processes, while "
        "the device works, or on the device."
    )
