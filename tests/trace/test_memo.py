from __future__ import annotations

import pickle
import threading

import pytest

from lanewise.trace.memo import once


class Slow:
    def __init__(self) -> None:
        self.computed = 0
        self.begun = threading.Event()
        self.go = threading.Event()

    @once
    def answer(self) -> object:
        self.computed += 1
        self.begun.set()
        self.go.wait(10)
        return object()


def test_two_threads_that_ask_at_once_get_the_same_value() -> None:
    slow = Slow()
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(slow.answer)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert slow.begun.wait(10)
    slow.go.set()
    for thread in threads:
        thread.join()
    assert slow.computed == 1
    assert len({id(answer) for answer in answers}) == 1


class Numbers:
    calls = 0

    @once
    def doubled(self) -> int:
        Numbers.calls += 1
        if Numbers.calls == 1:
            raise ValueError("not yet")
        return 2

    @once
    def quadrupled(self) -> int:
        return 2 * self.doubled


def test_a_failure_is_not_kept_and_the_instance_stays_picklable() -> None:
    numbers = Numbers()
    with pytest.raises(ValueError, match="not yet"):
        assert numbers.quadrupled
    assert numbers.quadrupled == 4
    assert pickle.loads(pickle.dumps(numbers)).__dict__ == {"doubled": 2, "quadrupled": 4}
