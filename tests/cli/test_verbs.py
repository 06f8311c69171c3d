"""The command line on real traces: what it prints, where, and with which exit code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lanewise.bundled import BUNDLED, bundled_path
from tests.support.command import lanewise_in_bytes as run

MNIST = str(bundled_path("mnist"))


def test_explain_says_regime_trust_and_what_to_do() -> None:
    first = run("explain", MNIST)
    assert first.returncode == 0
    assert "Host-bound: the GPU works" in first.stdout.decode()
    assert len(first.stdout.splitlines()) < 25
    result = run("explain", MNIST, "--full")
    text = result.stdout.decode()
    assert result.returncode == 0
    assert result.stderr == b""
    assert "Host-bound: the GPU works" in text
    assert text.index("Can you trust it?") < text.index("What to do") < text.index("Kernels")
    assert "\x1b" not in text


def test_explain_json_is_one_versioned_object_in_the_shown_order() -> None:
    report = json.loads(run("explain", MNIST, "--json").stdout)
    assert report["schema"] == "lanewise.report/2"
    assert {"source", "health", "steps", "regime", "findings"} <= set(report)
    keys = {"code", "name", "title", "steps", "recoverable_us_per_step", "evidence", "fix", "verify", "location"}
    assert report["findings"]
    for finding in report["findings"]:
        assert keys <= set(finding)
        for block in finding["evidence"]:
            if block["type"] == "table":
                assert all(column["key"] in row for row in block["rows"] for column in block["columns"])
    gains = [f["recoverable_us_per_step"] for f in report["findings"] if f["kind"] == "problem"]
    assert sum(gains) <= report["regime"]["step_us"] + 1e-3


def test_explain_markdown_is_short_enough_to_paste() -> None:
    text = run("explain", MNIST, "--format", "md").stdout.decode()
    assert text.startswith("# Host-bound")
    assert len(text.splitlines()) <= 40
    order = ["- Step: ", "- Doubt: ", "1. **", "(LAU106)", "leaving", "Fix: ", "2. **", "--full", "lanewise view"]
    assert [part for part in order if part not in text] == []
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_all_of_the_markdown_comes_when_asked_for() -> None:
    for asked in ("--full", "-v"):
        text = run("explain", MNIST, "--format", "md", asked).stdout.decode()
        assert text.startswith("# Host-bound")
        assert "Verify: " in text
        assert "| --- |" in text.replace("|---|", "| --- |")


def test_every_bundled_trace_has_a_verdict() -> None:
    regimes = {
        name: json.loads(run("explain", str(bundled_path(name)), "--json").stdout)["regime"]["name"] for name in BUNDLED
    }
    assert regimes == {
        "mnist": "host-bound",
        "matmul-small": "host-bound",
        "matmul-large": "device-bound",
        "item-loop": "host-bound",
    }


def test_standard_input_reads_plain_and_compressed() -> None:
    data = Path(MNIST).read_bytes()
    for stdin in (data, gzip.decompress(data)):
        assert json.loads(run("explain", "-", "--json", stdin=stdin).stdout)["source"]["events"] == 1975


def test_the_unprofiled_step_time_can_be_given() -> None:
    report = json.loads(run("explain", MNIST, "--json", "--step-time", "5000").stdout)
    assert report["regime"]["step_us"] == 5000
    assert report["regime"]["unprofiled"]


def test_tables_in_every_format() -> None:
    text = run("table", MNIST).stdout.decode()
    assert all(title in text for title in ("Operators and annotations", "Kernels", "API calls", "Copies and sets"))
    data = json.loads(run("table", MNIST, "kernels", "--json").stdout)
    assert sum(row["count"] for row in data["tables"]["kernels"]["rows"]) == 147
    csv = run("table", MNIST, "api", "--format", "csv").stdout.decode().splitlines()
    assert csv[0].startswith("name,role,count,total")
    assert run("table", MNIST, "kernels", "--format", "md").stdout.decode().count("|") > 50
    assert run("table", MNIST, "--format", "csv").returncode == 2


def test_tables_sort_by_any_column() -> None:
    data = json.loads(run("table", MNIST, "kernels", "--json", "--sort", "max").stdout)
    longest = [row["max"] for row in data["tables"]["kernels"]["rows"]]
    assert longest == sorted(longest, reverse=True)
    assert run("table", MNIST, "--sort", "nonsense").returncode == 2


def test_chain_of_a_step_and_of_one_that_is_not_there() -> None:
    small = str(bundled_path("matmul-small"))
    data = json.loads(run("chain", small, "--json").stdout)
    assert data["step"] == 4
    assert data["links"][0]["name"] == "ProfilerStep#4"
    assert any(link["delay_ns"] for link in data["links"])
    assert "nvjet" in run("chain", small, "--step", "2").stdout.decode()
    missing = run("chain", small, "--step", "9")
    assert missing.returncode == 2
    assert b"steps: 2, 3, 4" in missing.stderr


def test_sql_reads_the_columns_and_nothing_else() -> None:
    pytest.importorskip("duckdb")
    answer = json.loads(run("sql", MNIST, "select count(*) from events where kind = 'kernel'", "--json").stdout)
    assert answer["rows"] == [[147]]
    assert b"events" in run("sql", MNIST).stdout
    wrong = run("sql", MNIST, "select nothing from nowhere")
    assert wrong.returncode == 2
    assert wrong.stderr.count(b"\n") == 1
    outside = run("sql", MNIST, "select * from read_csv('/etc/hostname')")
    assert outside.returncode == 2


def test_rules_are_listed_and_explained() -> None:
    listing = run("rule").stdout.decode()
    assert "LAU101" in listing
    page = run("rule", "lau101").stdout.decode()
    assert "Fix:" in page
    assert "launches_from = 20" in page
    unknown = run("rule", "LAU999")
    assert unknown.returncode == 2
    assert b"LAU101" in unknown.stderr


def test_what_explains_a_rule_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = run("rule", "SYN101").stdout.decode().split("Slow:")[0]
    assert 50 < max(map(len, text.splitlines())) <= 60


def test_output_files_are_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert run("explain", MNIST, "--json", "-o", str(out)).returncode == 0
    assert json.loads(out.read_text())["schema"]
    again = run("explain", MNIST, "--json", "-o", str(out))
    assert again.returncode == 2
    assert b"--force" in again.stderr
    assert run("explain", MNIST, "--json", "-o", str(out), "--force").returncode == 0
    assert run("explain", MNIST, "--json", "-o", str(tmp_path / "no" / "folder")).returncode == 2


@pytest.mark.parametrize("verb", ["explain", "table", "chain"])
def test_input_that_is_no_trace_is_exit_code_3_and_one_line(verb: str, tmp_path: Path) -> None:
    for name, content in {
        "empty.json": b"",
        "text.json": b"hello",
        "other.json": b'{"nodes": [], "schema": "1.0"}',
        "binary.json": b"\x00\xff" * 40,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        result = run(verb, str(path))
        assert result.returncode == 3, name
        assert result.stdout == b""
        assert result.stderr.count(b"\n") == 1, result.stderr
        assert b"Traceback" not in result.stderr
    missing = run(verb, str(tmp_path / "missing.json"))
    assert missing.returncode == 3
    assert b"Traceback" not in missing.stderr


def test_a_truncated_trace_says_so_and_explains_the_rest() -> None:
    data = gzip.decompress(Path(MNIST).read_bytes())
    result = run("explain", "-", stdin=data[: len(data) // 2])
    assert result.returncode == 0
    assert "cut off" in result.stdout.decode()


def test_a_file_named_like_a_command_gets_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{}")
    result = run(str(path))
    assert result.returncode == 2
    assert b"lanewise explain" in result.stderr


def test_help_lists_every_verb() -> None:
    text = run("--help").stdout.decode()
    for verb in ("explain", "table", "chain", "sql", "rule", "demo"):
        assert verb in text


def test_demo_explains_a_bundled_trace() -> None:
    result = run("demo", "matmul-large")
    assert result.returncode == 0
    assert "Device-bound" in result.stdout.decode()
    assert "item-loop" in run("demo", "--list").stdout.decode()
