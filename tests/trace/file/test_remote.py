"""Traces in object stores, through fsspec: a file, a folder, and which of them are new."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lanewise.errors import InputError, UsageError
from lanewise.measure.distributed.gathering import rank_worker
from lanewise.measure.distributed.gathering.read_ranks import read_ranks
from lanewise.measure.distributed.rank_summary import with_shared
from lanewise.trace.file.remote import is_url, traces_at, version_of
from lanewise.trace.reader import read
from tests.support.real_jobs import PIPELINE, job_paths, job_summaries

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["memory", "file"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the ranks of a job and files that are none."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "store"))
    base = f"memory://{tmp_path.name}/job" if request.param == "memory" else f"file://{tmp_path}/job"
    (tmp_path / "job").mkdir()
    for path in job_paths(PIPELINE):
        write(f"{base}/{path.name}", path.read_bytes())
    write(f"{base}/train.report.json", b"{}")
    write(f"{base}/notes.md", b"# Notes")
    return base


def write(url: str, data: bytes) -> None:
    with fsspec.open(url, "wb") as file:
        file.write(data)


def unread(*_: object, **__: object) -> None:
    raise AssertionError("a trace was read again")


def test_a_folder_of_a_store_is_a_job(bucket: str) -> None:
    found = read_ranks([bucket])
    assert [name.rsplit("/", 1)[1] for name in found.files] == [path.name for path in job_paths(PIPELINE)]
    assert [one.contexts for one in found.ranks] == [with_shared(one, {}).contexts for one in job_summaries(PIPELINE)]


def test_only_new_files_are_read(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_ranks([bucket])
    with monkeypatch.context() as patched:
        patched.setattr(rank_worker, "read_recorded", unread)
        assert read_ranks([f"{bucket}/"]).ranks == first.ranks
    changed = job_paths(PIPELINE)[2]
    write(f"{bucket}/{changed.name}", changed.read_bytes() + gzip.compress(b"\n"))
    asked: list[str] = []

    def noted(name: str, *, cache: bool) -> object:
        asked.append(name)
        return read(name, cache=cache)

    monkeypatch.setattr(rank_worker, "read_recorded", noted)
    read_ranks([bucket])
    assert [name.rsplit("/", 1)[1] for name in asked] == [changed.name]


def test_the_newest_is_read_where_one_is_asked_for(bucket: str) -> None:
    (one,) = traces_at(bucket, every=False)
    assert one.url.startswith(bucket)
    assert one.url.endswith(".json.gz")


def test_a_version_changes_with_the_file(bucket: str) -> None:
    url = f"{bucket}/{job_paths(PIPELINE)[0].name}"
    before = version_of(url)
    assert version_of(url) == before
    write(url, b"shorter")
    assert version_of(url) != before


@pytest.mark.parametrize("url", ["memory://nothing-here/at-all", "nosuchscheme://bucket/job"])
def test_what_is_not_there_is_one_line(url: str) -> None:
    with pytest.raises((InputError, UsageError)) as error:
        read_ranks([url])
    assert url in str(error.value)


def test_a_folder_without_traces_says_so(bucket: str) -> None:
    write(f"{bucket}-empty/notes.md", b"") if bucket.startswith("memory") else Path(
        f"{bucket.removeprefix('file://')}-empty"
    ).mkdir()
    with pytest.raises(InputError, match="no trace in it"):
        traces_at(f"{bucket}-empty", every=True)


def test_a_path_is_no_address() -> None:
    assert [is_url(text) for text in ("s3://a/b", "C:\\a", "a/b", "://a", "c://x")] == [
        True,
        False,
        False,
        False,
        False,
    ]
