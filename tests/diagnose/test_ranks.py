"""Ranks of one job, from the command line and from Python: what only several traces can tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lanewise
from lanewise.cli import common
from lanewise.cli.main import cli
from lanewise.diagnose.sections.ranks import job_of, ranks_section
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.show.report.tables import cut_tables
from lanewise.trace.reader import read
from tests.diagnose.distributed.jobs import rank
from tests.support.builder import TraceBuilder
from tests.support.corpus import DATA, trace_path


def early_and_late() -> tuple[Facts, Facts]:
    """Rank 0 waits 200 us in each of four collectives for rank 1, whose own take the 5 us of the transfer."""
    return rank(0, waits=205.0), rank(1, think=210.0)


def rows(job: Facts) -> dict[str, list[dict[str, Any]]]:
    return {key: block.rows for key, block in cut_tables(ranks_section(job).tables, limit=None).items()}


def test_the_late_rank_waits_for_nobody() -> None:
    found = rows(job_of(early_and_late()))
    first, second = found["ranks"]
    assert (first["rank"], second["rank"]) == ("0", "1")
    assert (first["waits"], second["waits"]) == (800_000, 0)
    assert (first["last"], second["last"]) == (0, 1)
    assert first["transfer"] == second["transfer"] == 20_000
    assert len(found["collectives"]) == 12
    assert {row["last"] for row in found["collectives"]} == {"1"}
    assert {(row["name"], row["bytes"], row["waits"], row["waiting_rank"]) for row in found["collectives"]} == {
        ("allreduce", 4_000_000, 200_000, "0")
    }


def test_the_order_of_the_files_does_not_matter() -> None:
    early, late = early_and_late()
    assert rows(job_of([late, early]))["ranks"] == rows(job_of([early, late]))["ranks"]


def test_statements_count_what_is_matched() -> None:
    told = [str(one) for one in ranks_section(job_of(early_and_late())).statements]
    assert told == ["4 collectives per step are common to all 2 ranks; a rank waits 400.0 us per step in them for the "
                    "others, on average."]  # fmt: skip
    more = rank(1, think=210.0, steps=5)
    assert "4 collectives of some ranks have no partner." in [
        str(one) for one in ranks_section(job_of([early_and_late()[0], more])).statements
    ]


def test_traces_without_a_common_collective_are_refused() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    with pytest.raises(UsageError, match="no collective in common"):
        job_of([rank(0), Facts(b.build())])


def test_a_real_job_with_a_late_rank() -> None:
    """Two ranks of DDP on H100s; 8 ms of sleep on rank 1."""
    traces = [read(trace_path(f"08_ddp_straggler_rank1_8ms_rank{number}")) for number in (0, 1)]
    early, late = rows(job_of([Facts(trace) for trace in traces]))["ranks"]
    assert (early["last"], late["last"]) == (0, 1)
    assert early["waits"] > 100 * early["transfer"]
    assert "DIS102" in {finding.code for finding in lanewise.explain(traces[0], peers=traces[1:]).findings}


# -- the verbs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files that open as the two ranks."""
    monkeypatch.chdir(tmp_path)
    names = ["rank0.json", "rank1.json"]
    facts = dict(zip(names, early_and_late(), strict=True))
    for name in names:
        Path(name).write_text('{"traceEvents": []}')
    monkeypatch.setattr(common, "open_trace", lambda source, cache: facts[Path(source).name].trace)
    return names


def run(*words: str) -> str:
    answer = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def codes(text: str) -> set[str]:
    return {finding["code"] for finding in json.loads(text)["findings"]}


def test_ranks_are_given_one_by_one_or_as_their_folder(files: list[str]) -> None:
    one_by_one = json.loads(run("ranks", *files, "--json"))
    assert json.loads(run("ranks", ".", "--json"))["tables"] == one_by_one["tables"]
    assert any("DIS102: Rank 1 comes last" in str(told["values"]["title"]["value"])
               or told["values"]["code"]["value"] == "DIS102"
               for told in one_by_one["statements"]["ranks"] if "code" in told["values"])  # fmt: skip
    text = run("ranks", *files)
    assert text.index("4 collectives per step") < text.index("DIS102: Rank 1 comes last") < text.index("comes last  ")
    assert "|" in run("ranks", *files, "--format", "md")


def test_the_late_rank_is_named_in_whatever_order(files: list[str]) -> None:
    assert "DIS102: Rank 1 comes last" in run("ranks", *reversed(files))


def test_the_projects_settings_choose_what_is_said(files: list[str]) -> None:
    Path("lanewise.toml").write_text("ignore = ['DIS102']\n")
    assert "DIS102" not in run("ranks", *files)
    Path("lanewise.toml").write_text("thresholds.DIS102.waiting_from = 0.99\n")
    assert "DIS102" not in run("ranks", *files)


def test_explain_with_the_other_ranks_names_the_straggler(files: list[str]) -> None:
    assert "DIS102" in codes(run("explain", *files, "--json"))
    # The folder holds the trace itself, too: it is no rank of its own.
    assert "DIS102" in codes(run("explain", files[0], ".", "--json"))


def test_what_is_no_job_is_refused(files: list[str]) -> None:
    for words in (["ranks", files[0]], ["ranks", files[0], files[0]], ["explain", files[0], files[0]]):
        answer = CliRunner().invoke(cli, words)
        assert isinstance(answer.exception, UsageError), words
        assert "two or more" in str(answer.exception)


def test_the_same_recording_twice_is_refused(tmp_path: Path) -> None:
    original = DATA / "01_matmul_add_64_warm_eager.json.gz"
    (tmp_path / "copy.json.gz").write_bytes(original.read_bytes())
    answer = CliRunner().invoke(cli, ["ranks", str(original), str(tmp_path / "copy.json.gz")])
    assert isinstance(answer.exception, UsageError)
    assert "hold the same recording" in str(answer.exception)


def test_the_same_from_python() -> None:
    early, late = early_and_late()

    def found(peers: Sequence[lanewise.Trace]) -> set[str]:
        return {finding.code for finding in lanewise.explain(early.trace, peers=peers).findings}

    assert "DIS102" in found([late.trace])
    assert "DIS102" not in found([])
