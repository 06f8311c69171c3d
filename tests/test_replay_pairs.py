"""The pairs that predictions are tested against: both programs of each compute the same, and are timed and recorded."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks.replay.pairs import PAIRS, SEVERAL, Pair, Place  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
PLACE = Place(torch.device("cpu"), small=True)
LOOSER = 2.0  # bfloat16 sums in another order on a CPU


def first_result(pair: Pair, fixed: bool) -> torch.Tensor:
    if pair.setting:
        pair.setting(fixed)
    torch.manual_seed(0)
    step = pair.build(PLACE, fixed)
    torch.manual_seed(1)
    result = step().detach().float()
    if pair.setting:
        pair.setting(False)
    return result


@pytest.mark.parametrize("pair", [p for p in PAIRS if not p.needs_cuda and not p.compiles], ids=lambda p: p.name)
def test_both_programs_compute_the_same(pair: Pair):
    slow, fixed = first_result(pair, False), first_result(pair, True)
    assert slow.shape == fixed.shape
    if pair.tolerance is not None:
        assert (slow - fixed).norm() <= LOOSER * pair.tolerance * slow.norm()


def test_each_pair_is_told_apart_and_says_what_it_stands_for():
    assert len({pair.name for pair in PAIRS}) == len(PAIRS) >= 32
    assert sum(pair.nothing is not None for pair in PAIRS) >= 5
    assert all(pair.fix for pair in PAIRS)


def test_a_program_with_several_faults_has_one_rule_for_each():
    for program in SEVERAL:
        codes = [code for fix in program.fixes for code in set(fix.codes)]
        assert len(codes) == len(set(codes)) >= len(program.fixes) >= 4, program.name
        assert not any(fix.setting or fix.compiles for fix in program.fixes), program.name


@pytest.mark.slow
def test_a_run_leaves_one_recording_of_a_program_with_several_faults(tmp_path: Path):
    words = ["--out", str(tmp_path), "--device", "cpu", "--small", "--several", "--only", "serving"]
    subprocess.run([sys.executable, "-m", "benchmarks.replay.record", *words], cwd=ROOT, check=True)
    pairs = json.loads((tmp_path / "truth.json").read_text())["pairs"]
    assert len(pairs) == 5
    assert {(pair["program"], pair["recordings"][0]["file"]) for pair in pairs} == {
        ("serving", "several-serving-slow.json.gz")
    }


@pytest.mark.slow
def test_a_run_leaves_times_and_traces(tmp_path: Path):
    # In a process of its own: it forks, and whoever forks must not have run an operator, as the tests above have.
    words = ["--out", str(tmp_path), "--device", "cpu", "--small", "--only", "small_copies,softmax"]
    subprocess.run([sys.executable, "-m", "benchmarks.replay.record", *words], cwd=ROOT, check=True)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert [pair["name"] for pair in truth["pairs"]] == ["small_copies", "softmax"]
    assert truth["failed"] == {}
    with tarfile.open(tmp_path / "traces-1.tar") as archive:
        kept = {member.name: gzip.decompress(archive.extractfile(member).read()) for member in archive}
    for pair in truth["pairs"]:
        times = {row["role"]: row["unprofiled"]["median_us"] for row in pair["recordings"]}
        assert pair["gain_us"] == pytest.approx(times["slow"] - times["fixed"], abs=0.01)
        for row in pair["recordings"]:
            events = json.loads(kept.pop(row["file"]))["traceEvents"]
            assert sum(e["name"].startswith("ProfilerStep#") for e in events) == row["active"]
            assert (f"{tmp_path}" in json.dumps(events)) is False
    assert not kept
