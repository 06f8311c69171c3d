"""`lanewise run --sample`: samples of a card through a CUPTI that hands them out again, and what is said of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.capture.sampling.kernel_title import title_of
from lanewise.capture.sampling.on_main_thread import run_on_main_thread
from lanewise.capture.sampling.pc_sampler import PcSampler, SamplingError, crc_of
from lanewise.capture.sampling.sampled_program import SampledProgram
from lanewise.capture.sampling.samples_file import samples_of, write_samples
from lanewise.cli.reading.kernel import kernel
from lanewise.cli.recording import sampled_run
from lanewise.errors import InputError
from lanewise.machine_code.cubins import Kernel
from lanewise.machine_code.sampled import stalls
from lanewise.machine_code.sampled.samples import read_samples
from tests.capture.sampling.fake_cupti import AT_A_TIME, FakeCupti, Recorded
from tests.machine_code.test_planted_cuda import LISTED
from tests.support.command import lanewise as command

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "machine-code" / "sampled.json"
KERNELS = json.loads(MEASURED.read_text())["kernels"]


def recorded(*names: str) -> Recorded:
    found: Recorded = {}
    for name in names:
        for offset, reason, number in KERNELS[name]["instructions"]:
            found.setdefault((name, offset), {})[reason] = number
    return found


def sample(cupti: FakeCupti, fetches: int = 2) -> SampledProgram:
    """A program that is sampled until so many fetches have ended."""
    program = SampledProgram(lambda: 1, lambda context: PcSampler(cupti, context, 15), every_s=0.001)
    program.begin()
    wait_for(lambda: cupti.called.count("GetData") > 0 or program.problem != "")
    if not program.problem:
        assert all(cupti.fetched.acquire(timeout=10) for _ in range(fetches))
    program.finish()
    return program


def wait_for(true: Callable[[], bool]) -> None:
    """Does what a program does: instructions on the main thread, between which others may be run."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def sampled(folder: Path, *names: str, code: bool = True) -> Path:
    """A file of some fetches."""
    cupti = FakeCupti(recorded(*names))
    program = sample(cupti)
    assert program.problem == ""
    for name in names if code else ():
        (folder / "old").mkdir(exist_ok=True)
        (folder / "old" / f"{name}.cubin").write_bytes(b"another version")
        (folder / f"{name}.cubin").write_bytes(name.encode())
    path = folder / "train.samples.json"
    samples = samples_of(program.taken, program.seconds, lambda data: crc_of(cupti, data), [folder], lambda _: {})
    write_samples(path, samples)
    return path


def test_all_samples_are_fetched_however_many_come_at_a_time() -> None:
    cupti = FakeCupti(recorded("row_sums", "transpose"))
    sampler = PcSampler(cupti, 1, 12)
    taken = sampler.fetch()
    found: dict[tuple[str, int], dict[str, int]] = {}
    for (_, name, offset, reason), number in taken.counts.items():
        found.setdefault((name, offset), {})[reason] = number
    assert found == cupti.recorded
    assert cupti.called.count("GetData") > 1
    assert taken.dropped == cupti.called.count("GetData")
    assert cupti.attributes[1] == 12


def test_fetches_add_up_and_the_sampler_is_closed() -> None:
    cupti = FakeCupti(recorded("row_sums"))
    program = sample(cupti, fetches=3)
    fetches = cupti.called.count("GetData") // -(-len(cupti.recorded) // AT_A_TIME)
    assert fetches >= 3
    assert cupti.called[-1] == "Disable"
    assert Counter(
        {(name, offset, reason): number for (_, name, offset, reason), number in program.taken.counts.items()}
    ) == Counter(
        {
            (name, offset, reason): fetches * number
            for (name, offset), of in cupti.recorded.items()
            for reason, number in of.items()
        }
    )


def test_nothing_is_called_that_waits_for_launches_of_other_threads() -> None:
    """CUPTI's Start and Stop hold what a launch on another thread waits for, and wait for what that thread holds."""
    cupti = FakeCupti(recorded("row_sums"))
    sample(cupti)
    assert {"Start", "Stop"}.isdisjoint(cupti.called)
    assert cupti.threads["Enable"] is threading.main_thread()
    assert cupti.threads["GetData"] is not threading.main_thread()


@pytest.mark.parametrize("silent", ["GetData", "Disable"])
def test_a_driver_that_does_not_answer_does_not_hold_up_the_program(silent: str) -> None:
    cupti = FakeCupti(recorded("row_sums"), silent=silent)
    program = SampledProgram(lambda: 1, lambda context: PcSampler(cupti, context, 15), every_s=0.001, patience_s=0.2)
    program.begin()
    wait_for(lambda: "GetData" in cupti.called)
    begun = time.monotonic()
    program.finish()
    assert time.monotonic() - begun < 5
    assert program.stuck
    assert "the driver has not answered" in program.problem
    assert "\n" not in program.problem
    cupti.answers.set()


def test_a_program_that_ends_before_it_could_be_sampled_ends() -> None:
    """Its main thread came to no instruction more, where the sampling would have been switched on."""
    begun, over = threading.Event(), threading.Event()
    ran: list[bool] = []

    def aside() -> None:
        begun.set()
        ran.append(run_on_main_thread(lambda: pytest.fail("ran"), over))

    thread = threading.Thread(target=aside)
    over.set()
    thread.start()
    thread.join(10)
    assert begun.is_set()
    assert ran == [False]


def test_what_the_main_thread_raises_is_raised_where_it_was_asked() -> None:
    raised: list[BaseException] = []

    def fails() -> None:
        raise OSError("no")

    def aside() -> None:
        try:
            run_on_main_thread(fails, threading.Event())
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=aside)
    thread.start()
    wait_for(lambda: not thread.is_alive())
    assert [str(error) for error in raised] == ["no"]


def test_a_cubin_is_the_one_with_the_checksum_of_the_samples(tmp_path: Path) -> None:
    samples = read_samples(sampled(tmp_path, "row_sums", "transpose"))
    assert {one.name: one.code for one in samples.kernels} == {
        name: str(tmp_path / f"{name}.cubin") for name in ("row_sums", "transpose")
    }


@pytest.mark.parametrize("verb", ["Enable", "SetConfigurationAttribute", "GetData"])
def test_where_it_is_forbidden_one_sentence_says_so(verb: str) -> None:
    program = sample(FakeCupti(recorded("row_sums"), {verb: 35}), fetches=0)
    assert program.problem.startswith(
        "instructions cannot be sampled on this machine: the driver refuses it to this user"
    )
    assert "\n" not in program.problem
    assert program.taken.counts == Counter()


def test_a_full_buffer_of_the_card_ends_nothing() -> None:
    program = sample(FakeCupti(recorded("row_sums"), {"GetData": 8}), fetches=0)
    assert program.problem == ""


def test_what_cannot_be_prepared_is_switched_off_again() -> None:
    cupti = FakeCupti(recorded("row_sums"), {"GetStallReasons": 15})
    with pytest.raises(SamplingError, match="CUPTI_ERROR_NOT_INITIALIZED"):
        PcSampler(cupti, 1, 15)
    assert cupti.called[-1] == "Disable"


def test_a_program_without_a_device_is_not_sampled() -> None:
    program = SampledProgram(lambda: 0, lambda context: pytest.fail("sampled"))
    program.begin()
    program.finish()
    assert (program.problem, program.seconds) == ("", 0)


def test_a_machine_without_the_library_says_so() -> None:
    def none(context: int) -> PcSampler:
        raise OSError("libcupti.so: cannot open shared object file")

    program = SampledProgram(lambda: 1, none)
    program.begin()
    wait_for(lambda: program.problem != "")
    program.finish()
    assert "no CUPTI library can be used" in program.problem


def test_kernels_are_called_as_in_traces() -> None:
    assert title_of("row_sums_apart") == "row_sums_apart"
    assert title_of("_Z3addPfi") == "add(float*, int)"
    assert title_of("_Z!") == "_Z!"


def run(*words: str) -> str:
    done = CliRunner().invoke(kernel, words, catch_exceptions=False, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def listing_of(path: Path) -> list[Kernel]:
    return [LISTED[path.stem]]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NVIDIA's tools print of the kernel that a file is named after."""
    monkeypatch.setattr(stalls, "kernels_in", listing_of)


@pytest.mark.usefixtures("listed")
def test_it_says_per_line_what_warps_wait_for(tmp_path: Path) -> None:
    text = run(str(sampled(tmp_path, "row_sums", "tile_columns")))
    assert "row_sums" in text
    assert "Its warps wait for data from global or local memory (85 %)" in text
    assert "planted.cu:11: for data from global or local memory" in text
    assert "for room in the queue of shared memory" in text
    assert "Limited by uncoalesced loads" in text
    assert "Fix: let neighbouring threads take neighbouring elements" in text
    assert "does not look like it" not in text
    assert "not known" not in text
    assert "tile_columns" not in run(str(tmp_path / "train.samples.json"), "--name", "row_sums")


def test_counts_below_zero_are_refused(tmp_path: Path) -> None:
    path = sampled(tmp_path, "row_sums", code=False)
    content = json.loads(path.read_text())
    content["kernels"][0]["samples"][0][2] = -5
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="no file of samples"):
        read_samples(path)


def test_without_its_code_a_kernel_still_has_reasons(tmp_path: Path) -> None:
    text = run(str(sampled(tmp_path, "row_sums", code=False)))
    assert "for data from global or local memory" in text
    assert "At which lines is not known: its code is in no compiler's cache" in text


@pytest.mark.usefixtures("listed")
def test_as_data(tmp_path: Path) -> None:
    data = json.loads(run(str(sampled(tmp_path, "row_sums")), "--json"))
    assert data["schema"] == "lanewise.stalls/1"
    (one,) = data["kernels"]
    assert one["name"] == "row_sums"
    assert next(iter(one["reasons"])) == "long_scoreboard"
    assert one["lines"][0]["place"]["line"] == 11
    assert sum(line["samples"] for line in one["lines"]) == one["samples"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1", "no file of samples"),
        ('{"schema": "lanewise.samples/9", "kernels": []}', "of another lanewise"),
        ("{}", "no file"),
    ],
)
def test_what_is_no_file_of_samples_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.samples.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as stop:
        run(str(path))
    assert "\n" not in str(stop.value)


def test_a_program_runs_as_it_does_without(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import sys\nprint('out', sys.argv[1:])\nsys.exit(3)\n")
    words = [sys.executable, "-m", "lanewise", "run", "--sample", "train.py", "--lr", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("out ['--lr', '1']\n", 3)
    assert done.stderr.count("\n") == 1
    assert "nothing was sampled" in done.stderr


def test_what_is_for_recordings_of_steps_is_refused() -> None:
    pytest.importorskip("torch")
    done = command("run", "--sample", "--stacks", "--json", "-c", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lanewise: --sample records no steps: leave out --stacks, --json\n"


def test_at_the_end_of_a_program_a_file_is_written_and_none_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupti = FakeCupti(recorded("row_sums"))
    monkeypatch.setattr(sampled_run, "loaded_cupti", lambda: cupti)
    monkeypatch.setattr(sampled_run, "context_in_use", lambda: 1)
    monkeypatch.setattr(sampled_run, "caches", list)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    said: list[str] = []
    monkeypatch.setattr(sampled_run, "say", said.append)
    monkeypatch.setattr("lanewise.cli.recording.explain_kernels.say", said.append)
    for _ in range(2):
        ended: list[Any] = []
        monkeypatch.setattr(sampled_run.atexit, "register", ended.append)
        sampled_run.start({"out": str(tmp_path / "out"), "name": "train", "explain": True})
        wait_for(lambda: cupti.fetched.acquire(blocking=False))
        ended[0]()
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["train-rank1-2.samples.json", "train-rank1.samples.json"]
    assert [text.split(" ")[0] for text in said] == ["next:", "next:"]
    assert read_samples(tmp_path / "out" / names[0]).kernels[0].name == "row_sums"


def test_where_code_and_samples_disagree_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sampled(tmp_path, "row_sums")

    def other(path: Path) -> list[Kernel]:
        return [replace(LISTED["double_constant"], code=renamed)]

    monkeypatch.setattr(stalls, "kernels_in", other)
    renamed = replace(LISTED["double_constant"].code, name="row_sums")
    text = run(str(path))
    assert "Limited by double precision" in text
    assert "what its warps wait for does not look like it" in text
