"""Frames and threads of ours are left out of what is recorded."""

from __future__ import annotations

import json
from typing import Any

from lanewise.capture.own_frames import OwnFrames


def frame(name: str, number: int, parent: int | None, thread: int = 1) -> dict[str, Any]:
    args = {"Python parent id": parent, "Python id": number, "Ev Idx": number}
    return {
        "ph": "X",
        "cat": "python_function",
        "name": name,
        "pid": 7,
        "tid": thread,
        "ts": 1.5,
        "dur": 2,
        "args": args,
    }


def laid_out(event: dict[str, Any]) -> str:
    """As torch 2.13 does."""
    head = ",\n".join(f'    "{key}": {json.dumps(value)}' for key, value in event.items() if key != "args")
    args = ", ".join(f'"{key}": {json.dumps(value)}' for key, value in event["args"].items())
    return f'  {{\n{head}\n    ,\n    "args": {{\n      {args}\n    }}\n  }},\n'


def names(events: list[dict[str, Any]], threads: set[int] = set()) -> list[str]:  # noqa: B006
    left = OwnFrames(threads).without("".join(map(laid_out, events)).encode()).decode()
    return [event["name"] for event in json.loads(f"[{left.rstrip().removesuffix(',')}]")]


def test_our_frames_go_with_what_they_call() -> None:
    events = [
        frame("train.py(3): train", 1, None),
        frame("/usr/lib/lanewise/capture/window.py(161): boundary", 2, 1),
        frame("<built-in function perf_counter_ns>", 3, 2),
        frame("torch/nn/modules/module.py(1779): _call_impl", 4, 1),
    ]
    assert names(events) == ["train.py(3): train", "torch/nn/modules/module.py(1779): _call_impl"]


def test_the_programs_own_frames_inside_of_a_wrapper_of_ours_stay() -> None:
    events = [
        frame("lanewise/capture/boundaries/functions.py(150): stepping", 1, None),
        frame('train.py(9): step "1" {', 2, 1),
    ]
    assert names(events) == ['train.py(9): step "1" {']


def test_our_threads_go_and_programs_of_our_name_stay() -> None:
    events = [
        frame("threading.py(1002): _bootstrap", 1, None, thread=9),
        frame("mine/lanewise_record/window.py(1): boundary", 2, None),
        frame("capture/window.py(1): boundary", 3, None),
        {**frame("lanewise/capture/window.py(1): boundary", 4, None), "cat": "user_annotation"},
    ]
    assert names(events, {9}) == [event["name"] for event in events[1:]]
