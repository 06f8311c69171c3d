"""What `lanewise run` ends with on the first rank of a job, and what `explain` does with the folder of one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.cli.recording.job_report import main
from tests.support.real_jobs import GOOD, PIPELINE, PLANTED, job_paths


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "store"))


def folder_of(job: str, folder: Path) -> Path:
    folder.mkdir()
    for path in job_paths(job):
        shutil.copy(path, folder)
    return folder


def order(folder: Path, *, form: str = "text", lost: tuple[str, ...] = (), ranks: int = 4) -> str:
    traces = [str(path) for path in sorted(folder.glob("*.json.gz"))[:ranks]]
    return json.dumps({"traces": traces, "shown": "out/a.json.gz", "lost": lost, "form": form, "project": str(folder)})


def test_the_ranks_come_first_then_one_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(PIPELINE, tmp_path / "job")
    main(order(folder))
    said = capsys.readouterr().out
    order_of = ["The 4 ranks are even", "What explain finds on 4 ranks", "rank 0, by itself", "evidence and tables"]
    assert sorted(order_of, key=said.index) == order_of
    assert "rank 0, by itself (all of them: lanewise ranks out):" in " ".join(said.split())
    assert "evidence and tables" in said
    kept = json.loads((folder / "r4_pipeline_gpipe_rank0.ranks.json").read_text())
    assert len(kept["tables"]["ranks"]["rows"]) == 4
    # What was kept is no trace, and is not told of as something strange.
    again = CliRunner().invoke(cli, ["ranks", str(folder), "--no-findings"])
    assert "passed over" not in again.stdout


def test_a_lost_rank_is_named_and_costs_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(order(folder_of(PIPELINE, tmp_path / "job"), lost=("Rank 3 died before it wrote a trace.",), ranks=3))
    said = capsys.readouterr().out
    assert "The 3 ranks are even" in said
    assert "Rank 3 died before it wrote a trace." in said
    assert "No trace of rank" not in said


def test_as_data_the_report_is_the_one_object_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(order(folder_of(PIPELINE, tmp_path / "job"), form="json"))
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"].startswith("lanewise.report/")
    assert "The 4 ranks are even" in said.err


def test_ranks_with_nothing_in_common_are_said_to_be_and_one_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(PIPELINE, tmp_path / "job")
    main(order(folder, ranks=1))
    said = capsys.readouterr()
    assert "two or more" in said.err
    assert "evidence and tables" in said.out


# -- explain DIR --------------------------------------------------------------------------------------------------------


def explained(folder: Path) -> tuple[dict[str, object], str]:
    answer = CliRunner().invoke(cli, ["explain", str(folder), "--json", "--no-cache"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout), answer.stderr


@pytest.mark.parametrize("job", [next(iter(PLANTED)), GOOD])
def test_of_a_jobs_folder_the_late_rank_is_explained_or_else_the_first(job: str, tmp_path: Path) -> None:
    folder = folder_of(job, tmp_path / "job")
    late = PLANTED[job][0] if job in PLANTED else 0
    report, said = explained(folder)
    source: dict[str, str] = report["source"]  # type: ignore[assignment]
    assert Path(source["path"]).name == f"{job}_rank{late}.json.gz"
    who = f"rank {late}, the late one, is" if job in PLANTED else "none is late, and rank 0 is"
    assert f"holds 4 ranks of one job: {who} explained; `lanewise ranks {folder}` compares them" in said
    assert any(note["topic"] == "ranks" for note in report["health"])  # type: ignore[index, attr-defined]


def test_of_a_large_job_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.cli.reading.explain._MOST_RANKS", 3)
    monkeypatch.setattr("lanewise.measure.distributed.gathering.read_ranks.read_ranks", None)
    report, said = explained(folder_of(PIPELINE, tmp_path / "job"))
    assert "is of a job of 4 ranks: " in said
    assert report["findings"]


def test_one_rank_alone_is_explained_without_a_word(tmp_path: Path) -> None:
    folder = folder_of(PIPELINE, tmp_path / "job")
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()
    _, said = explained(folder)
    assert said == ""
