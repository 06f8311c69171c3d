"""`LANEWISE_WATCH`: watched without a change of the command, and never at the program's expense."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from lanewise.cli.recording.watch_asked import OPTIONS, VARIABLE, read_options
from lanewise.tree.tree_file import load
from tests.support.corpus import REPOSITORY

pytest.importorskip("torch")

PACKAGES = [*(path for path in sys.path if path.endswith("site-packages")), str(REPOSITORY / "src")]
PROGRAM = """
import sys
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
for _ in range(12):
    net(torch.randn(2, 8)).sum().backward()
print("done", sys.argv[1:])
sys.exit(7)
"""
SPAWNING = """
import multiprocessing
import torch
def work(_):
    return float(torch.nn.Linear(4, 4)(torch.ones(1, 4)).sum().item())
if __name__ == "__main__":
    net = torch.nn.Linear(4, 4)
    for _ in range(4):
        net(torch.ones(1, 4))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(work, [1, 2])
"""
STARTING = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, sys.argv[1]]).returncode)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own with the packages of this one, and the hook in it."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    made = home / "bin" / "python"
    packages = Path(said(made, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip())
    (packages / "a_packages.pth").write_text("\n".join(PACKAGES) + "\n")
    installed = said(made, "-m", "lanewise", "watch", "--install-hook")
    assert installed.returncode == 0, installed.stderr
    assert str(packages) in installed.stdout
    return made


def said(
    python: Path | str, *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWISE_WATCH", "PYTHONPATH"))}
    return subprocess.run(
        [str(python), *map(str, words)], env={**kept, **variables}, cwd=cwd, capture_output=True, text=True, timeout=300
    )


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_program_is_watched_by_the_hook_alone(python: Path, tmp_path: Path) -> None:
    script = written(tmp_path, PROGRAM)
    result = said(python, script, "--epochs", "1", cwd=tmp_path, LANEWISE_WATCH="run.lw")
    assert result.stdout == "done ['--epochs', '1']\n"
    assert result.returncode == 7
    tree = load(tmp_path / "run.lw")
    assert tree.info.step_count
    assert any("train.py" in text for text in tree.strings)
    again = said(python, script, cwd=tmp_path, LANEWISE_WATCH="run.lw")
    assert again.returncode == 7
    assert load(tmp_path / "run-2.lw").info.step_count


def test_without_the_variable_nothing_of_ours_is_there(python: Path, tmp_path: Path) -> None:
    script = written(
        tmp_path, "import sys; print([m for m in sys.modules if 'lanewise' in m], *sys.meta_path, sep='\\n')"
    )
    plain = said(python, script, cwd=tmp_path)
    assert plain.stderr == ""
    assert plain.stdout.startswith("[]\n")
    assert "ImportWatch" not in plain.stdout


def test_an_import_is_enough_without_the_hook(tmp_path: Path) -> None:
    script = written(tmp_path, "import lanewise\n" + PROGRAM)
    result = said(sys.executable, script, cwd=tmp_path, LANEWISE_WATCH="run.lw", PYTHONPATH=str(REPOSITORY / "src"))
    assert result.returncode == 7
    assert load(tmp_path / "run.lw").info.step_count


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({VARIABLE: "nowhere/run.lw"}, "there is no folder"),
        ({VARIABLE: "run.lw", OPTIONS: "every=often"}, "every is a number"),
        pytest.param({VARIABLE: "run.lw", OPTIONS: "evry=5"}, "it takes every=", marks=pytest.mark.slow),
        pytest.param({VARIABLE: "run.lw", OPTIONS: "every=2 steps=5"}, "steps between", marks=pytest.mark.slow),
    ],
    ids=["no folder", "no number", "no option", "steps beyond every"],
)
def test_what_cannot_be_watched_runs_as_it_would(
    python: Path, tmp_path: Path, variables: dict[str, str], why: str
) -> None:
    result = said(python, written(tmp_path, PROGRAM), cwd=tmp_path, **variables)
    assert result.stdout == "done []\n"
    assert result.returncode == 7
    assert len(result.stderr.splitlines()) == 1
    assert why in result.stderr
    assert not list(tmp_path.glob("*.lw"))


def test_a_hook_without_the_package_is_one_line(python: Path, tmp_path: Path) -> None:
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    paths = packages / "a_packages.pth"
    before = paths.read_text()
    paths.write_text("")
    try:
        result = said(python, "-c", "print('fine')", LANEWISE_WATCH=str(tmp_path / "run.lw"))
    finally:
        paths.write_text(before)
    assert result.stdout == "fine\n"
    assert result.returncode == 0
    assert result.stderr == "lanewise: not watched: No module named 'lanewise'\n"


@pytest.mark.slow
def test_workers_are_left_alone_and_ranks_are_not(python: Path, tmp_path: Path) -> None:
    script = written(tmp_path, SPAWNING)
    assert said(python, script, cwd=tmp_path, LANEWISE_WATCH="run.lw").returncode == 0
    assert [path.name for path in tmp_path.glob("*.lw")] == ["run.lw"]
    for rank in ("0", "1"):
        result = said(python, script, cwd=tmp_path, LANEWISE_WATCH="job.lw", RANK=rank, WORLD_SIZE="2")
        assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.glob("job*.lw")} == {"job-rank0.lw", "job-rank1.lw"}


def test_a_script_that_starts_the_program_is_none_to_watch(python: Path, tmp_path: Path) -> None:
    script, starter = written(tmp_path, PROGRAM), written(tmp_path, STARTING, "start.py")
    result = said(python, starter, script, cwd=tmp_path, LANEWISE_WATCH="run-{pid}.lw")
    assert result.returncode == 7
    (path,) = tmp_path.glob("run-*.lw")
    assert any("train.py" in text for text in load(path).strings)


def test_the_command_line_comes_before_the_environment(python: Path, tmp_path: Path) -> None:
    script = written(tmp_path, PROGRAM)
    result = said(
        python, "-m", "lanewise", "watch", "-o", tmp_path / "asked.lw", script, cwd=tmp_path, LANEWISE_WATCH="run.lw"
    )
    assert result.returncode == 7
    assert [path.name for path in tmp_path.glob("*.lw")] == ["asked.lw"]


def test_modules_beside_the_script_are_the_programs(python: Path, tmp_path: Path) -> None:
    written(tmp_path, "import msgspec\nfrom queue import mine\n" + PROGRAM.replace('"done"', "mine, msgspec.mine"))
    written(
        tmp_path,
        "mine = 'own queue'\nclass Empty(Exception): pass\nclass Queue: pass\nSimpleQueue = Full = Queue",
        "queue.py",
    )
    written(tmp_path, "mine = 'own msgspec'", "msgspec.py")
    plain = said(python, "train.py", cwd=tmp_path)
    watched = said(python, "train.py", cwd=tmp_path, LANEWISE_WATCH="run.lw")
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode)


def test_a_path_that_names_the_installed_packages_changes_nothing(python: Path, tmp_path: Path) -> None:
    """As on many clusters. What we loaded is what the program loads: numpy can be loaded once by a process."""
    numpy = pytest.importorskip("numpy")
    script = written(tmp_path, PROGRAM)
    packages = Path(numpy.__file__).parents[1]
    result = said(python, "-m", "lanewise", "watch", "-o", "run.lw", script, cwd=tmp_path, PYTHONPATH=str(packages))
    assert result.returncode == 7, result.stderr
    assert (tmp_path / "run.lw").exists()


def test_the_hook_goes_as_it_came(python: Path) -> None:
    removed = said(python, "-m", "lanewise", "watch", "--remove-hook")
    assert removed.stdout.startswith("removed ")
    assert said(python, "-m", "lanewise", "watch", "--remove-hook").stdout.startswith("there is no hook")
    assert said(python, "-m", "lanewise", "watch", "--install-hook").returncode == 0


def test_options() -> None:
    options = read_options("every=50 steps=2 step_on=train:step device=no save_every=0.5")
    assert (options["every"], options["steps"], options["step_on"]) == (50, 2, "train:step")
    assert options["device"] is False
    assert options["frames"] is True
    assert options["save_every"] == 0.5
    with pytest.raises(ValueError, match="yes or no"):
        read_options("frames=maybe")
