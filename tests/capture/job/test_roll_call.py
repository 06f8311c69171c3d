"""Who belongs to a job, who has ended, and whom the first rank waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lanewise.capture.job.held_signal import HeldSignal
from lanewise.capture.job.roll_call import Lost, RollCall, roll_call


def of_rank(folder: Path, rank: int, world: int = 3, **more: str) -> RollCall:
    roll = roll_call(folder, {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": "29500", **more})
    assert roll is not None
    return roll


def wrote(folder: Path, rank: int) -> Path:
    path = folder / f"train-rank{rank}.json.gz"
    path.write_bytes(b"")
    return path


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("environment", [{}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"WORLD_SIZE": "2"}])
def test_a_process_by_itself_has_no_roll(environment: dict[str, str], tmp_path: Path) -> None:
    assert roll_call(tmp_path, environment) is None


def test_the_first_rank_gets_the_traces_of_all_that_ended(tmp_path: Path) -> None:
    rolls = [of_rank(tmp_path, rank) for rank in range(3)]
    for roll in rolls:
        roll.begin()
    traces = [wrote(tmp_path, rank) for rank in range(3)]
    for roll, trace in zip(rolls[1:], traces[1:], strict=True):
        roll.end(trace)
    assert rolls[0].wait(5.0, silent) == (traces[1:], [])
    rolls[0].close()
    assert sorted(tmp_path.iterdir()) == traces


def test_it_waits_until_the_last_one_has_ended_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.capture.job.roll_call._SAY_AFTER_S", 0.1)
    first, second = (of_rank(tmp_path, rank, 2) for rank in range(2))
    second.begin()
    trace = wrote(tmp_path, 1)
    threading.Timer(0.5, second.end, [trace]).start()
    said: list[str] = []
    assert first.wait(30.0, said.append) == ([trace], [])
    assert said == ["waiting for rank 1 to end, 30 s at most"]


def test_it_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    first, second = (of_rank(tmp_path, rank, 2) for rank in range(2))
    second.begin()
    begun = time.monotonic()
    assert first.wait(0.3, silent) == ([], [Lost(1, "is still running")])
    assert time.monotonic() - begun < 5


def test_a_rank_that_never_came_is_not_waited_for(tmp_path: Path) -> None:
    _, lost = of_rank(tmp_path, 0, 2).wait(600.0, silent)
    assert lost == [Lost(1, "writes to another folder, or never began")]


_DIES = """
import os, sys
from pathlib import Path
from lanewise.capture.job.roll_call import roll_call
roll = roll_call(Path(sys.argv[1]), os.environ)
roll.begin()
if sys.argv[2] == "wrote":
    roll.wrote(Path(sys.argv[1]) / "train-rank1.json.gz")
os._exit(1)
"""


@pytest.mark.parametrize("when", ["before", "wrote"])
def test_a_rank_that_died_is_named_and_not_waited_for(when: str, tmp_path: Path) -> None:
    trace = wrote(tmp_path, 1)
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    process = subprocess.Popen([sys.executable, "-c", _DIES, str(tmp_path), when], env=environment)
    while not list(tmp_path.glob(".rank1*")):
        time.sleep(0.01)
    first = of_rank(tmp_path, 0, 2)
    # Its parent has not asked for its exit code yet, as torchrun may not have.
    traces, lost = first.wait(600.0, silent)
    process.wait()
    if when == "wrote":
        assert (traces, lost) == ([trace], [Lost(1, "died after it had written its trace")])
    else:
        assert (traces, lost) == ([], [Lost(1, "died before it wrote a trace")])


def test_a_rank_of_another_machine_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = of_rank(tmp_path, 1, 2)
    monkeypatch.setattr(second, "_node", "another")
    second.begin()
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process of another machine was looked for"))
    assert of_rank(tmp_path, 0, 2).wait(0.2, silent)[1] == [Lost(1, "is still running")]


def test_jobs_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    of_rank(tmp_path, 1, 2, MASTER_PORT="29501").begin()
    assert of_rank(tmp_path, 0, 2).wait(600.0, silent)[1] == [Lost(1, "writes to another folder, or never began")]


def test_who_comes_after_the_roll_was_closed_leaves_nothing(tmp_path: Path) -> None:
    first, second = (of_rank(tmp_path / "out", rank, 2) for rank in range(2))
    first.begin()
    second.begin()
    first.close()
    second.wrote(tmp_path / "out" / "train-rank1.json.gz")
    second.end(None)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_has_no_roll(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    roll = of_rank(tmp_path / "file", 0, 2)
    roll.begin()
    roll.end(None)
    assert roll.wait(600.0, silent)[0] == []
    roll.close()


def test_what_another_wrote_into_the_roll_is_no_fault_of_ours(tmp_path: Path) -> None:
    roll = of_rank(tmp_path, 0, 2)
    for text in ("", "[1]", '{"trace": 7}', '{"ended": true, "trace": "no-such-file"}'):
        roll._path(1).write_text(text)
        traces, lost = roll.wait(0.2, silent)
        assert (traces, len(lost)) == ([], 1)


def test_a_request_to_end_is_obeyed_afterwards() -> None:
    program = (
        "import os, signal, time\n"
        "from lanewise.capture.job.held_signal import HeldSignal\n"
        "with HeldSignal(signal.SIGTERM) as held:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    assert held.asked\n"
        "    print('reported', flush=True)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("reported\n", -signal.SIGTERM)


def test_in_another_thread_nothing_is_held() -> None:
    seen: list[bool] = []

    def within() -> None:
        with HeldSignal(signal.SIGTERM) as held:
            seen.append(held.asked)

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert seen == [False]


def test_nobody_is_waited_for_in_a_hurry(tmp_path: Path) -> None:
    of_rank(tmp_path, 1, 2).begin()
    assert of_rank(tmp_path, 0, 2).wait(600.0, silent, lambda: True)[1] == [Lost(1, "is still running")]
