"""Settings of a project: what is read, what is refused and how that is said, and that they reach the report."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import lanewise
from lanewise.bundled import bundled_path
from lanewise.cli.main import cli
from lanewise.diagnose.settings import Settings, load_settings, narrowed
from lanewise.errors import InputError, LanewiseError, UsageError
from lanewise.trace.file import parquet_cache as store

MNIST = bundled_path("mnist")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that is the working directory, with a store of its own that keeps small traces, too."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_WORTH_EVENTS", 0)
    return folder


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def explained(*words: str) -> dict[str, object]:
    result = CliRunner().invoke(cli, ["explain", str(MNIST), "--json", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def codes(report: dict[str, object]) -> set[str]:
    findings = report["findings"]
    assert isinstance(findings, list)
    return {finding["code"] for finding in findings if finding["kind"] != "regime"}


def test_a_project_without_settings_changes_nothing(project: Path) -> None:
    assert load_settings() == Settings()
    write(project, "[tool.lanewise.budget]\nlaunches = 3\n")
    assert load_settings() == Settings()


def test_everything_is_read_from_the_nearest_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        project,
        '[tool.lanewise]\nselect = ["lau", "SYN"]\nignore = ["SYN105"]\n'
        "[tool.lanewise.thresholds]\nlau101 = { launches_from = 50 }\n",
    )
    monkeypatch.chdir(project / "src")
    expected = {"LAU101": {"launches_from": 50}}
    assert load_settings() == Settings(("LAU", "SYN"), ("SYN105",), expected, "../pyproject.toml")
    write(project / "src", 'select = ["KER"]\n', "lanewise.toml")
    assert load_settings() == Settings(("KER",), (), {}, "lanewise.toml")
    assert load_settings(project / "pyproject.toml").select == ("LAU", "SYN")
    assert load_settings(start=project).select == ("LAU", "SYN")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "pyproject.toml",
            "[tool.lanewise]\nselct = []",
            "pyproject.toml: tool.lanewise.selct does not exist; there are",
        ),
        (
            "pyproject.toml",
            "[tool.lanewise]\nselect = 'LAU'",
            "pyproject.toml: tool.lanewise.select is a list of codes",
        ),
        ("pyproject.toml", "[tool.lanewise]\nignore = [3]", "pyproject.toml: tool.lanewise.ignore is a list of codes"),
        ("lanewise.toml", "ignore = ['FOO']", "lanewise.toml: ignore: no rule's code begins with 'FOO'"),
        ("lanewise.toml", "select = ['']", "lanewise.toml: select is a list of codes"),
        ("lanewise.toml", "thresholds = 3", "lanewise.toml: thresholds is a table"),
        ("lanewise.toml", "thresholds.LAU101 = 3", "lanewise.toml: thresholds.LAU101 is a table"),
        ("lanewise.toml", "thresholds.LAU999 = {}", "thresholds.LAU999: there is no such rule; near: LAU101, LAU102"),
        (
            "pyproject.toml",
            "[tool.lanewise.thresholds.LAU101]\nlaunch_from = 3",
            "pyproject.toml: tool.lanewise.thresholds.LAU101.launch_from: LAU101 has no such threshold; it has: "
            "launches_from, median_kernel_below_us",
        ),
        ("lanewise.toml", "thresholds.MEA103.x = 1", "thresholds.MEA103.x: MEA103 has no such threshold; it has none"),
        (
            "lanewise.toml",
            "thresholds.LAU101.launches_from = '3'",
            "launches_from = '3': a number, 0 or more, is needed",
        ),
        (
            "lanewise.toml",
            "thresholds.LAU101.launches_from = true",
            "launches_from = True: a number, 0 or more, is needed",
        ),
        ("lanewise.toml", "thresholds.LAU101.launches_from = 2.5", "launches_from = 2.5: a whole number is needed"),
        ("lanewise.toml", "thresholds.KER101.share_from = -0.1", "share_from = -0.1: a number, 0 or more, is needed"),
        ("lanewise.toml", "thresholds.KER101.share_from = nan", "share_from = nan: a number, 0 or more, is needed"),
    ],
)
def test_what_does_not_exist_is_one_line_with_file_and_key(project: Path, name: str, text: str, said: str) -> None:
    write(project, text, name)
    result = CliRunner().invoke(cli, ["explain", str(MNIST)])
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_file_that_is_no_toml_is_unreadable_input(project: Path) -> None:
    write(project, "[tool.lanewise\n")
    with pytest.raises(InputError, match=r"pyproject.toml is no TOML"):
        load_settings()
    with pytest.raises(InputError, match="No such file"):
        load_settings(project / "missing.toml")


def test_select_and_ignore_of_the_file_choose_rules(project: Path) -> None:
    everything = codes(explained())
    assert {"LAU101", "SYN103"} <= everything
    write(project, "[tool.lanewise]\nselect = ['LAU', 'SYN']\nignore = ['LAU102']\n")
    report = explained()
    assert codes(report) == {code for code in everything if code[:3] in {"LAU", "SYN"}} - {"LAU102"}
    assert {"level": "info", "topic": "settings", "text": "pyproject.toml: select LAU, SYN; ignore LAU102"} in report[
        "health"
    ]  # type: ignore[operator]


def test_the_command_line_beats_the_file(project: Path) -> None:
    write(project, "[tool.lanewise]\nselect = ['LAU']\nignore = ['LAU101']\n")
    # `--select` starts afresh: even what the file ignores can be asked for.
    assert codes(explained("--select", "lau101")) == {"LAU101"}
    assert codes(explained("--ignore", "LAU102")) == codes(explained()) - {"LAU102"}
    result = CliRunner().invoke(cli, ["explain", str(MNIST), "--select", "FOO"])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("--select: no rule's code begins with 'FOO'")


def test_thresholds_reach_the_rule_and_the_kept_report(project: Path) -> None:
    assert "LAU101" in codes(explained())
    write(project, "[tool.lanewise.thresholds]\nLAU101 = { launches_from = 100000 }\n")
    # The report without settings is kept by now: it must not answer for this one.
    assert "LAU101" not in codes(explained())
    write(project, "[tool.lanewise.thresholds]\nLAU101 = { launches_from = 20 }\n")
    assert "LAU101" in codes(explained())
    (project / "pyproject.toml").unlink()
    assert "LAU101" in codes(explained())


def test_the_same_from_python(project: Path) -> None:
    write(project, "[tool.lanewise.thresholds]\nLAU101 = { launches_from = 100000 }\n")
    trace = lanewise.read(MNIST)
    found = [finding.code for finding in lanewise.explain(trace, settings=lanewise.load_settings()).findings]
    assert "LAU101" not in found
    # A library call depends on its arguments alone.
    assert "LAU101" in [finding.code for finding in lanewise.explain(trace).findings]
    with pytest.raises(UsageError, match=r"thresholds.LAU101.x: LAU101 has no such threshold"):
        lanewise.explain(trace, settings=Settings(thresholds={"LAU101": {"x": 1}}))


def test_narrowing_keeps_thresholds_and_source() -> None:
    settings = Settings(("LAU",), ("LAU101",), {"LAU102": {"kernels_from": 3}}, "f")
    assert narrowed(settings, [], []) == settings
    assert narrowed(settings, ["syn"], []) == Settings(("SYN",), (), settings.thresholds, "f")
    assert narrowed(settings, [], ["lau102"]).ignore == ("LAU101", "LAU102")


def test_a_comparison_leaves_out_what_the_project_does(project: Path) -> None:
    base = CliRunner().invoke(cli, ["baseline", "save", str(MNIST), "-o", "base.json"], catch_exceptions=False)
    assert base.exit_code == 0
    write(project, "[tool.lanewise]\nignore = ['LAU', 'MEA']\n")
    # One byte more is another recording.
    (project / "new.json").write_bytes(gzip.decompress(MNIST.read_bytes()) + b"\n")
    for first in ("base.json", str(MNIST)):
        result = CliRunner().invoke(cli, ["diff", first, "new.json", "--json"], catch_exceptions=False)
        found = {change["code"] for change in json.loads(result.stdout)["differences"][0]["findings"]}
        assert found
        assert not any(code.startswith(("LAU", "MEA")) for code in found)


def test_a_budget_that_could_never_fail_is_refused(project: Path) -> None:
    write(project, "[tool.lanewise]\nignore = ['LAU']\n[tool.lanewise.budget]\nforbid = ['LAU101']\n")
    result = CliRunner().invoke(cli, ["check", str(MNIST)])
    assert isinstance(result.exception, LanewiseError)
    assert "forbids LAU101, which pyproject.toml leaves out" in str(result.exception)
    write(project, "[tool.lanewise]\nignore = ['LAU102']\n[tool.lanewise.budget]\nforbid = ['LAU']\n")
    assert CliRunner().invoke(cli, ["check", str(MNIST)]).exit_code == 1
    write(
        project,
        "[tool.lanewise.thresholds]\nLAU101 = { launches_from = 100000 }\n[tool.lanewise.budget]\nforbid = ['LAU101']\n",
    )
    assert CliRunner().invoke(cli, ["check", str(MNIST)]).exit_code == 0
