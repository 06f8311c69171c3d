"""Shared set-up: no test touches the user's cache, and output is the same on any terminal."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import lanewise.cli
from tests.support.explained import Shelf
from tests.support.free_of_torch import never_needs_torch

# Whoever shares the machine may take it for a while: that says nothing of an example.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--where-torch-matters",
        action="store_true",
        help="leave out tests of rooms that never need torch: what they find without it, they find with it",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """None leaves it to what else decides."""
    return True if config.getoption("--where-torch-matters") and never_needs_torch(collection_path) else None


@pytest.fixture(autouse=True, scope="session")
def _verbs_are_loaded() -> None:  # pyright: ignore[reportUnusedFunction]
    """Verbs are imported when they are first called; one imported while a function is patched would keep the patch."""
    for module in pkgutil.walk_packages(lanewise.cli.__path__, "lanewise.cli."):
        importlib.import_module(module.name)


@pytest.fixture(autouse=True, scope="session")
def _what_is_imported_is_no_garbage(_verbs_are_loaded: None) -> None:  # pyright: ignore[reportUnusedFunction]
    """Nor need a collection look through it: half a million objects of torch and of the tests themselves."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:  # pyright: ignore[reportUnusedFunction]
    """In the background of a shell SIGINT is ignored, by the programs that tests start, too, if nobody restores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _what_takes_long_is_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:  # pyright: ignore[reportUnusedFunction]
    """The processes that tests are spread over share it; building it takes half a minute. They share reports, too."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = tmp_path_factory.getbasetemp().parent / "native"
        shared.mkdir(mode=0o700, exist_ok=True)
        Shelf.folder = shared.with_name("reports")
        Shelf.folder.mkdir(exist_ok=True)
        cache = tmp_path_factory.getbasetemp() / "cache"
        cache.mkdir()
        (cache / "native").symlink_to(shared)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:  # pyright: ignore[reportUnusedFunction]
    cache = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(cache))
    monkeypatch.setenv("LANEWISE_STATE_DIR", str(tmp_path_factory.getbasetemp() / "state"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return cache


@pytest.fixture(autouse=True)
def _settings_are_left_alone() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Whatever a test does, the process is left as it was: else another test fails, and only beside this one."""
    if "torch" not in sys.modules:
        yield
        return
    from lanewise.fix.process_settings import changed_settings, put_back, settings

    before = settings()
    yield
    if changed := changed_settings(before):
        put_back(before)
    assert changed == []
