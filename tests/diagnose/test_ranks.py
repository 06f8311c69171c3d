"""Ranks of one job, from the command line and from Python: what only several traces can tell."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import lanewise
from lanewise.cli import common
from lanewise.cli.main import cli
from lanewise.diagnose.sections import ranks as section
from lanewise.diagnose.sections.rank_findings import MOST, told_of_findings, which_ranks
from lanewise.diagnose.sections.section import Source, columns_of
from lanewise.errors import UsageError
from lanewise.measure.distributed.gathering import rank_worker
from lanewise.measure.distributed.gathering.read_ranks import RanksRead
from lanewise.measure.distributed.job import job_of
from lanewise.measure.facts import Facts
from lanewise.report.model import TableColumn
from tests.diagnose.distributed.jobs import rank
from tests.support.builder import TraceBuilder
from tests.support.corpus import REPOSITORY, trace_path
from tests.support.made_ranks import exchanged, made_rank
from tests.support.real_jobs import GOOD, PIPELINE, PLANTED, job_paths


def early_and_late() -> tuple[Facts, Facts]:
    """Rank 0 waits 200 us in each of four collectives for rank 1, which thinks in that time."""
    return rank(0, waits=205.0), rank(1, think=210.0)


def test_traces_without_a_common_collective_are_refused() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    with pytest.raises(UsageError, match="no collective in common"):
        job_of([rank(0), Facts(b.build())])


def test_ranks_of_two_jobs_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    for name, numbers in ((GOOD, (0, 1)), (PIPELINE, (2, 3))):
        for number in numbers:
            shutil.copy(job_paths(name)[number], tmp_path)
    said = told("ranks", str(tmp_path))
    assert said.startswith("Ranks 0, 1 exchange nothing with ranks 2, 3: these are traces of more than one job")
    for name in (GOOD, PIPELINE):
        assert "exchange nothing" not in told("ranks", *map(str, job_paths(name)))


# -- the verbs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files that open as the two ranks."""
    monkeypatch.chdir(tmp_path)
    names = ["rank0.json", "rank1.json"]
    facts = dict(zip(names, early_and_late(), strict=True))
    for name in names:
        Path(name).write_text('{"traceEvents": []}')
    for module, reading in ((common, "open_trace"), (rank_worker, "read_recorded"), (section, "read")):
        monkeypatch.setattr(module, reading, lambda source, cache: facts[Path(source).name].trace)
    return names


def run(*words: str) -> str:
    answer = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.stdout.split())


def codes(text: str) -> set[str]:
    return {finding["code"] for finding in json.loads(text)["findings"]}


def told(*words: str) -> str:
    """What is said before the tables."""
    quick = () if "--no-findings" in words or words[0] != "ranks" else ("--no-findings",)
    return run(*words, *quick).partition("Ranks, per step")[0]


def test_with_a_price_the_late_rank_says_what_it_costs(files: list[str]) -> None:
    paid = json.loads(run("ranks", *files, "--no-findings", "--price", "3.6", "--json"))
    told = next(one["values"] for one in paid["statements"]["ranks"] if "saves" in one["values"])
    less = told["step"]["value"] - told["without"]["value"]
    # A thousandth of a dollar a second: so many dollars a million steps as there are ms in one.
    assert told["saves"]["value"] == f", which saves ${less / 1e6:.2f} per million steps"
    assert "saves" not in run("ranks", *files, "--no-findings")


def test_ranks_are_given_one_by_one_or_as_their_folder(files: list[str]) -> None:
    one_by_one = json.loads(run("ranks", *files, "--no-findings", "--json"))
    assert json.loads(run("ranks", ".", "--no-findings", "--json"))["tables"] == one_by_one["tables"]
    assert "Rank 1 is late: its own work takes 798.2 us more per step" in told("ranks", *files)
    assert "|" in run("ranks", *files, "--no-findings", "--format", "md")


def test_the_late_rank_is_named_in_whatever_order(files: list[str]) -> None:
    assert told("ranks", *reversed(files)) == told("ranks", *files)


def test_explain_with_the_other_ranks_names_the_straggler(files: list[str]) -> None:
    assert "DIS102" in codes(run("explain", *files, "--json"))
    # The folder holds the trace itself, too: it is no rank of its own.
    assert "DIS102" in codes(run("explain", files[0], ".", "--json"))


def test_what_is_no_job_is_refused(files: list[str]) -> None:
    for words in (["ranks", files[0]], ["ranks", files[0], files[0]], ["explain", files[0], files[0]]):
        answer = CliRunner().invoke(cli, words)
        assert isinstance(answer.exception, UsageError), words
        assert "two or more" in str(answer.exception)


# -- real jobs ----------------------------------------------------------------------------------------------------------


def folder_of(job: str, folder: Path) -> Path:
    for path in job_paths(job):
        shutil.copy(path, folder)
    return folder


def test_few_steps_in_common_are_said_to_be() -> None:
    """Of ten steps of each rank one is in both recordings."""
    mine, other = (
        [exchanged("allreduce", 1000 * step, 1000 * step + 90, step=step) for step in range(first, first + 10)]
        for first in (0, 9)
    )
    ranks = [made_rank(0, mine), made_rank(1, other)]
    found = RanksRead(ranks, ["rank0.json", "rank1.json"])
    said = [str(block) for block in section.told_of_job(found).section.statements]
    assert any(sentence.startswith("Few steps are in all of the recordings") for sentence in said)
    together = RanksRead([made_rank(0, mine), made_rank(1, mine)], found.files)
    assert not any("in all of the recordings" in str(one) for one in section.told_of_job(together).section.statements)


@pytest.mark.parametrize(("job", "matched"), [(GOOD, "12 collectives"), (PIPELINE, "72 transfers")])
def test_a_healthy_job_is_said_to_be_even(job: str, matched: str, tmp_path: Path) -> None:
    said = told("ranks", str(folder_of(job, tmp_path)), "--no-cache")
    assert said.startswith("The 4 ranks are even: ")
    assert "late" not in said
    assert f"others'. {matched} are matched across the ranks. " in said


@pytest.mark.parametrize("job", list(PLANTED))
def test_the_planted_cause_is_said(job: str, tmp_path: Path) -> None:
    late, _ = PLANTED[job]
    said = told("ranks", str(folder_of(job, tmp_path)), "--no-cache")
    assert said.startswith(f"Rank {late} is late: ")
    assert "Python that calls no operator, or asleep, between aten::_fused_adamw_ and aten::transpose" in said
    assert "Record with --stacks, and the trace names the function." in said
    assert "is late" not in said.replace(f"Rank {late} is late", "")


def test_two_ranks_with_a_straggler() -> None:
    """DDP on H100s; 8 ms of sleep on rank 1."""
    traces = [str(trace_path(f"08_ddp_straggler_rank1_8ms_rank{number}")) for number in (0, 1)]
    assert "Rank 1 is late: its own work takes 8." in told("ranks", *traces, "--no-cache")


def test_what_is_left_out_is_named_and_costs_only_that_rank(tmp_path: Path) -> None:
    folder = folder_of(PIPELINE, tmp_path)
    (folder / "report.md").write_text("# A report")
    (folder / "report.json").write_text('{"schema": 2}')
    first, second, third, fourth = sorted(folder.glob("*.json.gz"))
    shutil.copy(first, folder / "z_again.json.gz")
    third.write_bytes(third.read_bytes()[:60_000])
    fourth.unlink()
    said = told("ranks", str(folder), "--no-cache")
    assert "The 2 ranks are even" in said
    assert "No trace of rank 2, 3" in said
    # What is cut off would make the others look as if they did twice as much.
    assert f"{third.name} cannot be read: it holds no whole step" in said
    assert f"z_again.json.gz is left out: {first.name} is of the same rank." in said
    assert "Not traces, and passed over: report.json, report.md." in said
    assert second.name in run("ranks", str(folder), "--no-cache", "--no-findings")


def test_a_file_that_is_cut_off_between_two_steps_is_named(tmp_path: Path) -> None:
    """What is left of it is a rank like any other, but with fewer steps."""
    folder = folder_of(PIPELINE, tmp_path)
    last = sorted(folder.glob("*.json.gz"))[-1]
    whole = gzip.decompress(last.read_bytes())
    last.write_bytes(gzip.compress(whole[: len(whole) * 7 // 8]))
    said = told("ranks", str(folder), "--no-cache", "--no-findings")
    assert f"{last.name}: the file is cut off, and its last steps are missing." in said
    assert said.count("cut off") == 1


@pytest.mark.parametrize("content", [b"", b"no trace"])
def test_beside_a_single_trace_a_file_that_holds_none_is_named(content: bytes, tmp_path: Path) -> None:
    shutil.copy(job_paths(PIPELINE)[0], tmp_path / "job-rank0.json.gz")
    (tmp_path / "job-rank1.json.gz").write_bytes(content)
    answer = CliRunner().invoke(cli, ["ranks", str(tmp_path), "--no-cache"])
    assert isinstance(answer.exception, UsageError)
    assert str(answer.exception).endswith("or their folder; job-rank1.json.gz holds none")


def test_a_rank_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = folder_of(PIPELINE, tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text("no trace")
    traces = [str(path) for path in sorted(folder.glob("*.json.gz"))]
    assert "broken.json cannot be read: " in told("ranks", *traces, str(broken), "--no-cache")


def test_only_one_rank_that_can_be_read_is_no_job(tmp_path: Path) -> None:
    path = job_paths(PIPELINE)[0]
    shutil.copy(path, tmp_path / "copy.json.gz")
    answer = CliRunner().invoke(cli, ["ranks", str(path), str(tmp_path / "copy.json.gz")])
    assert isinstance(answer.exception, UsageError)
    assert "copy.json.gz is of the same rank as" in str(answer.exception)


def test_the_same_from_python() -> None:
    early, late = early_and_late()

    def found(peers: Sequence[lanewise.Trace]) -> set[str]:
        return {finding.code for finding in lanewise.explain(early.trace, peers=peers).findings}

    assert "DIS102" in found([late.trace])
    assert "DIS102" not in found([])


def test_a_finding_is_said_with_the_ranks_that_have_it_and_what_it_costs(tmp_path: Path) -> None:
    words = ["ranks", str(folder_of(PIPELINE, tmp_path)), "--no-cache", "--price", "3.6"]
    answer = json.loads(run(*words, "--json"))
    rows = {row["code"]: row for row in answer["tables"]["findings"]["rows"]}
    each = [lanewise.explain(path).findings for path in job_paths(PIPELINE)]
    for code, row in rows.items():
        mine = {
            rank: sum(one.alone_us_per_step for one in found if one.code == code and one.recoverable_us_per_step > 0)
            for rank, found in enumerate(each)
        }
        having = {rank: gain for rank, gain in mine.items() if gain}
        assert row["ranks"] == f"{len(having)} of 4"
        assert row["most"] == pytest.approx(max(having.values()) * 1e3)
        assert having[int(row["where"])] == max(having.values())
        # A thousandth of a dollar a second: so many dollars a million steps as there are ms in one.
        assert float(row["saves"].removeprefix("$").partition(" ")[0]) == pytest.approx(row["gain"] / 1e6, rel=0.1)
    said = next(block for block in answer["statements"]["ranks"] if "What `explain` finds" in block["template"])
    assert said["values"]["found"]["value"].startswith(f"{next(iter(rows))} ")
    assert "findings" not in json.loads(run("ranks", str(tmp_path), "--no-cache", "--no-findings", "--json"))["tables"]


def test_of_a_large_job_a_sample_is_explained_with_the_late_ones() -> None:
    found = RanksRead([made_rank(rank) for rank in range(1000)], [f"rank{rank}.json" for rank in range(1000)])
    rows = which_ranks(found, [17])
    assert 17 in rows
    assert (rows[0], rows[-1], len(rows)) == (0, 999, MOST + 1)
    headings = [TableColumn(name, "text", name) for name in ("code", "name", "ranks")]
    table = Source("", columns_of([{"code": "LAU101", "name": "n", "ranks": "31 of 32"}], headings), headings)
    (said,) = told_of_findings(table, 32, 1000)
    assert str(said) == "What `explain` finds of 32 of them, evenly chosen: LAU101 n on 31 of 32."


def test_traces_of_a_job_before_are_left_out_and_named(tmp_path: Path) -> None:
    """`lanewise run` twice into one folder: the second job's files have a number in their names."""
    from tests.support.shifted_clock import later

    folder = folder_of(PIPELINE, tmp_path)
    first, *_ = job_paths(PIPELINE)
    for path in job_paths(PIPELINE)[:3]:
        later(path, folder / f"{path.name.removesuffix('.json.gz')}-2.json.gz", seconds=60)
    said = told("ranks", str(folder), "--no-cache", "--no-findings")
    assert "The 3 ranks are even" in said
    assert "No trace of rank 3" in said
    assert f"Left out, as they belong to an earlier job: {first.name}, " in said


def test_ranks_recorded_over_other_steps_are_compared_by_what_each_does(tmp_path: Path) -> None:
    """`lanewise run` on two H200: no step is in both recordings."""
    folder = REPOSITORY / "tests" / "data" / "ranks2"
    said = told("ranks", str(folder), "--no-cache", "--no-findings")
    assert "Rank 1 is late: its own work takes 6.09 ms more per step" in said
    assert "It spends that time in Python that calls no operator, or asleep" in said
    assert "No step is in all of the recordings" in said
    # 13.9 ms with the sleep and 9.6 without it, timed without a profiler.
    assert "a step of the job would take about 9.61 ms instead of 12.7 ms" in said


def test_communication_is_said_with_its_bandwidth_and_the_schedules_share() -> None:
    answer = json.loads(run("ranks", *map(str, job_paths(PIPELINE)), "--no-cache", "--no-findings", "--json"))
    (row,) = answer["tables"]["communication"]["rows"]
    assert (row["kind"], row["count"], row["bytes"]) == ("send and receive", 12, 4_194_304)
    assert row["of_link"] == pytest.approx(row["bus"] / 450e9)
    assert [stage["ideal"] for stage in answer["tables"]["pipelines"]["rows"]] == [pytest.approx(3 / 7)] * 4


# -- two jobs -----------------------------------------------------------------------------------------------------------


def test_two_jobs_are_compared_as_jobs(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("before", "after")]
    for folder, job in zip(folders, (next(iter(PLANTED)), GOOD), strict=True):
        folder.mkdir()
        folder_of(job, folder)
    late, ms = PLANTED[next(iter(PLANTED))]
    forth = json.loads(run("diff", *map(str, folders), "--no-cache", "--json"))
    said = [str(block["template"]) for block in forth["statements"]["jobs"]]
    assert "Rank {rank} was late ({more}, {cause}) and is not any more." in said
    rows = {row["rank"]: row for row in forth["tables"]["ranks"]["rows"]}
    assert rows[str(late)]["late"] == "before"
    assert rows[str(late)]["host_before"] - rows[str(late)]["host"] > 0.7 * ms * 1e6
    assert {row["kind"] for row in forth["tables"]["communication"]["rows"]} == {"all-reduce"}
    back = run("diff", *map(str, reversed(folders)), "--no-cache")
    assert f"Rank {late} is late now: " in back


def test_jobs_of_other_sizes_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "four").mkdir()
    four, two = folder_of(PIPELINE, tmp_path / "four"), REPOSITORY / "tests" / "data" / "ranks2"
    said = run("diff", str(four), str(two), "--no-cache")
    assert "The jobs have 4 and 2 ranks" in said
    assert "what the job takes was not timed in both" in said
