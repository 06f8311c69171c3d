"""`lanewise fix` as a tool of a project: exit codes, comments, folders, single changes, tests as the judge, blame."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("libcst") is None:
    pytest.skip("edits sources", allow_module_level=True)

from lanewise.edit.blame import bad_ones
from lanewise.edit.left_over import keep, put_back_left
from lanewise.edit.rewrite import rewrite
from lanewise.edit.scripts import scripts_in, used_by_others
from lanewise.edit.source_text import write_source
from lanewise.errors import LanewiseError
from tests.support.command import lanewise

WAITS = "import torch\n\nx = torch.ones(3)\nx.sum().item()\n"
CHAIN = "def f(x):\n    return torch.sin(x) * x + torch.exp(-x)\n"


def fix(*words: object, cwd: Path, answers: str = "") -> subprocess.CompletedProcess[str]:
    return lanewise("fix", *words, cwd=cwd, stdin=answers)


def test_with_check_the_exit_code_says_whether_anything_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(WAITS)
    (tmp_path / "b.py").write_text("import torch\n")
    done = fix("--check", "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "a.py:4: unused-wait" in done.stderr
    assert "@@" in fix("--check", "--diff", "a.py", cwd=tmp_path).stdout
    assert fix("--check", "b.py", cwd=tmp_path).returncode == 0
    assert fix("a.py", cwd=tmp_path).returncode == 0
    both = fix("--check", "--apply", "a.py", cwd=tmp_path)
    assert both.returncode == 2
    assert "--check changes nothing" in both.stderr


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("x.sum().item()", True),
        ("x.sum().item()  # lanewise: ignore[unused-wait]", False),
        ("x.sum().item()  # lanewise: ignore", False),
        ("x.sum().item()  # for a log  # lanewise: ignore[zero-grad, unused-wait]", True),  # another comment's text
        ("x.sum().item()  # lanewise: ignore[zero-grad, unused-wait]", False),
        ("x.sum().item()  # lanewise: ignore[zero-grad]", True),
        ("# lanewise: ignore[unused-wait]\nx.sum().item()", False),
        ("# lanewise: ignore[unused-wait]\n\nx.sum().item()", True),
        ("y = '# lanewise: ignore'\nx.sum().item()", True),
        ("x.sum(\n    dim=0,  # lanewise: ignore[unused-wait]\n).item()", False),
    ],
)
def test_a_comment_declines_an_edit_at_its_line(line: str, made: bool) -> None:
    source = f"import torch\n\nx = torch.ones(3)\n{line}\n"
    assert rewrite(source).changed == made


def test_a_comment_at_a_function_is_one_at_its_header() -> None:
    call = "\n\nf(torch.ones(3))\n"
    assert rewrite(f"import torch\n\n\n{CHAIN}{call}", only=["compile-region"]).changed
    header = CHAIN.replace("(x):", "(x):  # lanewise: ignore[compile-region]")
    assert not rewrite(f"import torch\n\n\n{header}{call}").changed
    inside = CHAIN.replace("exp(-x)", "exp(-x)  # lanewise: ignore[compile-region]")
    assert rewrite(f"import torch\n\n\n{inside}{call}").changed


def test_one_place_is_chosen_by_its_line() -> None:
    source = f"{WAITS}x.max().item()\nx.min().item()\n"
    assert [one.line for one in rewrite(source).suggestions] == [4, 5, 6]
    assert "x.max().item()" not in rewrite(source, only=["unused-wait:5"]).after
    assert rewrite(source, only=["unused-wait:5"]).after.count(".item()") == 2
    assert rewrite(source, skip=["unused-wait:5"]).after.count(".item()") == 1


def test_lines_are_those_of_the_file_though_edits_before_moved_them() -> None:
    source = (
        "import torch\n\nheld = torch.ones(1, 2)\nfor _ in range(3):\n"
        "    held = torch.cat([held, torch.ones(1, 2)], dim=0)\nx = torch.ones(3)\nx.sum().item()\n"
        f"\n\n{CHAIN}\n\nf(x)\n"
    )
    lines = {one.name: one.line for one in rewrite(source).suggestions}
    assert lines == {"growing-cat": 5, "unused-wait": 7, "compile-region": 10}
    for name, line in lines.items():
        (alone,) = rewrite(source, only=[f"{name}:{line}"]).suggestions
        assert (alone.name, alone.line) == (name, line)


def test_changes_are_picked_one_by_one(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(f"{WAITS}x.max().item()\n")
    done = fix("--pick", "--apply", "--no-proof", "a.py", cwd=tmp_path, answers="n\ny\n")
    assert done.returncode == 0, done.stderr
    assert script.read_text() == WAITS
    assert done.stderr.count("make this change?") == 2


def test_a_folder_is_fixed_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".venv").mkdir()
    for name in ("a.py", "sub/b.py", ".venv/c.py"):
        (tmp_path / name).write_text(WAITS)
    (tmp_path / "broken.py").write_text("def (:")
    done = fix(".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("-x.sum().item()") == 2
    assert "broken.py" in done.stderr
    assert subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, cwd=tmp_path).returncode == 0
    assert "item" not in (tmp_path / "sub" / "b.py").read_text()
    assert "item" in (tmp_path / ".venv" / "c.py").read_text()
    unjudged = fix("--apply", ".", cwd=tmp_path)
    assert unjudged.returncode == 2
    assert "--test COMMAND" in unjudged.stderr


def test_what_other_files_use_is_not_known_to_be_safe(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(f"import torch\n\n\n{CHAIN}\n\nf(torch.ones(3))\n")
    assert "parts.py:4: compile-region" in fix("parts.py", cwd=tmp_path).stderr
    (tmp_path / "main.py").write_text("from parts import f\n")
    done = fix(".", cwd=tmp_path)
    assert "compile-region" not in done.stderr
    assert "1 more edit may change results" in done.stderr
    texts = [(path, path.read_text()) for path in scripts_in(tmp_path)]
    assert used_by_others(texts) == {tmp_path / "parts.py"}


TESTED = "import torch\n\n\ndef f():\n    x = torch.ones(3)\n    x.sum().item()\n    x.max().item()\n    return x\n"
JUDGE = """
import sys
text = open("a.py").read()
print("said so")
sys.exit({})
"""


def judged(tmp_path: Path, verdict: str, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "a.py").write_text(TESTED)
    (tmp_path / "judge.py").write_text(JUDGE.format(verdict))
    return fix("--test", f"{sys.executable} judge.py", *words, "a.py", cwd=tmp_path)


def test_a_command_that_passes_lets_edits_be_written(tmp_path: Path) -> None:
    done = judged(tmp_path, "0", "--apply")
    assert done.returncode == 0, done.stderr
    assert "passes with the edits: said so" in done.stderr
    assert (tmp_path / "a.py").read_text().count(".item()") == 0


def test_without_apply_the_files_are_as_before(tmp_path: Path) -> None:
    done = judged(tmp_path, "0")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.py").read_text() == TESTED


def test_a_command_that_fails_names_the_edit_and_leaves_the_files(tmp_path: Path) -> None:
    done = judged(tmp_path, "'max' not in text", "--apply")
    assert done.returncode == 1
    assert "fails with the edits: said so" in done.stderr
    assert "a.py:7: unused-wait does it: --skip unused-wait:7" in done.stderr
    assert "a.py:6: unused-wait does it" not in done.stderr
    assert (tmp_path / "a.py").read_text() == TESTED
    again = judged(tmp_path, "'max' not in text", "--apply", "--skip", "unused-wait:7")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "a.py").read_text().count(".item()") == 1


WAITING = """
import os, sys, time
if open("a.py").read().count(".item()") < 2:
    open("judging", "w").close()
    while os.path.exists("judging"):
        time.sleep(0.01)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_run_that_is_ended_leaves_the_files_as_they_were(tmp_path: Path, how: str) -> None:
    (tmp_path / "a.py").write_text(TESTED)
    (tmp_path / "a.py").chmod(0o640)
    (tmp_path / "judge.py").write_text(WAITING)
    words = ["fix", "--apply", "--test", f"{sys.executable} judge.py", "a.py"]
    running = subprocess.Popen([sys.executable, "-m", "lanewise", *words], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        for _ in range(6000):
            if (tmp_path / "judging").exists() or running.poll() is not None:
                break
            time.sleep(0.01)
        assert (tmp_path / "judging").exists()
        assert (tmp_path / "a.py").read_text() != TESTED, "it is judged in its file"
        running.send_signal(getattr(signal, how))
        running.communicate(timeout=60)
    finally:
        (tmp_path / "judging").unlink(missing_ok=True)
    if how == "SIGKILL":
        done = fix("--check", "a.py", cwd=tmp_path)
        assert "a run that was killed had left its edits in a.py" in done.stderr
    assert (tmp_path / "a.py").read_text() == TESTED
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.py", "judge.py"]


def test_what_somebody_wrote_after_a_run_was_killed_stays(tmp_path: Path) -> None:
    path, gone = tmp_path / "a.py", subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path.write_text("x = 1\n")
    copies = [tmp_path / f".a-lanewise-fix-{number}.py" for number in (gone.pid, os.getpid())]
    for one in copies:
        one.write_text("x = 2\n")
    keep(path, b"x = 2\n")
    path.write_text("x = 3\n")
    assert not put_back_left(path)
    assert path.read_text() == "x = 3\n"
    assert [one.exists() for one in copies] == [False, True], "another run may be at work"
    assert not (tmp_path / ".a.py.lanewise-before").exists()


def test_a_file_is_written_as_a_whole_and_a_link_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text("x = 1\n")
    link.symlink_to(path)
    write_source(link, "x = 2\n", "utf-8")
    assert link.is_symlink()
    assert path.read_text() == "x = 2\n"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(LanewiseError, match="No space left"):
        write_source(path, "x = 3\n", "utf-8")
    assert path.read_text() == "x = 2\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_command_that_fails_anyway_judges_nothing(tmp_path: Path) -> None:
    done = judged(tmp_path, "1", "--apply")
    assert done.returncode == 1
    assert "fails without the edits, too: said so" in done.stderr
    assert (tmp_path / "a.py").read_text() == TESTED


def test_a_command_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TESTED)
    for command in ("nowhere-to-be-found -q", ""):
        done = fix("--test", command, "a.py", cwd=tmp_path)
        assert done.returncode == 2
        assert "--test cannot run" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("bad", [[], [0], [4], [7], [2, 5], [0, 1, 7]])
def test_bad_edits_are_found_by_halving(bad: list[int]) -> None:
    asked: list[Sequence[int]] = []

    def holds(some: Sequence[int]) -> bool:
        asked.append(some)
        return not set(some) & set(bad)

    assert sorted(bad_ones(range(8), holds)) == bad
    assert len(asked) <= 1 + 4 * len(bad)


def test_the_edit_that_changes_the_output_is_named(tmp_path: Path) -> None:
    from lanewise.edit.prove import prints_the_same
    from lanewise.edit.source_text import read_source

    script = tmp_path / "a.py"
    script.write_text("print(sum([1.0, 1.0]))\n")
    source, known = read_source(script), list[str]()
    assert prints_the_same(script, source, [], known)
    assert known == ["2.0\n"]
    assert not prints_the_same(script, source._replace(text="print(3.0)\n"), [], known)
    assert not prints_the_same(script, source._replace(text="raise SystemExit(3)\n"), [], known)
    assert list(tmp_path.glob("*")) == [script]
