"""`lanewise view` and `lanewise export` on the command line."""

from __future__ import annotations

import base64
import gzip
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.bundled import bundled_path
from lanewise.cli.main import cli
from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.settings import Settings
from lanewise.errors import MissingDependencyError
from lanewise.measure.facts import Facts
from lanewise.show.page.html import bundle
from lanewise.show.page.packing import unpack
from tests.cli.test_verbs import MNIST
from tests.support.command import lanewise_in_bytes as run
from tests.support.corpus import REPOSITORY

try:
    bundle()
    built = True
except MissingDependencyError:
    built = False
needs_page = pytest.mark.skipif(not built, reason="the page is not built in this installation")


@needs_page
def test_view_writes_one_file_and_does_not_overwrite_it(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    result = run("view", MNIST, "-o", str(out))
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    assert re.search(rb"wrote .*report.html \([\d.]+ MB\)", result.stderr)
    text = out.read_text()
    assert text.startswith("<!doctype html>")
    assert len(text) < 600_000
    assert run("view", MNIST, "-o", str(out)).returncode == 2
    assert run("view", MNIST, "-o", str(out), "--force").returncode == 0


@needs_page
def test_source_lines_are_in_the_page_only_where_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    # The trace names lines 19 to 104 of this file.
    (program / "capture_corpus.py").write_text("".join(f"marker_{i} = {i}\n" for i in range(1, 200)))
    texts: list[list[str]] = []
    for name, options in (("plain", []), ("with", ["--source", str(program)])):
        out = tmp_path / f"{name}.html"
        assert run("view", MNIST, "-o", str(out), *options).returncode == 0
        block = re.search(r'id="block-tree">([^<]+)<', out.read_text())
        assert block
        source = unpack(base64.b64decode(block[1]))[1].get("source", {"excerpts": {}})
        texts.append([line for _, _, lines in source["excerpts"].values() for line in lines])
    assert texts[0] == []
    assert "marker_104 = 104" in texts[1]
    assert run("view", MNIST, "-o", str(tmp_path / "x.html"), "--source", str(tmp_path / "none")).returncode == 2


@needs_page
@pytest.mark.parametrize(
    ("options", "view"),
    [([], ""), (["--baseline", str(bundled_path("matmul-large"))], "#view=compare")],
    ids=["one run", "two runs"],
)
def test_view_serves_until_it_is_interrupted(options: list[str], view: str) -> None:
    trace = str(bundled_path("matmul-small"))
    command = [sys.executable, "-u", "-m", "lanewise", "view", trace, "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/" + view, address)
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert b"lanewise" in answer.read()
        process.send_signal(signal.SIGINT)
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert process.returncode == 0
        assert process.stderr
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@needs_page
def test_a_page_of_two_runs_explains_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from lanewise.cli.main import cli
    from lanewise.diagnose import explain

    explained: list[str] = []

    def counted(facts: Facts, settings: Settings) -> Any:
        explained.append(Path(facts.trace.reading.source).name)
        return diagnose(facts, settings)

    monkeypatch.setattr(explain, "diagnose", counted)
    names = [str(bundled_path(f"matmul-{size}")) for size in ("small", "large")]
    out = tmp_path / "two.html"
    result = CliRunner().invoke(cli, ["view", names[1], "--baseline", names[0], "-o", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert sorted(explained) == sorted(Path(name).name for name in names)
    block = re.search(r'id="block-diff">([^<]+)<', out.read_text())
    assert block
    assert unpack(base64.b64decode(block[1]))[1]["labels"] == ["before", "after"]


def test_without_the_built_page_view_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.show.page import html

    monkeypatch.setattr(html, "files", lambda _: tmp_path)
    with pytest.raises(MissingDependencyError, match=r"Node\.js 20"):
        html.bundle()
    assert MissingDependencyError("x").exit_code == 2


def test_export_to_every_format(tmp_path: Path) -> None:
    small = str(bundled_path("matmul-small"))
    perfetto = tmp_path / "a.json.gz"
    assert run("export", small, "--to", "perfetto", "-o", str(perfetto)).returncode == 0
    assert json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]
    speedscope = tmp_path / "a.speedscope.json"
    assert run("export", small, "--to", "speedscope", "-o", str(speedscope)).returncode == 0
    assert json.loads(speedscope.read_text())["profiles"]
    csv = tmp_path / "a.csv"
    assert run("export", small, "--to", "csv", "--table", "lanes", "-o", str(csv)).returncode == 0
    assert csv.read_text().startswith("id,side,process,thread,label")
    parquet = tmp_path / "a.parquet"
    result = run("export", small, "--to", "parquet", "-o", str(parquet))
    assert result.returncode == 0
    assert result.stdout.decode().strip() == str(parquet)
    assert parquet.read_bytes()[:4] == b"PAR1"


def test_export_refuses_what_does_not_exist_and_what_does(tmp_path: Path) -> None:
    small = str(bundled_path("matmul-small"))
    out = tmp_path / "a.csv"
    out.write_text("mine")
    again = run("export", small, "--to", "csv", "-o", str(out))
    assert again.returncode == 2
    assert b"--force" in again.stderr
    assert out.read_text() == "mine"
    wrong = run("export", small, "--to", "csv", "--table", "nothing", "-o", str(tmp_path / "b.csv"))
    assert wrong.returncode == 2
    assert b"kernel_args" in wrong.stderr
    assert run("export", small, "--to", "csv", "-o", str(tmp_path / "no" / "x.csv")).returncode == 2


@needs_page
def test_where_nothing_can_be_written_the_trace_is_not_even_read(tmp_path: Path) -> None:
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    for out, words in ((taken, b"add --force"), (tmp_path / "nowhere" / "x.html", b"there is no folder")):
        # The trace does not exist either: what is said first was checked first.
        result = run("view", str(tmp_path / "no-such-trace.json"), "-o", str(out))
        assert result.returncode == 2
        assert words in result.stderr
        assert result.stderr.count(b"\n") == 1
    assert taken.read_text() == "mine"


@needs_page
def test_a_dash_is_the_terminal(tmp_path: Path) -> None:
    result = run("view", MNIST, "-o", "-")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(b"<!doctype html>")
    assert result.stderr == b""
    assert not Path("-").exists()


def test_the_port_of_perfetto_may_be_taken() -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 9001))
            taken.listen()
        except OSError:
            pass  # someone else has it: as good
        result = run("view", MNIST, "--perfetto", "--no-browser")
    assert result.returncode == 2
    assert b"port 9001" in result.stderr
    assert result.stderr.count(b"\n") == 1


def test_the_folder_of_a_job_is_a_page_with_a_page_for_each_rank(tmp_path: Path) -> None:
    folder = REPOSITORY / "tests" / "data" / "ranks2"
    out = tmp_path / "job.html"
    answer = CliRunner().invoke(cli, ["view", str(folder), "--no-cache", "-o", str(out)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert "Rank 1 is late: its own work takes" in out.read_text()
    assert "/ranks2" not in out.read_text(), "folders of this machine stay here"
    assert sorted(path.name for path in (tmp_path / "job-ranks").iterdir()) == ["rank0.html", "rank1.html"]
    assert "job-ranks/rank1.html" in out.read_text()
    again = CliRunner().invoke(cli, ["view", str(folder), "--no-cache", "-o", str(out)])
    assert "add --force" in str(again.exception)
