"""What reads the traces of a job: processes here, Ray and Dask where they are installed; all of them alike."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lanewise.errors import MissingDependencyError, UsageError
from lanewise.measure.distributed.gathering import processes as module
from lanewise.measure.distributed.gathering.executor import Executor, executor_for
from lanewise.measure.distributed.gathering.processes import Processes
from lanewise.measure.distributed.gathering.read_ranks import read_ranks
from tests.support.corpus import REPOSITORY
from tests.support.real_jobs import PIPELINE, job_paths

ECHO = "tests.support.named_tasks:echo"


@pytest.fixture(autouse=True)
def tasks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src"), before]))


def test_answers_come_in_the_order_of_the_names() -> None:
    names = [f"trace {number}\n" for number in range(20)]
    answers = list(Processes(3).each(ECHO, names, cache=True))
    assert answers == [f"{name} True".encode() for name in names]


def test_a_process_that_ends_costs_that_trace_only() -> None:
    names = ["one", "dies", "two", "dies again", "three", "prints"]
    answers = list(Processes(2).each(ECHO, names, cache=False))
    assert answers == [b"one False", None, b"two False", None, b"three False", b"prints False"]


def test_without_a_python_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", shutil.which("false"))
    assert list(Processes(2).each(ECHO, ["a", "b", "c"], cache=False)) == [None] * 3


def test_whoever_stops_asking_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[module.subprocess.Popen[bytes]] = []
    real = module.subprocess.Popen

    def noted(*words: object, **options: object) -> module.subprocess.Popen[bytes]:
        started.append(real(*words, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", noted)
    answers = Processes(2).each(ECHO, [f"trace {number}" for number in range(50)], cache=False)
    assert next(answers) == b"trace 0 False"
    answers.close()  # type: ignore[attr-defined]
    assert started
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize("way", ["", "threads", "processes=many", "processes=0", "processes=²", "daskk"])
def test_another_way_is_refused_with_those_there_are(way: str) -> None:
    with pytest.raises(UsageError, match="processes, ray, dask"):
        executor_for(way)


@pytest.mark.parametrize(("way", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_without_its_package_the_line_says_what_to_install(
    way: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'lanewise\[{way}\]'"):
        executor_for(way)


@pytest.fixture(params=["ray", "dask"])
def cluster(request: pytest.FixtureRequest) -> Executor:
    """A local cluster of two workers."""
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[request.param])
    return executor_for(request.param)


@pytest.mark.slow
def test_a_cluster_says_what_processes_say(cluster: Executor, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("no trace")
    names = [*(str(path) for path in job_paths(PIPELINE)), str(tmp_path / "broken.json")]
    found = read_ranks(names, cache=False, executor=cluster)
    assert len(found.ranks) == 4
    assert [Path(name).name for name, _ in found.unreadable] == ["broken.json"]
    assert found == read_ranks(names, cache=False, executor=Processes(2))


@pytest.mark.slow
def test_in_a_cluster_a_worker_that_ends_costs_that_trace_only(cluster: Executor) -> None:
    names = ["one", "dies", *(f"trace {number}" for number in range(6))]
    answers = list(cluster.each(ECHO, names, cache=True))
    assert answers == [b"one True", None, *(f"{name} True".encode() for name in names[2:])]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "package"), [("ray=127.0.0.1:1", "ray"), ("dask=tcp://127.0.0.1:1", "distributed")])
def test_a_cluster_that_is_not_there_is_one_line(way: str, package: str) -> None:
    pytest.importorskip(package)
    with pytest.raises(UsageError, match=r"no (Ray cluster|Dask scheduler) at"):
        list(executor_for(way).each(ECHO, ["one"], cache=False))
