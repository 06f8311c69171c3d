"""`lanewise run --sample`: samples of a card through a CUPTI that hands them out again, and what is said of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.capture.sampling.bursts import Bursts
from lanewise.capture.sampling.kernel_title import title_of
from lanewise.capture.sampling.pc_sampler import PcSampler, SamplingError, crc_of
from lanewise.capture.sampling.samples_file import samples_of, write_samples
from lanewise.cli.reading.kernel import kernel
from lanewise.cli.recording import sampled_run
from lanewise.errors import InputError
from lanewise.machine_code.sampled import stalls
from lanewise.machine_code.sampled.samples import read_samples
from tests.capture.sampling.fake_cupti import FakeCupti, Recorded
from tests.machine_code.test_planted_cuda import LISTED

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "machine-code" / "sampled.json"
KERNELS = json.loads(MEASURED.read_text())["kernels"]


def recorded(*names: str) -> Recorded:
    found: Recorded = {}
    for name in names:
        for offset, reason, number in KERNELS[name]["instructions"]:
            found.setdefault((name, offset), {})[reason] = number
    return found


def sampled(folder: Path, *names: str, code: bool = True) -> Path:
    """A file of two bursts."""
    cupti = FakeCupti(recorded(*names))
    bursts = Bursts(lambda: PcSampler(cupti, 1, 15), on_s=0.001, every_s=0.002)
    bursts.begin()
    assert all(cupti.stopped.acquire(timeout=10) for _ in range(2))
    bursts.finish()
    assert bursts.problem == ""
    for name in names if code else ():
        (folder / "old").mkdir(exist_ok=True)
        (folder / "old" / f"{name}.cubin").write_bytes(b"another version")
        (folder / f"{name}.cubin").write_bytes(name.encode())
    path = folder / "train.samples.json"
    write_samples(path, samples_of(bursts, lambda data: crc_of(cupti, data), [folder]))
    return path


def test_a_burst_brings_all_samples_however_often_is_fetched() -> None:
    cupti = FakeCupti(recorded("row_sums", "transpose"))
    sampler = PcSampler(cupti, 1, 12)
    sampler.start()
    burst = sampler.stop()
    found: dict[tuple[str, int], dict[str, int]] = {}
    for (_, name, offset, reason), number in burst.counts.items():
        found.setdefault((name, offset), {})[reason] = number
    assert found == cupti.recorded
    assert cupti.called.count("GetData") > 1
    assert burst.dropped == cupti.called.count("GetData")
    assert cupti.attributes[1] == 12


def test_bursts_add_up_and_the_sampler_is_closed(tmp_path: Path) -> None:
    samples = read_samples(sampled(tmp_path, "row_sums"))
    (one,) = samples.kernels
    once = recorded("row_sums")
    assert samples.bursts >= 2
    assert {(offset, reason): number for offset, reason, number in one.samples} == {
        (offset, reason): samples.bursts * number for (_, offset), of in once.items() for reason, number in of.items()
    }


def test_a_cubin_is_the_one_with_the_checksum_of_the_samples(tmp_path: Path) -> None:
    samples = read_samples(sampled(tmp_path, "row_sums", "transpose"))
    assert {one.name: one.code for one in samples.kernels} == {
        name: str(tmp_path / f"{name}.cubin") for name in ("row_sums", "transpose")
    }


@pytest.mark.parametrize("verb", ["Enable", "SetConfigurationAttribute", "Start", "GetData"])
def test_where_it_is_forbidden_one_sentence_says_so(verb: str) -> None:
    bursts = Bursts(lambda: PcSampler(FakeCupti(recorded("row_sums"), {verb: 35}), 1, 15), on_s=0.001, every_s=0.002)
    bursts.begin()
    bursts._thread.join(10)
    assert bursts.problem.startswith(
        "instructions cannot be sampled on this machine: the driver refuses it to this user"
    )
    assert "\n" not in bursts.problem
    assert bursts.found.counts == Counter()


def test_what_cannot_be_prepared_is_switched_off_again() -> None:
    cupti = FakeCupti(recorded("row_sums"), {"GetStallReasons": 15})
    with pytest.raises(SamplingError, match="CUPTI_ERROR_NOT_INITIALIZED"):
        PcSampler(cupti, 1, 15)
    assert cupti.called[-1] == "Disable"


def test_a_program_without_a_device_is_not_sampled() -> None:
    bursts = Bursts(lambda: None)
    bursts.begin()
    bursts.finish()
    assert (bursts.problem, bursts.number) == ("", 0)


def test_a_machine_without_the_library_says_so() -> None:
    def none() -> None:
        raise OSError("libcupti.so: cannot open shared object file")

    bursts = Bursts(none)
    bursts.begin()
    bursts._thread.join(10)
    assert "no CUPTI library can be used" in bursts.problem


def test_kernels_are_called_as_in_traces() -> None:
    assert title_of("row_sums_apart") == "row_sums_apart"
    assert title_of("_Z3addPfi") == "add(float*, int)"
    assert title_of("_Z!") == "_Z!"


def run(*words: str) -> str:
    done = CliRunner().invoke(kernel, words, catch_exceptions=False, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NVIDIA's tools print of the kernel that a file is named after."""
    monkeypatch.setattr(stalls, "kernels_in", lambda path: [LISTED[path.stem]])


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


def test_without_its_code_a_kernel_still_has_reasons(tmp_path: Path) -> None:
    text = run(str(sampled(tmp_path, "row_sums", code=False)))
    assert "for data from global or local memory" in text
    assert "At which lines is not known: its code is in no compiler's cache." in text


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
    words = [sys.executable, "-m", "lanewise", "run", "--sample", "--stacks", "--json", "-c", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
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
    for _ in range(2):
        ended: list[Any] = []
        monkeypatch.setattr(sampled_run.atexit, "register", ended.append)
        sampled_run.start({"out": str(tmp_path / "out"), "name": "train", "explain": True})
        assert cupti.stopped.acquire(timeout=10)
        ended[0]()
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["train-rank1-2.samples.json", "train-rank1.samples.json"]
    assert [text.split(" ")[0] for text in said] == ["next:", "next:"]
    assert read_samples(tmp_path / "out" / names[0]).kernels[0].name == "row_sums"


def test_where_code_and_samples_disagree_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sampled(tmp_path, "row_sums")
    monkeypatch.setattr(stalls, "kernels_in", lambda path: [replace(LISTED["double_constant"], code=renamed)])
    renamed = replace(LISTED["double_constant"].code, name="row_sums")
    text = run(str(path))
    assert "Limited by double precision" in text
    assert "what its warps wait for does not look like it" in text
