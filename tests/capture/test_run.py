"""`lanewise run` as a user meets it: a process, its output, its exit code, the files it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.command import lanewise
from tests.support.descent import DESCENT

pytest.importorskip("torch")

SOURCE = str(Path(__file__).parents[2] / "src")

TRAIN = (
    DESCENT
    + """
import sys
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = Descent(model.parameters())
x = torch.ones(4, 16)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
)


class Ran:
    """One finished run."""

    def __init__(self, folder: Path, words: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> None:
        self.folder = folder
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        found = sorted(folder.glob("lanewise-out/*.json.gz"))
        self.trace = found[0] if found else None

    @property
    def facts(self) -> dict[str, object]:
        from lanewise.trace.reader import read

        assert self.trace is not None, self.err
        return dict(read(str(self.trace), cache=False).metadata["lanewise"])

    @property
    def explained(self) -> bool:
        return "evidence and tables" in self.err


class Shell:
    """Runs `lanewise run` in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

    def script(self, body: str, name: str = "program.py") -> str:
        (self.folder / name).write_text(textwrap.dedent(body))
        return name

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "lanewise", "run", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str) -> Ran:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return Ran(self.folder, words, subprocess.CompletedProcess(words, process.returncode, out, err))


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.started:
        process.kill()  # does nothing to one that has ended
        process.communicate()


def test_a_model_called_once_before_its_compiled_self_makes_steps(shell: Shell) -> None:
    """A prompt read eagerly, then compiled steps: the compiler is loaded, and starts, inside the second call."""
    name = shell.script("""
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(8, 8)
            def forward(self, x):
                return self.inner(x).relu()
        model = Model()
        call = torch.compile(model, backend="eager")
        with torch.no_grad():
            model(torch.ones(2, 8))
            for _ in range(40):
                call(torch.ones(4, 8))
    """)
    ran = shell.run("--active", "5", "--no-explain", name)
    assert ran.code == 0
    assert ran.trace is not None, ran.err


def test_a_training_script_is_recorded_explained_and_unchanged(shell: Shell) -> None:
    train = TRAIN.replace("Descent(model.parameters())", "torch.optim.SGD(model.parameters(), 0.1)")
    name = shell.script(train + "train(int(sys.argv[1]))\nprint('loss', 1.5)\nprint('to stderr', file=sys.stderr)\n")
    ran = shell.run("--active", "5", name, "60", "--token=secret")
    assert (ran.code, ran.out) == (0, "loss 1.5\n")
    assert ran.err.index("to stderr") < ran.err.index("evidence and tables")
    facts = ran.facts
    assert (facts["step_source"], facts["active"]) == ("optimizer", 5)
    assert facts["modules"] == [["", "Sequential"], ["0", "Linear"], ["1", "ReLU"], ["2", "Linear"]]
    assert facts["command"] == ["python", "program.py", "60", "--token=..."]
    assert {"versions", "torch", "host"} <= set(facts["environment"])  # type: ignore[call-overload]
    assert "per step without the profiler, as measured" in ran.err
    report = json.loads((shell.folder / "lanewise-out" / "program.report.json").read_text())
    assert report["steps"]["count"] == 5
    assert sorted(os.listdir(shell.folder / "lanewise-out")) == ["program.json.gz", "program.report.json"]


def test_a_script_that_raises_keeps_its_traceback_and_its_recording(shell: Shell) -> None:
    name = shell.script(TRAIN + "train(40)\ndef fail():\n    raise ValueError('boom')\nfail()\n")
    ran = shell.run("--active", "100", name)
    assert ran.code == 1
    trace = ran.err[ran.err.index("Traceback") :].splitlines()
    assert [line.split(", line")[0] for line in trace[1:5:2]] == [f'  File "{shell.folder}/program.py"'] * 2
    assert "ValueError: boom" in trace
    assert "lanewise" not in ran.err[ran.err.index("Traceback") : ran.err.index("ValueError: boom")]
    assert ran.facts["stopped_by"] == "exception"
    assert ran.explained


def test_exit_codes_pass_and_exit_handlers_come_first(shell: Shell) -> None:
    name = shell.script(
        TRAIN + "import atexit\natexit.register(print, 'bye', file=sys.stderr)\ntrain(60)\nsys.exit(7)\n"
    )
    ran = shell.run("--quick", name)
    assert ran.code == 7
    assert ran.err.index("bye") < ran.err.index("evidence and tables")


def test_control_c_saves_explains_and_ends_by_the_signal(shell: Shell) -> None:
    name = shell.script(TRAIN + "train(60)\nprint('ready', flush=True)\nwhile True:\n    train(1)\n")
    process = shell.start("--active", "1000000", "--max-size", "1000", name)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    ran = Ran(shell.folder, (), subprocess.CompletedProcess([], process.returncode, out, err))
    assert ran.code == -signal.SIGINT
    assert "KeyboardInterrupt" in ran.err
    assert ran.facts["stopped_by"] == "interrupt"
    assert ran.explained


@pytest.mark.parametrize(("end", "code"), [("os._exit(5)", 5), ("os.kill(os.getpid(), 15)", -15)])
def test_a_program_that_is_gone_at_once_leaves_its_trace(shell: Shell, end: str, code: int) -> None:
    # Killed after its recorded steps: nothing of ours runs any more.
    ran = shell.run("--active", "5", shell.script(TRAIN + f"import os\ntrain(35)\nprint('out', flush=True)\n{end}\n"))
    assert (ran.code, ran.out) == (code, "out\n")
    assert ran.facts["active"] == 5
    assert os.listdir(shell.folder / "lanewise-out") == ["program.json.gz"]


def test_forked_children_are_left_alone(shell: Shell) -> None:
    body = """
import os
train(25)
pid = os.fork()
if pid == 0:
    train(80)
    print("child", flush=True)
    sys.exit(3)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
train(60)
print("parent", code)
"""
    ran = shell.run("--active", "5", shell.script(TRAIN + body))
    assert (ran.code, ran.out) == (0, "child\nparent 3\n")
    assert ran.err.count("evidence and tables") == 1
    assert ran.facts["active"] == 5
    assert sorted(os.listdir(shell.folder / "lanewise-out")) == ["program.json.gz", "program.report.json"]


def test_a_step_that_raises_in_the_middle_ends_the_recording_there(shell: Shell) -> None:
    body = """
def bad(*_):
    raise RuntimeError("inside forward")
train(30)
model[1].register_forward_pre_hook(bad)
train(1)
"""
    ran = shell.run("--active", "100", "--no-explain", shell.script(TRAIN + body))
    assert ran.code == 1
    assert ran.err.count("RuntimeError: inside forward") == 1
    assert ran.facts["stopped_by"] == "exception"


def test_a_full_disk_costs_the_program_nothing(shell: Shell) -> None:
    # No file may grow beyond 100 kB: the export itself fails, wherever it goes.
    body = """
import resource, signal, sys
sys.dont_write_bytecode = True  # cut short, it would stay beside the sources
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
train(80)
print('done')
"""
    ran = shell.run(shell.script(TRAIN + body))
    assert (ran.code, ran.out) == (0, "done\n")
    assert "Traceback" not in ran.err
    assert "is full" in ran.err
    assert list(shell.folder.glob("lanewise-out/*")) == []


def test_stop_ends_the_program_and_its_finally_blocks_run(shell: Shell) -> None:
    body = "try:\n    while True:\n        train(1)\nfinally:\n    print('closed')\n"
    ran = shell.run("--stop", "--no-explain", "--active", "5", shell.script(TRAIN + body))
    assert (ran.code, ran.out) == (0, "closed\n")
    assert ran.facts["active"] == 5


def test_a_plain_script_finds_its_step_function(shell: Shell) -> None:
    name = shell.script("""
        import torch
        def add(x):
            return torch.add(x @ x, x)
        x = torch.ones(8, 8)
        for _ in range(30):
            add(x)
        print(add.__name__)
    """)
    ran = shell.run("--no-explain", name)
    assert (ran.code, ran.out) == (0, "add\n")
    assert (ran.facts["step_source"], ran.facts["step_label"]) == ("function", "add")


def test_a_script_without_steps_is_recorded_whole(shell: Shell) -> None:
    ran = shell.run(shell.script("import torch\nprint(int((torch.ones(3) + 1).sum()))\n"))
    assert (ran.code, ran.out) == (0, "6\n")
    assert (ran.facts["step_source"], ran.facts["stopped_by"]) == ("none", "program ended")
    assert ran.explained


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('no torch here')\n", "never imported torch"),
        pytest.param(TRAIN + "train(5)\nprint('no torch here')\n", "--whole", marks=pytest.mark.slow),
        (TRAIN + "train(10)\nprint('no torch here')\n", "--quick"),
        pytest.param(TRAIN + "print('no torch here')\n", "--step-on", marks=pytest.mark.slow),
    ],
)
def test_nothing_to_record_is_said_and_nothing_else_happens(shell: Shell, body: str, said: str) -> None:
    ran = shell.run(shell.script(body))
    assert (ran.code, ran.out, ran.trace) == (0, "no torch here\n", None)
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (shell.folder / "lanewise-out").exists()


def test_a_program_with_its_own_profiler_is_left_to_it(shell: Shell) -> None:
    body = """
with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
                            on_trace_ready=lambda p: p.export_chrome_trace("mine.json")) as p:
    for _ in range(8):
        train(1)
        p.step()
print(len(p.key_averages()) > 0)
"""
    ran = shell.run(shell.script(TRAIN + body))
    assert (ran.code, ran.out) == (0, "True\n")
    assert ran.explained
    assert "mine.json" in ran.err
    assert json.loads((shell.folder / "mine.json").read_text()).get("lanewise") is None


def test_json_goes_to_stdout_after_the_programs_output(shell: Shell) -> None:
    ran = shell.run("--json", "--quiet", "--quick", shell.script(TRAIN + "train(30)\nprint('first')\n"))
    first, _, rest = ran.out.partition("\n")
    assert first == "first"
    assert json.loads(rest)["steps"]["count"] == 3


@pytest.mark.slow
def test_a_module_and_code_run_too(shell: Shell) -> None:
    shell.script(TRAIN + "train(60)\nprint(__name__, sys.argv[1:])\n", "tool.py")
    ran = shell.run("--quick", "-m", "tool", "--stop", "-m")
    assert (ran.code, ran.out) == (0, "__main__ ['--stop', '-m']\n")
    assert ran.trace is not None
    assert ran.trace.name == "tool.json.gz"
    ran = shell.run("--whole", "--redact", "-c", "import torch; print(torch.ones(2).sum().item())")
    assert ran.out == "2.0\n"


@pytest.mark.skipif(
    os.geteuid() == 0 and not os.path.exists("/dev/full"), reason="needs a place that cannot be written"
)
def test_a_disk_that_cannot_be_written_costs_the_program_nothing(shell: Shell) -> None:
    (shell.folder / "lanewise-out").write_text("a file in the way")
    ran = shell.run("--quick", shell.script(TRAIN + "train(60)\nprint('done')\n"))
    assert (ran.code, ran.out) == (0, "done\n")
    assert "cannot write to" in ran.err
    assert ran.explained


@pytest.mark.slow
def test_ranks_write_their_own_files_and_one_reports(shell: Shell) -> None:
    name = shell.script(TRAIN + "train(40)\n")
    processes = []
    for rank in range(2):
        shell.environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        processes.append(shell.start("--quick", name))
    errors = [process.communicate(timeout=120)[1] for process in processes]
    traces = sorted(path.name for path in (shell.folder / "lanewise-out").glob("*.json.gz"))
    assert traces == ["program-rank0.json.gz", "program-rank1.json.gz"]
    assert ["evidence and tables" in error for error in errors] == [True, False]


def test_after_an_exception_the_first_rank_hardly_waits_for_the_others(shell: Shell) -> None:
    """They may wait for it in a collective, and the launcher ends them only once it has ended."""
    name = shell.script("""
        import os, time
        if os.environ["RANK"] == "1":
            print("begun", flush=True)
            time.sleep(100)
        raise ValueError("a bug of the program")
    """)
    shell.environment |= {"WORLD_SIZE": "2", "RANK": "1"}
    other = shell.start(name)
    assert other.stdout is not None
    assert other.stdout.readline() == "begun\n"
    shell.environment["RANK"] = "0"
    begun = time.monotonic()
    ran = shell.run(name)
    assert time.monotonic() - begun < 40
    assert ran.code == 1
    assert "a bug of the program" in ran.err
    assert "rank 1 is still running" in ran.err


@pytest.mark.slow
def test_torchrun_gives_every_rank_a_recording(shell: Shell) -> None:
    name = shell.script(TRAIN + "import os\ntrain(40)\nprint('rank', os.environ['RANK'], sys.argv[1:])\n")
    ran = shell.run("--quick", "torchrun", "--nproc-per-node", "2", name, "--lr", "1")
    assert ran.code == 0, ran.err
    # Two processes write to one pipe: their line ends may come in any order.
    assert all(ran.out.count(f"rank {rank} ['--lr', '1']") == 1 for rank in (0, 1)), ran.out
    assert sorted(path.name for path in (shell.folder / "lanewise-out").glob("*.json.gz")) == [
        "program-rank0.json.gz",
        "program-rank1.json.gz",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what to run?"),
        (["nosuch.py"], "no such script"),
        (["--active", "many", "x.py"], "--active"),
        (["--no-such-option", "x.py"], "--no-such-option"),
        (["-m"], "-m needs a module"),
        (["--whole", "--step-on", "f", __file__], "choose one"),
    ],
)
def test_wrong_options_are_one_line_and_code_2(tmp_path: Path, words: list[str], said: str) -> None:
    ran = lanewise("run", *words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_torch_the_line_says_so(shell: Shell) -> None:
    body = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else real(name, *a)\n"
        f"sys.argv = ['lanewise', 'run', {shell.script('print(1)')!r}]\n"
        "from lanewise.cli.main import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", body],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lanewise: recording needs torch, which is not installed here: pip install torch\n"


@pytest.mark.slow
def test_doctor_says_what_can_be_recorded(shell: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lanewise", "doctor", "--json"],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["can_record"]) == (0, True)
    checks = {check["name"]: check for check in answer["checks"]}
    assert checks["stacks"]["ok"]
    assert checks["device work"]["text"]


def test_the_report_obeys_the_settings_of_where_the_run_was_started(shell: Shell) -> None:
    (shell.folder / "elsewhere").mkdir()
    (shell.folder / "pyproject.toml").write_text("[tool.lanewise]\nignore = ['MEA']\n")
    script = shell.script(TRAIN + "import os\nos.chdir('elsewhere')\ntrain(60)\n")
    ran = shell.run(script)
    assert ran.explained
    assert "ignore MEA" in (shell.folder / "lanewise-out" / "program.report.json").read_text()
    (shell.folder / "pyproject.toml").write_text("[tool.lanewise]\nignore = ['XYZ']\n")
    wrong = shell.run(script)
    # The program's exit code is its own, and its recording stays.
    assert wrong.code == 0
    assert "tool.lanewise.ignore: no rule's code begins with 'XYZ'" in wrong.err
    assert wrong.trace is not None


def test_the_path_is_printed_when_recording_ends_as_one_writes_it_where_the_command_was_given(shell: Shell) -> None:
    (shell.folder / "elsewhere").mkdir()
    name = shell.script(f"import os\nos.chdir('elsewhere')\n{TRAIN}\ntrain(600)\nprint('the end', file=sys.stderr)\n")
    ran = shell.run(name)
    lines = ran.err.splitlines()
    told = lines.index("lanewise: trace in lanewise-out/program.json.gz")
    assert told < lines.index("the end")
    assert ran.explained
    assert "lanewise explain lanewise-out/program.json.gz --full" in " ".join(lines[told:])
