"""What stands around a recording: the machine record, imports, standard error, distorted worlds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanewise.capture import machine as environment
from lanewise.capture.boundaries.import_hooks import ImportWatch
from lanewise.capture.profiling.stderr import profiler_messages

SOURCE = str(Path(__file__).parents[2] / "src")


def test_the_machine_record_names_no_person_and_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass
    import socket

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"/home/{getpass.getuser()}/cache")
    monkeypatch.setenv("CUDA_SECRET_TOKEN", "hush")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    facts = environment.describe()
    text = json.dumps(facts)
    assert facts["versions"]["python"] == sys.version.split()[0]
    assert facts["variables"]["OMP_NUM_THREADS"] == "3"
    assert facts["variables"]["TORCHINDUCTOR_CACHE_DIR"] == "(a path)"
    assert "hush" not in text
    assert socket.gethostname() not in text.replace("virtual", "")
    assert os.path.expanduser("~") not in text


def test_command_lines_keep_what_matters_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "python",
        str(tmp_path / "train.py"),
        "--data=/srv/secret/place",
        "--api-key=abc",
        "--hf-token",
        "hf_1",
        "--auth",
        "--lr=0.1",
        "/etc/x.yaml",
    ]
    assert environment.command_line(words) == [
        *["python", "train.py", "--data=place", "--api-key=...", "--hf-token", "...", "--auth", "--lr=0.1", "x.yaml"]
    ]


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ([], None),
        ([None], "default"),
        (["default", "reduce-overhead"], "reduce-overhead, default"),
        pytest.param(["max-autotune"], "max-autotune", marks=pytest.mark.slow),
        pytest.param(["max-autotune-no-cudagraphs"], "max-autotune-no-cudagraphs", marks=pytest.mark.slow),
    ],
)
def test_the_mode_of_torch_compile_is_told_from_its_settings(modes: list[str | None], told: str | None) -> None:
    pytest.importorskip("torch")
    code = (
        "import sys, torch\n"
        f"kept = [torch.compile(torch.nn.Linear(2, 2), mode=mode) for mode in {modes!r}]\n"
        "from lanewise.capture import machine as environment\n"
        "print(environment.describe()['torch'].get('compile_mode'))\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(told)


def test_a_fact_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dict[str, object]:
        raise OSError("no")

    monkeypatch.setitem(environment._PARTS, "host", broken)  # pyright: ignore[reportPrivateUsage]
    assert "host" not in environment.describe()


def test_devices_in_use_are_the_current_one_and_those_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["A", "B", "C"]
    cuda = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 1, device_count=lambda: len(names),
        memory_reserved=[0, 0, 2048].__getitem__, get_device_name=names.__getitem__,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # pyright: ignore[reportArgumentType]
    assert environment.devices_in_use() == ("B", "C")
    cuda.is_initialized = lambda: False
    assert environment.devices_in_use() == ()


def test_an_import_is_noticed_once_and_the_module_is_as_if_nobody_had_looked(tmp_path: Path) -> None:
    (tmp_path / "watched_module.py").write_text("VALUE = 1\nimport watched_other\n")
    (tmp_path / "watched_other.py").write_text("")
    body = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from lanewise.capture.boundaries.import_hooks import ImportWatch
seen = []
watch = ImportWatch("watched_module", lambda: seen.append(sys.modules["watched_module"].VALUE))
watch.install()
import watched_module, importlib
loaders = watched_module.__loader__, watched_module.__spec__.loader
print(seen, *(type(loader).__name__ for loader in loaders), watch in sys.meta_path)
importlib.reload(watched_module)
print(seen)
late = ImportWatch("watched_module", lambda: seen.append("late"))
late.install()
print(seen, late in sys.meta_path)
never = ImportWatch("no_such_module", lambda: seen.append("never"))
never.install()
try:
    import no_such_module
except ModuleNotFoundError as error:
    print(error)
never.uninstall()
print(seen, never in sys.meta_path)
"""
    words = [sys.executable, "-c", body, SOURCE, str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines() == [
        "[1] SourceFileLoader SourceFileLoader False",
        "[1]",
        "[1, 'late'] False",
        "No module named 'no_such_module'",
        "[1, 'late'] False",
    ]


def test_a_watch_can_be_taken_back() -> None:
    watch = ImportWatch("some_module_that_is_not_loaded", lambda: None)
    watch.install()
    assert watch in sys.meta_path
    watch.uninstall()
    watch.uninstall()
    assert watch not in sys.meta_path


def test_the_profilers_lines_are_taken_out_and_all_others_pass(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with profiler_messages(lines):
        os.write(2, b"ERROR:2026-11-27 10:00:00 12:12 CuptiActivityApi.cpp:55] CUPTI_ERROR_MULTIPLE_SUBSCRIBERS\n")
        os.write(2, b"ERROR: External init callback must run in same thread as registerClient (-283 != 245)\n")
        os.write(2, b"the program's own line\nand one without an end")
    assert len(lines) == 2
    assert "MULTIPLE_SUBSCRIBERS" in lines[0]
    assert capfd.readouterr().err == "the program's own line\nand one without an end"


def test_standard_error_comes_back_after_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="inside"), profiler_messages([]):
        raise ValueError("inside")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_recording_imports_nothing_that_only_reading_needs() -> None:
    code = (
        "import sys; import lanewise.capture.recording, lanewise.capture.inside, lanewise.capture.recorder\n"
        "import lanewise.cli.recording.after_run, lanewise.cli.recording.watched\n"
        "print([m for m in ('torch', 'polars', 'numpy', 'msgspec', 'rich', 'click') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": SOURCE, "PATH": ""}
    )
    assert done.stdout.strip() == "[]"
