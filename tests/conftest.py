"""Shared set-up: no test touches the user's cache, and output is the same on any terminal."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:  # pyright: ignore[reportUnusedFunction]
    cache = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(cache))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return cache
