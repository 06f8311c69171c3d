"""Kept reports: the same as a fresh one, and never one for other content, settings or code."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.diagnose import report_cache as kept
from lanewise.diagnose.explain import explain
from lanewise.diagnose.settings import Settings
from lanewise.report.model import Report
from lanewise.trace.file import parquet_cache as store
from lanewise.trace.reader import read
from tests.support.corpus import DATA

TRACE = DATA / "03_mnist_train_stack.json.gz"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own that keeps small traces, too."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_WORTH_EVENTS", 0)
    monkeypatch.setattr(kept, "entry_points", lambda group: ())
    return tmp_path / "cache"


def keep(settings: Settings | None = None, step_time: float | None = None) -> Report:
    settings = settings or Settings()
    trace = read(TRACE)
    report = explain(trace, settings=settings, unprofiled_us=step_time)
    kept.keep_report(report, trace, settings, step_time)
    store.wait()
    return report


def test_the_kept_report_is_the_report(tmp_path: Path) -> None:
    elsewhere = tmp_path / "renamed.json.gz"
    shutil.copy(TRACE, elsewhere)
    report = keep()
    again = kept.find_report(str(elsewhere), Settings(), None)
    assert again is not None
    assert again.source.path == str(elsewhere)
    renamed = msgspec.structs.replace(again, source=report.source)
    assert msgspec.json.encode(renamed) == msgspec.json.encode(report)


def test_a_trace_too_small_to_be_kept_keeps_its_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_WORTH_EVENTS", 100_000)
    report = keep()
    assert not list(folder.rglob("*.parquet"))
    assert not read(TRACE).reading.from_cache
    again = kept.find_report(str(TRACE), Settings(), None)
    assert again is not None
    assert msgspec.json.encode(again) == msgspec.json.encode(report)


def test_reports_of_small_traces_go_when_the_store_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_WORTH_EVENTS", 100_000)
    monkeypatch.setenv("LANEWISE_CACHE_BYTES", "1000")
    keep()
    assert not list(folder.rglob("report-*"))


@pytest.mark.parametrize(
    ("settings", "step_time"),
    [
        (Settings(select=("LAU",)), None),
        (Settings(ignore=("LAU",)), None),
        (Settings(thresholds={"LAU101": {"tiny_us": 3.0}}), None),
        (Settings(), 1234.5),
    ],
    ids=["select", "ignore", "threshold", "step time"],
)
def test_other_settings_are_another_report(settings: Settings, step_time: float | None) -> None:
    keep()
    assert kept.find_report(str(TRACE), settings, step_time) is None


def test_other_content_and_other_code_are_another_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep()
    changed = tmp_path / "changed.json.gz"
    content = bytearray(TRACE.read_bytes())
    content[9] ^= 1  # gzip's note of the operating system: another file of the same size
    changed.write_bytes(content)
    assert kept.find_report(str(changed), Settings(), None) is None
    monkeypatch.setattr(kept, "_code", lambda: "00000000")
    assert kept.find_report(str(TRACE), Settings(), None) is None
    keep()
    assert len(list(folder.rglob("report-*"))) == 1, "the report of the code before is of no use any more"


def test_reports_of_foreign_rules_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "entry_points", lambda group: ("a package with rules",))
    keep()
    assert not list(folder.rglob("report-*"))


def test_a_damaged_report_is_made_again(folder: Path) -> None:
    keep()
    (path,) = folder.rglob("report-*")
    path.write_bytes(b"\x93\x01")
    assert kept.find_report(str(TRACE), Settings(), None) is None


def test_explain_prints_the_same_from_the_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CliRunner().invoke(cli, ["explain", "--json", str(TRACE)])
    store.wait()
    monkeypatch.setattr("lanewise.trace.reader.read", None)  # nothing is read again
    second = CliRunner().invoke(cli, ["explain", "--json", str(TRACE)])
    assert second.exit_code == 0
    assert second.output == first.output
