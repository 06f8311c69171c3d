"""What to do about a gap fits the function that fills it."""

from __future__ import annotations

import pytest

from lanewise.diagnose.what_if.gap_fixes import fix_of_gap


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("<built-in function sleep>", "take the sleep out"),
        ("<built-in function collect>", "gc.freeze()"),
        ("torch/_dynamo/gc.py(12): collect", "gc.freeze()"),
        ("vllm/distributed/device_communicators/shm_broadcast.py(300): acquire_read", "what this waits for"),
        ("<method 'acquire' of '_thread.lock' objects>", "what this waits for"),
        ("/usr/lib/python3.11/queue.py(154): get", "what this waits for"),
        ("multiprocessing/connection.py(246): recv", "what this waits for"),
        ("<built-in method recv_into of socket>", "what this waits for"),
        ("C:\\Python311\\Lib\\threading.py(295): wait", "what this waits for"),
        ("logging/__init__.py(1084): flush", "write less often"),
        ("torch/serialization.py(850): save", "write less often"),
        ("<method 'write' of '_io.TextIOWrapper' objects>", "write less often"),
        ("preprocess.py(23): resize", "take resize (preprocess.py:23) out of the loop"),
        ("my/queue_of_work.py(3): get_batch", "take get_batch (queue_of_work.py:3) out of the loop"),
    ],
)
def test_the_change_fits_the_function(function: str, says: str) -> None:
    assert says in fix_of_gap(function, stacks=True)


def test_without_stacks_they_are_what_to_record() -> None:
    assert fix_of_gap("", stacks=False).startswith("record with stacks")
    assert "record" not in fix_of_gap("", stacks=True)
